package load

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Now returns CLOCK_MONOTONIC in nanoseconds, which is the same in every process.
func Now() int64 {
	var t unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// First runs f on a thread that takes precedence over all others of the machine (SCHED_FIFO), so
// that the measured delays are the service's and not the generator's.
func First(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so it ends with f and nothing else runs with this
		// priority.
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

// spin is how long before its time a thread stops sleeping and polls the clock.
const spin = 10 * time.Microsecond

// SleepUntil returns at that time of Now, within microseconds on a thread of First.
func SleepUntil(at int64) {
	sleep(at - int64(spin))
	for Now() < at {
	}
}

// sleep returns soon after that time of Now. The thread remains one of Go's running threads, so that it
// doesn't have to wait for the scheduler when it wakes.
func sleep(until int64) {
	t := unix.NsecToTimespec(until)
	for Now() < until {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
		if errno != 0 && !errors.Is(errno, unix.EINTR) {
			return
		}
	}
}
