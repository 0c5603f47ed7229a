package reclaim

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// lowNice is a third of the usual weight. With nice 19, or SCHED_IDLE, other programs that keep the CPUs busy would
// keep memory from being reclaimed. A nice value counts among the threads of one cgroup; thread.Rest lets the threads of
// other cgroups run.
const lowNice = 5

// GiveWay makes the thread of the calling goroutine give way to services, and keeps the goroutine on
// it. The thread ends with the goroutine.
//
// The kernel reclaims in the thread that asks for it, and compressing a GiB for zram takes seconds
// of CPU time. With the usual priority, services would wait for CPUs instead of memory.
func GiveWay() {
	runtime.LockOSThread()
	// A sandbox may forbid it, and then the thread competes like others.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_BATCH, Nice: lowNice}, 0)
}
