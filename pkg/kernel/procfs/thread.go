package procfs

import (
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RunDelay returns how long a thread has been runnable without running since its start: the
// second number of /proc/<thread>/schedstat, which is about that thread alone (and is counted
// with schedstats off, too). It returns ErrUnsupported if the thread has ended, or without
// CONFIG_SCHED_INFO.
func (f *FS) RunDelay(thread int) (time.Duration, error) {
	var memory [32]byte
	name := append(strconv.AppendInt(memory[:0], int64(thread), 10), "/schedstat\x00"...)
	fd, err := f.openat(name)
	if err != nil {
		return 0, kind(err)
	}
	n, err := unix.Pread(fd, f.text[:256], 0)
	unix.Close(fd) //nolint:errcheck // the file was opened for reading
	if err != nil {
		return 0, kind(err)
	}
	return parseSchedstat(f.text[:n]), nil
}

// openat opens a file below /proc, like unix.Openat, but takes a name that ends with a 0 byte.
// unix.Openat copies its string twice, which would happen for each of thousands of threads.
func (f *FS) openat(name []byte) (int, error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, f.proc.Fd(), uintptr(unsafe.Pointer(&name[0])), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		case unix.ESRCH:
			return 0, unix.ENOENT
		default:
			return 0, errno
		}
	}
}

// parseSchedstat returns the second number of "running waiting slices", in ns
// (Documentation/scheduler/ sched-stats.rst).
func parseSchedstat(text []byte) time.Duration {
	_, rest := number(text)
	waiting, _ := number(rest)
	return time.Duration(waiting)
}
