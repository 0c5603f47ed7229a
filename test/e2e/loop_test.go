package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestLoop has the control loop on real containers with real load, of which the node
// that it sees has no other: budgets by quota and by CPU set that follow a service,
// preview, automatic burst, memory, evictions, and what is left when the plugin is gone.
// The guests of test/vm run it on cgroup v2, with both drivers.
func TestLoop(t *testing.T) { testLoop(t, start(t, runtime.Options{})) }

// TestLoopCRIO is TestLoop on CRI-O.
func TestLoopCRIO(t *testing.T) { testLoop(t, start(t, runtime.Options{Containerd: runtime.CRIO})) }

func testLoop(t *testing.T, rt *runtime.Runtime) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *runtime.Runtime)
	}{
		{"batch gives way by quota", testSqueezeByQuota},
		{"batch gives way by CPU set", testSqueezeByCPUSet},
		{"preview writes nothing", testPreview},
		{"a limit is raised and resized", testAutomaticBurst},
		{"memory is taken back from batch", testMemory},
		{"memory evicts batch", testEviction},
		{"the switch closes batch", testSwitch},
		{"the plugin dies or stalls", testFailsafe},
		{"the plugin is restarted", testRestartInSqueeze},
		{"services keep their proportions", testWeights},
		{"idle pins are lent", testLend},
		{"batch comes and goes", testLoopChurn},
		{"a recording is played back", testRecording},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Cleanup(func() { must(t, rt.RemoveAll()) })
			test.run(t, rt)
		})
	}
}

// batchFloor is the least that batch work has by quota.
const batchFloor = 200

// squeeze is a config in which the online work and batch may use six tenths of the
// node together, so that half of one CPU of load is seen by any means.
func squeeze(mode control.Mode, by control.Mechanism) string {
	return fmt.Sprintf("control: {mode: %s, batch: {by: %s, thresholdPercent: 60, growPercent: 100, floorCPUs: 1, onlineWeight: 100}}", mode, by)
}

// loopSluice runs the plugin. At the end it and its failsafe are gone.
func loopSluice(t *testing.T, rt *runtime.Runtime, config string) *runtime.Sluice {
	t.Helper()
	s := startSluice(t, rt, runtime.SluiceOptions{Config: config, Quiet: true})
	t.Cleanup(func() {
		if t.Failed() {
			told, err := s.DecisionText()
			t.Logf("sluice log (%v):\n%s", err, told)
		}
		pids, err := s.Failsafes()
		must(t, err)
		must(t, s.Kill())
		_, err = s.Restore()
		must(t, err)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	})
	return s
}

// sound checks what holds after every test of the loop: no panic, no failed write, and
// no complaint in the log.
func sound(t *testing.T, s *runtime.Sluice) {
	t.Helper()
	st := statusOf(t, s)
	if n := st.Counters; n.Panics > 0 || n.WriteErrors > 0 {
		t.Errorf("%d panics and %d failed writes", n.Panics, n.WriteErrors)
	}
	for line := range strings.Lines(s.Log()) {
		if (strings.Contains(line, "level=error") || strings.Contains(line, "level=warning")) && !strings.Contains(line, `msg="Container refused"`) && !expected(line) {
			t.Errorf("the log complains: %s", line)
		}
	}
}

// expected tells what is right in a guest. On an emulated machine on a busy host the
// failsafe acts where the plugin had no CPU for as long as it waits, and the plugin looks
// at a pod between the kubelet's steps of one resize. The plugin connects again where the
// runtime doesn't register it within the 5 s of NRI's stub. With the systemd driver
// systemd writes files that Sluice repairs.
func expected(told string) bool {
	return inGuest() && slices.ContainsFunc([]string{silence, "No connection to the runtime's NRI socket", `suspect="the kubelet: `, `suspect="systemd: `},
		func(known string) bool { return strings.Contains(told, known) })
}

// silence is the failsafe's reason where the plugin is there and does nothing.
const silence = "no sign of life for 5s"

// service is a running LS container that makes load when told to.
func service(t *testing.T, rt *runtime.Runtime, name string, r runtime.Resources) *runtime.Pod {
	t.Helper()
	spec := classed(name, "LS", r)
	spec.Containers[0].Args = []string{"first", "toggle"}
	pod := run(t, rt, spec)
	_, err := pod.Container("c").First()
	must(t, err)
	return pod
}

func load(t *testing.T, pod *runtime.Pod) {
	t.Helper()
	must(t, pod.Container("c").Signal(syscall.SIGUSR1))
}

// unload ends a load that has begun: two signals that wait together reach the threads of a
// throttled process in any order, and the load would go on.
func unload(t *testing.T, pod *runtime.Pod) {
	t.Helper()
	used := func() time.Duration {
		used, err := pod.Container("c").CPUTime()
		must(t, err)
		return used
	}
	before := used()
	await(t, "the load has begun", func() bool { return used() > before+10*time.Millisecond })
	must(t, pod.Container("c").Signal(syscall.SIGUSR2))
}

// hog is a running BE container that takes all CPUs it gets.
func hog(t *testing.T, rt *runtime.Runtime, name string) *runtime.Pod {
	t.Helper()
	spec := classed(name, "BE", runtime.Resources{})
	spec.Containers[0].Args = []string{"first", "burn=2"}
	return run(t, rt, spec)
}

// boxed is the CPU that the cgroup of BestEffort pods may use; -1 is all.
func boxed(t *testing.T, pod *runtime.Pod) workload.MilliCPU {
	t.Helper()
	return limit(t, pod.ClassFile)
}

// decided are the loop's decisions of a controller that did that.
func decided(t *testing.T, s *runtime.Sluice, controller, action string) (found []audit.Entry) {
	t.Helper()
	all, err := s.Decisions()
	must(t, err)
	for _, e := range all {
		if e.Controller == controller && e.Action == action {
			found = append(found, e)
		}
	}
	return found
}

// unchanged compares what can be set in a pod with before.
func unchanged(t *testing.T, what string, pod *runtime.Pod, before runtime.Dump) {
	t.Helper()
	now, err := pod.Settings()
	must(t, err)
	if changed := before.Differences(now); len(changed) > 0 {
		t.Errorf("%s: the pod's files changed: %q", what, changed)
	}
}
