package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// protect lowers this process' OOM score as far as permitted.
func protect(log logrus.FieldLogger) {
	const nearlyNever = "-998" // the kubelet's own value is -999
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(nearlyNever), 0); err != nil {
		log.WithError(err).Debug("No protection from the OOM killer")
	}
}

// collectSeldom trades memory for steady response times: with some 10 MiB live at 500
// containers, Go's default would run the garbage collector during one pod start in ten, which
// shows in the 99th percentile (BenchmarkShared in test/bench). GOGC in the environment takes
// precedence.
func collectSeldom() {
	const percent = 400
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// wakeSeldom lets the kernel wake this process' sleeping threads up to a millisecond late. Without that, Go's monitor
// thread, which sleeps for 20 µs at a time while any goroutine runs, takes a fifth of the loop's CPU time on a busy node
// (BenchmarkBusyLoop in test/bench). Requests and pressure events wake a thread as fast as before. Only timers are late,
// of which the shortest takes 8 ms.
func wakeSeldom(log logrus.FieldLogger) {
	if err := thread.SetTimerSlack(time.Millisecond); err != nil {
		log.WithError(err).Debug("Sluice's own threads wake up more often than they need to, which costs some CPU time")
	}
}

// trimMemory collects the garbage of the start once and returns its memory to the kernel. Go alone would
// keep it up to its next goal, which collectSeldom makes five times the memory in use. What the loop
// allocates later, some 30 KB a second, is collected twice a minute; Go alone would do so every 2 minutes.
func trimMemory(ctx context.Context) {
	const (
		started = 10 * time.Second // the first samples are taken
		every   = 30 * time.Second
	)
	select {
	case <-ctx.Done():
		return
	case <-time.After(started):
		debug.FreeOSMemory()
	}
	collect := time.NewTicker(every)
	defer collect.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-collect.C:
			runtime.GC()
		}
	}
}

// confine keeps this process' own threads off pinned CPUs. New threads inherit the affinity.
func confine(cpus cpuset.Set) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	mask := unix.NewCPUSet(cpuset.Max)
	for cpu := range cpus.All() {
		mask.Set(cpu)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinityDynamic(tid, mask); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}
