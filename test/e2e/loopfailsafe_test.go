package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// testFailsafe kills the plugin, and stops it for a while. Batch work then has its floor, services
// what they request, and a pin its CPU. A plugin that comes back continues, and reports what was
// done meanwhile.
func testFailsafe(t *testing.T, rt *runtime.Runtime) {
	ls := service(t, rt, "online", runtime.Resources{CPURequest: 500, CPULimit: 2000})
	batch := hog(t, rt, "batch")
	s := loopSluice(t, rt, squeeze(control.On, control.ByBoth))
	pinPod, cpu := pinOf(t, rt, "pin", "LSR")
	shared := cpuset.Difference(online(t), cpu)
	more := func() bool { now := boxed(t, batch); return now > batchFloor && now <= 600 }
	await(t, "batch has what is left beside the pin", more)
	own, err := ls.Settings()
	must(t, err)
	safe := func(what string, since time.Time) {
		t.Helper()
		await(t, what+": the failsafe has acted", func() bool { // waits for its report rather than for the floor, which the loop may have set itself
			_, err := os.Stat(filepath.Join(s.RuntimeDir, "failsafe-acted.json"))
			return err == nil
		})
		await(t, what+": batch has its floor", func() bool { return boxed(t, batch) == batchFloor })
		t.Logf("%s: batch had its floor after %s", what, time.Since(since).Round(100*time.Millisecond))
		unchanged(t, what, ls, own)
		isOn(t, ls.Container("c"), shared)
		if limit(t, ls.Container("c").File) != 2000 {
			t.Errorf("%s: the service's limit is %d milli", what, limit(t, ls.Container("c").File))
		}
		isOn(t, pinPod.Container("c"), cpu)
	}
	acts := 0 // number of actions reported before
	tells := func(why string) {
		t.Helper()
		await(t, "the loop tells what the failsafe did", func() bool {
			all := decided(t, s, "failsafe", "act")
			told := slices.ContainsFunc(all[acts:], func(e audit.Entry) bool { return strings.Contains(e.Why, why) })
			if told {
				acts = len(all)
			}
			return told
		})
	}

	since := time.Now()
	must(t, s.Signal(syscall.SIGSTOP))
	safe("stalled", since)
	must(t, s.Signal(syscall.SIGCONT))
	await(t, "the loop goes on", more)
	tells(silence)

	since = time.Now()
	must(t, s.Kill())
	safe("killed", since)
	noFailsafe(t, s)
	must(t, s.Restart())
	await(t, "the loop goes on after a crash", more)
	tells("has ended, and none came in its place")
	if pids, err := s.Failsafes(); err != nil || len(pids) != 1 {
		t.Errorf("%d failsafes, %v; want one", len(pids), err)
	}
}

// testRestartInSqueeze kills the plugin under load and starts it again at once. The batch cgroup
// never has more CPU than before, the service's files stay, and the old failsafe ends without
// acting.
func testRestartInSqueeze(t *testing.T, rt *runtime.Runtime) {
	online := service(t, rt, "online", runtime.Resources{CPURequest: 1000, CPULimit: 2000})
	batch := hog(t, rt, "batch")
	s := loopSluice(t, rt, squeeze(control.On, control.ByBoth))
	load(t, online)
	await(t, "batch gives way", func() bool {
		now := boxed(t, batch)
		cpus, err := batch.Container("c").CPUs()
		must(t, err)
		return now > 0 && now < 900 && cpus.Size() == 1
	})
	own, err := online.Settings()
	must(t, err)
	for _, end := range []struct {
		how string
		do  func() error
	}{{"killed", s.Kill}, {"stopped", s.Stop}} {
		quota, cpus := watchBox(batch), watchCPUs(batch.Container("c"))
		squeezes := len(decided(t, s, "batch", "squeeze"))
		old, err := s.Failsafes()
		must(t, err)
		must(t, end.do())
		must(t, s.Restart())
		await(t, "the old failsafe has ended, and there is a new one", func() bool {
			pids, err := s.Failsafes()
			must(t, err)
			return len(pids) == 1 && !slices.Contains(old, pids[0])
		})
		await(t, "the loop decides again", func() bool { return len(decided(t, s, "batch", "squeeze")) > squeezes })
		quotas, err := quota()
		must(t, err)
		sizes, err := cpus()
		must(t, err)
		t.Logf("%s: batch's box had %v CPUs by quota, and its container %v", end.how, quotas, sizes)
		if slices.Max(quotas) > 1000 || slices.Max(sizes) > 1000 {
			t.Errorf("%s: batch's box was opened", end.how)
		}
		unchanged(t, end.how, online, own)
	}
	for _, act := range decided(t, s, "failsafe", "act") {
		if !expected(act.Why) {
			t.Errorf("the failsafe acted beside a successor: %+v", act)
		}
	}
	sound(t, s)
}

// watch samples an amount of CPU until the returned function is called, which returns the
// different values in order.
func watch(read func() (workload.MilliCPU, error)) func() ([]workload.MilliCPU, error) {
	var seen []workload.MilliCPU
	var failed error
	var done sync.WaitGroup
	end := make(chan struct{})
	done.Go(func() {
		for failed == nil {
			var now workload.MilliCPU
			if now, failed = read(); len(seen) == 0 || seen[len(seen)-1] != now {
				seen = append(seen, now)
			}
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() ([]workload.MilliCPU, error) {
		close(end)
		done.Wait()
		return seen, failed
	}
}

// watchBox watches the quota of the batch cgroup; a thousand CPUs stand for none.
func watchBox(batch *runtime.Pod) func() ([]workload.MilliCPU, error) {
	return watch(func() (workload.MilliCPU, error) {
		now, err := limitOf(batch.ClassFile)
		if now < 0 {
			now = 1e6
		}
		return now, err
	})
}

// watchCPUs watches how many CPUs a container may use.
func watchCPUs(c *runtime.Container) func() ([]workload.MilliCPU, error) {
	return watch(func() (workload.MilliCPU, error) {
		cpus, err := c.CPUs()
		return workload.MilliCPU(cpus.Size() * 1000), err
	})
}
