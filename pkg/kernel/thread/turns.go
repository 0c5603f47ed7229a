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
// it does so at a tick only. The 99th percentile of a service that grows into memory that goes to swap was 40 to 92 ms. With
// turns of 5 ms and pauses of 2.5 ms it was 57 to 360 ms in the same hour, and without pauses 60 to 1,080 ms (make bench-mix
// FLAGS="-parts memory -swap zram").
const rest = 8 * time.Millisecond

// Rest pauses between two turns if more threads want a CPU than there are CPUs. A low priority is not enough where
// the thread is in another cgroup than those that wait: the kernel's load balancer goes by the weights of cgroups, so
// that even a thread of the idle class may keep a CPU for itself while others wait for the next CPU. A CPU
// that runs out of work takes one of them, mostly at once (sched_balance_newidle in kernel/sched/fair.c).
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

// mostTurns is the number of turns, about a minute, after which a call is interrupted no more, in case a turn is too
// short for it to get anything done.
const mostTurns = 4000

// InTurns makes a system call in which the kernel may work for long, and rests after each turn: a signal interrupts the
// call, which is then repeated. The kernel must keep what an interrupted call has done. InTurns returns the error of
// the last call.
func InTurns(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	process, thread := unix.Getpid(), unix.Gettid()
	turn := time.AfterFunc(Turn, func() {
		_ = unix.Tgkill(process, thread, unix.SIGURG) // Go's own signal to threads, which it otherwise ignores
	})
	defer turn.Stop()
	for n := 1; ; n++ {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
		Rest()
		if n < mostTurns {
			turn.Reset(Turn)
		}
	}
}
