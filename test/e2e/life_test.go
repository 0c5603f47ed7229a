package e2e

import (
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestLife checks what can happen to containers between their creation and their end, on both
// runtimes, with one plugin that runs all the time.
func TestLife(t *testing.T) {
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			rt := start(t, runtime.Options{Containerd: version})
			s := startSluice(t, rt, runtime.SluiceOptions{})
			for _, test := range []struct {
				name string
				run  func(*testing.T, *runtime.Runtime, *runtime.Sluice)
			}{
				{"pods created while the plugin is away", testAway},
				{"stopping the plugin changes nothing", testStopped},
				{"a second pin is refused", testSecondPin},
				{"what can't be honoured is refused", testInvalid},
				{"runc create fails after the grant", testFailedCreate},
				{"a start is refused", testRefusedStart},
				{"a crashed pin is replaced", testReplaced},
				{"LS is resized beside a pin", testResizedLS},
				{"LSR is resized", testResizedLSR},
				{"a runtime update names a pin's CPUs", testForeignUpdate},
				{"another writer moves LS onto a pin", testForeignWriter},
			} {
				t.Run(test.name, func(t *testing.T) {
					t.Cleanup(func() { empties(t, rt, s) })
					test.run(t, rt, s)
					consistent(t, rt, s)
				})
			}
		})
	}
}

func testAway(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	before := run(t, rt, classed("before", "LS", runtime.Resources{})).Container("c")
	must(t, s.Kill())
	pinPod := run(t, rt, classed("pin", "LSE", runtime.Whole(1000, 64*mib)))
	during := run(t, rt, classed("during", "LS", runtime.Resources{})).Container("c")
	sees(t, pinPod.Container("c"), online(t))
	sees(t, during, online(t))
	must(t, s.Restart())
	rest := cpuset.Difference(online(t), alone(t, pinPod.Container("c")))
	isOn(t, before, rest)
	isOn(t, during, rest)
	await(t, "the pod's quota is lifted", func() bool { return limit(t, pinPod.File) < 0 })
	must(t, s.Kill())
	later := run(t, rt, classed("later", "LS", runtime.Resources{})).Container("c")
	sees(t, later, online(t))
	must(t, s.Restart())
	isOn(t, later, rest)
}

func testStopped(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	run(t, rt, classed("ls", "LS", runtime.Resources{CPURequest: 200, CPULimit: 500}))
	run(t, rt, classed("be", "BE", runtime.Resources{}))
	pinPod, _ := pinOf(t, rt, "pin", "LSR")
	await(t, "the pod's quota is lifted", func() bool { return limit(t, pinPod.File) < 0 })
	settings := func() runtime.Dump {
		all, err := rt.Settings()
		must(t, err)
		return all
	}
	before := settings()
	must(t, s.Stop())
	if code, err := s.Wait(); err != nil || code != 0 {
		t.Errorf("it ended with %d (%v), want 0", code, err)
	}
	if changed := before.Differences(settings()); len(changed) > 0 {
		t.Errorf("stopping changed %q", changed)
	}
	must(t, s.Restart())
	if changed := before.Differences(settings()); len(changed) > 0 {
		t.Errorf("starting again changed %q", changed)
	}
	must(t, pinPod.Container("c").Resize(runtime.Whole(1000, 96*mib))) // the kubelet's write restores the quota
	await(t, "the pod's quota is lifted again", func() bool { return limit(t, pinPod.File) < 0 })
}

func testFailedCreate(t *testing.T, rt *runtime.Runtime, _ *runtime.Sluice) {
	spec := classed("failing", "LSR", runtime.Whole(1000, 64*mib))
	spec.Handler = runtime.Broken
	pod, err := rt.RunPod(spec)
	must(t, err)
	fails := spec.Containers[0]
	fails.RuncFails = "create"
	// containerd calls runc create at the start; CRI-O does so at the creation, so a failure there
	// leaves no container to remove.
	failed := func() *runtime.Container {
		c, err := pod.Create(fails)
		if err == nil {
			err = c.Start()
		}
		if err == nil {
			t.Fatal("a container whose runc fails create was started")
		}
		return c
	}

	failed()
	retried, err := pod.Create(spec.Containers[0])
	must(t, err)
	must(t, retried.Start())
	alone(t, retried)
	must(t, retried.Stop())
	must(t, retried.Remove())

	if c := failed(); c != nil {
		must(t, c.Remove())
	}
	// If no event reports the failure, the CPU is free some seconds later.
	other, err := rt.RunPod(classed("other", "LSR", runtime.Whole(1000, 64*mib)))
	must(t, err)
	await(t, "another pod has the CPU", func() bool {
		c, err := other.Create(runtime.ContainerSpec{Name: "c", Resources: runtime.Whole(1000, 64*mib)})
		if err != nil {
			return false
		}
		must(t, c.Start())
		alone(t, c)
		return true
	})
	must(t, other.Remove())
}

// testRefusedStart creates two pins while the plugin is away, of which only one can have a CPU of
// its own. containerd ends the other one; CRI-O runs it.
func testRefusedStart(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	must(t, s.Kill())
	var pins []*runtime.Container
	for _, name := range []string{"one", "two"} {
		pod, err := rt.RunPod(classed(name, "LSR", runtime.Whole(1000, 64*mib)))
		must(t, err)
		c, err := pod.Create(runtime.ContainerSpec{Name: "c", Resources: runtime.Whole(1000, 64*mib), Args: []string{"first", "burn"}})
		must(t, err)
		pins = append(pins, c)
	}
	must(t, s.Restart())
	refused := pins[0].Start()
	if refused == nil {
		refused = pins[1].Start()
	} else { // containerd 1.7 doesn't report which was created first, so either may have the CPU
		slices.Reverse(pins)
		must(t, pins[0].Start())
	}
	cpu := alone(t, pins[0])
	if refused != nil {
		says(t, refused.Error(), "1 CPU of its own would leave 0")
		await(t, "the refused container is forgotten", func() bool { return len(statusOf(t, s).Containers) == 1 })
		return
	}
	must(t, pins[1].Await(cri.ContainerState_CONTAINER_RUNNING))
	isOn(t, pins[1], cpuset.Difference(online(t), cpu))
	if told := strings.Join(entry(t, s, pins[1]).Warnings, " "); !strings.Contains(told, "its start was refused, and the runtime runs it all the same") {
		t.Errorf("it runs, and is told of as %q", told)
	}
	if st := statusOf(t, s); st.Runtime.Name != "cri-o" || st.Counters.RanRefused == 0 {
		t.Errorf("%s ran a container whose start was refused, counted %d times", st.Runtime.Name, st.Counters.RanRefused)
	}
	await(t, "its quota is its own", func() bool { return limit(t, pins[1].File) == 1000 })
}

func testReplaced(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	pod, cpu := pinOf(t, rt, "pin", "LSR")
	ls := run(t, rt, classed("ls", "LS", runtime.Resources{})).Container("c")
	again := func() {
		t.Helper()
		c, err := pod.Create(runtime.ContainerSpec{Name: "c", Resources: runtime.Whole(1000, 64*mib)})
		must(t, err)
		must(t, c.Start())
		isOn(t, ls, cpuset.Difference(online(t), alone(t, c)))
		if pinned := statusOf(t, s).Machine.Pinned; pinned.Size() != 1 {
			t.Errorf("CPUs %s are pinned, want one", pinned)
		}
	}
	must(t, pod.Container("c").Crash())
	again()
	must(t, pod.Container("c").Kill()) // the runtime may not know it yet
	again()
	isOn(t, pod.Container("c"), cpu)
}

func testForeignUpdate(t *testing.T, rt *runtime.Runtime, _ *runtime.Sluice) {
	ls := run(t, rt, classed("ls", "LS", runtime.Resources{})).Container("c")
	pinPod, cpu := pinOf(t, rt, "pin", "LSR")
	rest := cpuset.Difference(online(t), cpu)
	for _, set := range []cpuset.Set{cpu, online(t)} {
		must(t, ls.Update(&cri.LinuxContainerResources{CpusetCpus: set.String()}))
		isOn(t, ls, rest)
	}
	pin := pinPod.Container("c")
	must(t, pin.Update(&cri.LinuxContainerResources{CpusetCpus: rest.String()}))
	if got := alone(t, pin); got != cpu {
		t.Errorf("the pin moved from CPU %s to %s", cpu, got)
	}
}

func testForeignWriter(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	ls := run(t, rt, classed("ls", "LS", runtime.Resources{})).Container("c")
	_, cpu := pinOf(t, rt, "pin", "LSE")
	rest := cpuset.Difference(online(t), cpu)
	isOn(t, ls, rest)
	before := entry(t, s, ls).Drift
	must(t, ls.WriteFile("cpuset.cpus", cpu.String()))
	await(t, "the container has left the pin again", func() bool {
		cpus, err := ls.CPUs()
		must(t, err)
		return cpus == rest
	})
	if after := entry(t, s, ls).Drift; after != before+1 {
		t.Errorf("status counts %d repairs of the container, want %d", after, before+1)
	}
}
