package e2e

import (
	"testing"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// classed returns a pod of one container with a class.
func classed(name, class string, r runtime.Resources) runtime.PodSpec {
	return runtime.PodSpec{
		Name: name, Namespace: "kube-system", Annotations: map[string]string{"class.sluice.dev": class},
		Containers: []runtime.ContainerSpec{{Name: "c", Resources: r}},
	}
}

// TestPlacement runs containers of all classes on a real containerd, and reads what each sees at
// its first instruction. The machine may have only two CPUs, so there is at most one pin at a
// time.
func TestPlacement(t *testing.T) {
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			rt := start(t, runtime.Options{Containerd: version})
			startSluice(t, rt, runtime.SluiceOptions{})
			for _, class := range []string{"LSE", "LSR"} {
				t.Run(class, func(t *testing.T) { testPin(t, rt, class) })
			}
			t.Run("created before the pin, started after it", func(t *testing.T) { testCreatedBefore(t, rt) })
		})
	}
}

func testPin(t *testing.T, rt *runtime.Runtime, class string) {
	all := online(t)
	others := map[string]*runtime.Container{}
	for _, shared := range []string{"LS", "BE", "SYSTEM"} {
		pod := run(t, rt, classed("before-"+shared, shared, runtime.Resources{}))
		defer pod.Remove()
		c := pod.Container("c")
		sees(t, c, all)
		others[shared] = c
	}

	pod := run(t, rt, classed("pin", class, runtime.Whole(1000, 64*mib)))
	pin := pod.Container("c")
	first, err := pin.First()
	must(t, err)
	if first.CPUs.Size() != 1 || first.NumCPU != 1 {
		t.Fatalf("%s sees CPUs %s, want one of its own", class, first.CPUs)
	}
	rest := cpuset.Difference(all, first.CPUs)
	for name, c := range others {
		cpus, _, err := c.Allowed()
		must(t, err)
		if cpus != rest {
			t.Errorf("running %s may use CPUs %s while %s is pinned, want %s", name, cpus, first.CPUs, rest)
		}
	}
	if quota := limit(t, pin.File); quota >= 0 {
		t.Errorf("the pin is limited to %s CPUs, want no quota", quota)
	}
	await(t, "the pod's quota is lifted", func() bool { return limit(t, pod.File) < 0 })
	for _, shared := range []string{"LS", "BE", "SYSTEM"} {
		after := run(t, rt, classed("after-"+shared, shared, runtime.Resources{}))
		defer after.Remove()
		c := after.Container("c")
		sees(t, c, rest)
		others["later "+shared] = c // the runtime's reply had only the remaining CPUs
	}

	must(t, pod.Remove())
	for name, c := range others {
		await(t, name+" has all CPUs again", func() bool {
			cpus, _, err := c.Allowed()
			must(t, err)
			return cpus == all
		})
	}
	even(t, rt)
}

func testCreatedBefore(t *testing.T, rt *runtime.Runtime) {
	pod, err := rt.RunPod(runtime.PodSpec{Name: "early"})
	must(t, err)
	early, err := pod.Create(runtime.ContainerSpec{Name: "c"})
	must(t, err)
	pinPod := run(t, rt, classed("pin", "LSR", runtime.Whole(1000, 64*mib)))
	first, err := pinPod.Container("c").First()
	must(t, err)
	must(t, early.Start())
	sees(t, early, cpuset.Difference(online(t), first.CPUs))
	must(t, pod.Remove())
	must(t, pinPod.Remove())
}

func sees(t *testing.T, c *runtime.Container, want cpuset.Set) {
	t.Helper()
	first, err := c.First()
	must(t, err)
	if first.CPUs != want {
		t.Errorf("the first instruction sees CPUs %s, want %s", first.CPUs, want)
	}
}
