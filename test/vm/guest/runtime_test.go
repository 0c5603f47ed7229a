package guest

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/knobs"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestPlacement checks an assumption of the other tests, without Sluice: a container that is given
// the last NUMA node before its start sees nothing else from its first instruction on, and its
// limits are in the files of cgroup v2.
func TestPlacement(t *testing.T) {
	rt := start(t, runtime.Options{})
	spec := runtime.ContainerSpec{Name: "c", Resources: runtime.Whole(1500, 64<<20)}
	pod, err := rt.RunPod(runtime.PodSpec{Name: "p", Containers: []runtime.ContainerSpec{spec}})
	must(t, err)
	c, err := pod.Create(spec)
	must(t, err)

	node := online(t, "node").Last()
	cpus, mems := set(t, nodeFile(node, "cpulist")), cpuset.Of(node)
	must(t, c.Update(&cri.LinuxContainerResources{CpusetCpus: cpus.String(), CpusetMems: mems.String()}))
	must(t, c.Start())

	first, err := c.First()
	must(t, err)
	if first.CPUs != cpus || first.Mems != mems {
		t.Errorf("the first instruction sees CPUs %s and nodes %s, want %s and %s", first.CPUs, first.Mems, cpus, mems)
	}
	if got := first.Files["cpu.max"]; got != "150000 100000" {
		t.Errorf("cpu.max is %q, want 150000 100000", got)
	}
	for file, want := range map[string]string{"cpuset.cpus": cpus.String(), "cpuset.mems": mems.String(), "memory.max": "67108864"} {
		if got, err := c.File(file); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %s", file, got, err, want)
		}
	}
	if gotCPUs, gotMems, err := c.Allowed(); err != nil || gotCPUs != cpus || gotMems != mems {
		t.Errorf("threads may run on %s with memory of %s (%v), want %s and %s", gotCPUs, gotMems, err, cpus, mems)
	}
	must(t, pod.Remove())

	t.Run("knobs", func(t *testing.T) { knobs.Ground(t, &knobs.Bed{RT: rt}) })
}
