package reclaim

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// lowNice is a third of the usual weight. Beside a service that grows, in milliseconds at the 99th
// percentile (make bench-mix FLAGS="-parts memory -swap zram"): nice 0 170, nice 5 13 to 53, nice 19
// 17 to 22. With nice 19, or SCHED_IDLE, other programs that keep the CPUs busy would also keep
// memory from being reclaimed.
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
