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

// TestLoop runs the control loop on real containers with real load, which is all the load of the
// node that it sees. It checks budgets by quota and by CPU set that follow a service, preview,
// automatic burst, memory, evictions, and what is left when the plugin is gone. The guests of
// test/vm run it on cgroup v2 with both drivers.
func TestLoop(t *testing.T) { testLoop(t, start(t, runtime.Options{})) }

// TestLoopCRIO runs TestLoop on CRI-O.
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
		{"batch reads notices", testNotices},
		{"the plugin dies or stalls", testFailsafe},
		{"the plugin is restarted", testRestartInSqueeze},
		{"services keep their proportions", testWeights},
		{"batch work shares by tier", testTiers},
		{"a bound on waiting squeezes batch", testBounds},
		{"an objective squeezes batch", testObjective},
		{"a culprit gets less CPU", testCulprit},
		{"a noisy service is kept apart", testNoisy},
		{"a host application is batch work", testHostApplication},
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

// batchFloor is the floor of batch work by quota, in thousandths of a CPU.
const batchFloor = 200

// squeeze returns a configuration in which online and batch work together may use six tenths of
// the node, so that a load of half a CPU has an effect by any mechanism.
func squeeze(mode control.Mode, by control.Mechanism) string {
	return fmt.Sprintf("control: {mode: %s, batch: {by: %s, thresholdPercent: 60, growPercent: 100, floorCPUs: 1, onlineWeight: 100}}", mode, by)
}

// loopSluice runs the plugin. When the test ends, it and its failsafe have ended.
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
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
		}
	})
	return s
}

// sound checks what must hold after every test of the loop: no panic, no failed write, and no
// warning in the log.
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

// expected reports whether a message is expected in a guest. On an emulated machine on a busy
// host, the failsafe acts when the plugin had no CPU for as long as it waits, and the plugin sees
// a pod between the kubelet's steps of one resize. The plugin reconnects if the runtime doesn't
// register it within the 5 s of NRI's stub. With the systemd driver, systemd writes files that
// Sluice repairs.
func expected(told string) bool {
	return inGuest() && slices.ContainsFunc([]string{silence, "No connection to the runtime's NRI socket", `suspect="the kubelet: `, `suspect="systemd: `},
		func(known string) bool { return strings.Contains(told, known) })
}

// silence is the failsafe's reason if the plugin runs and does nothing.
const silence = "no sign of life for 5s"

// service runs an LS container that causes load when the test says so.
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

// unload ends a load that has begun. Of two pending signals, the threads of a throttled process
// may receive the second one first, and the load would continue.
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

// hog runs a BE container that uses all CPUs that it gets.
func hog(t *testing.T, rt *runtime.Runtime, name string) *runtime.Pod {
	t.Helper()
	spec := classed(name, "BE", runtime.Resources{})
	spec.Containers[0].Args = []string{"first", "burn=2"}
	return run(t, rt, spec)
}

// boxed returns the CPU that the cgroup of BestEffort pods may use, or -1 for all.
func boxed(t *testing.T, pod *runtime.Pod) workload.MilliCPU {
	t.Helper()
	return limit(t, pod.ClassFile)
}

// decided returns the decisions of a controller with that action.
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

// unchanged compares the settings of a pod with earlier ones.
func unchanged(t *testing.T, what string, pod *runtime.Pod, before runtime.Dump) {
	t.Helper()
	now, err := pod.Settings()
	must(t, err)
	if changed := before.Differences(now); len(changed) > 0 {
		t.Errorf("%s: the pod's files changed: %q", what, changed)
	}
}
