package thread

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Turn is the time for which the kernel should work in a thread before it lets others have the CPU.
const Turn = 10 * time.Millisecond

// rest is the pause between two turns: two ticks at 250 Hz, so that the kernel gives the CPU to a waiting thread even if
// it does so at a tick only. While batch work's memory went to swap for a service, the service's 99th percentile was 14 to
// 243 ms. With turns of 5 ms and pauses of 2.5 ms it was 11 to 647 ms, and without pauses 59 to 1,083 ms (make bench-mix
// FLAGS="-parts memory -swap zram", and disk).
const rest = 8 * time.Millisecond

// Rest pauses between two turns if more threads want a CPU than there are CPUs. A low priority is not enough where
// the thread is in another cgroup than those that wait: even a thread of the idle class was seen to keep one CPU for itself
// while all threads of a service waited for the other CPU. A CPU that runs out of work takes a waiting thread from
// another one, mostly at once (sched_balance_newidle in kernel/sched/fair.c).
func Rest() {
	if runnable() > runtime.NumCPU() {
		pause := unix.NsecToTimespec(int64(rest))
		_ = unix.Nanosleep(&pause, nil) // a signal ends it early
	}
}

// runnable returns how many threads of the machine run or want to; 0 if that is unknown.
func runnable() int {
	text, err := os.ReadFile("/proc/loadavg") // "0.20 0.18 0.12 1/80 11206"
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 4 {
		return 0
	}
	running, _, _ := bytes.Cut(fields[3], []byte("/"))
	n, _ := strconv.Atoi(string(running))
	return n
}

// mostTurns is the number of turns, about a minute, after which InTurns no longer interrupts a call, in case a turn is
// too short for the kernel to get anything done.
const mostTurns = 4000

// InTurns makes a system call in which the kernel may work for long, and rests after each turn: a signal interrupts the
// call, which is then repeated. The kernel must keep what an interrupted call has done. InTurns returns the error of
// the last call.
func InTurns(call func() error) error { return inTurns(call, Turn, mostTurns) }

func inTurns(call func() error, turn time.Duration, most int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ends, over := time.NewTicker(turn), make(chan struct{})
	defer ends.Stop()
	defer close(over)
	go interrupt(unix.Getpid(), unix.Gettid(), ends.C, over)
	for n := 1; ; n++ {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
		Rest()
		if n < most {
			ends.Reset(turn)
		} else {
			ends.Stop()
		}
	}
}

// interrupt sends a thread a signal at each tick, until over is closed. It goes on after the first one, which has no
// effect if the thread has yet to enter the kernel.
func interrupt(process, thread int, ticks <-chan time.Time, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-ticks:
			_ = unix.Tgkill(process, thread, unix.SIGURG) // Go's own signal to threads, which it otherwise ignores
		}
	}
}
