package e2e

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestLife has what happens to containers between their creation and their end,
// on both runtimes, with one plugin that lives through all of it.
func TestLife(t *testing.T) {
	for _, version := range []string{"2", "1.7"} {
		t.Run("containerd "+version, func(t *testing.T) {
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
	must(t, pinPod.Container("c").Resize(runtime.Whole(1000, 96*mib))) // the kubelet's rewrite brings the quota back
	await(t, "the pod's quota is lifted again", func() bool { return limit(t, pinPod.File) < 0 })
}

func testFailedCreate(t *testing.T, rt *runtime.Runtime, _ *runtime.Sluice) {
	spec := classed("failing", "LSR", runtime.Whole(1000, 64*mib))
	spec.Handler = runtime.Broken
	pod, err := rt.RunPod(spec)
	must(t, err)
	fails := spec.Containers[0]
	fails.RuncFails = "create"
	failed := func() *runtime.Container {
		c, err := pod.Create(fails)
		must(t, err)
		if err := c.Start(); err == nil {
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

	must(t, failed().Remove())
	other, _ := pinOf(t, rt, "other", "LSR")
	must(t, other.Remove())
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
