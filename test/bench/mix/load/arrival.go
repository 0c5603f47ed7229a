package load

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// look is the time between two looks at what has arrived. The kernel notes when it arrives, so this does not add to
// latencies. A thread that woke for each answer would instead interrupt the service whenever it answers.
const look = 5 * time.Millisecond

// arrival returns when the kernel received what was read, as a time of Now, from the read's control messages. It is the present
// where the kernel did not note it, as in the first moments after SO_TIMESTAMPNS.
func arrival(control []byte) int64 {
	now := Now()
	if len(control) < unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))) {
		return now
	}
	header, data, _, err := unix.ParseOneSocketControlMessage(control)
	if err != nil || header.Type != unix.SCM_TIMESTAMPNS {
		return now
	}
	noted := (*unix.Timespec)(unsafe.Pointer(&data[0]))
	return now - max(0, time.Now().UnixNano()-noted.Nano())
}
