package load

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_MONOTONIC in nanoseconds, which every process reads alike.
func Now() int64 {
	var t unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// First runs f on a thread that goes before all others of the machine (SCHED_FIFO),
// so that what is measured is the service's lateness and not the measurer's.
func First(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with f, and nothing else runs so early.
		runtime.LockOSThread()
		attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
		if err := unix.SchedSetAttr(0, attr, 0); err != nil {
			done <- fmt.Errorf("the load generator can't go before the load (SCHED_FIFO): %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// spin is how long before its time a thread stops sleeping and watches the clock.
const spin = 50 * time.Microsecond

// SleepUntil returns at that time of Now, on a thread of First within microseconds.
// The thread keeps its place among Go's running ones, so that it doesn't wait for
// one when it wakes.
func SleepUntil(at int64) {
	if wake := at - int64(spin); wake > Now() {
		t := unix.NsecToTimespec(wake)
		for {
			_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
			if !errors.Is(errno, unix.EINTR) {
				break
			}
		}
	}
	for Now() < at {
	}
}
