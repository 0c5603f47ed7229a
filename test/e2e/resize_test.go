package e2e

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func testResizedLS(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	pod := run(t, rt, classed("ls", "LS", runtime.Whole(300, 64*mib)))
	ls := pod.Container("c")
	_, cpu := pinOf(t, rt, "pin", "LSR")
	for _, to := range []workload.MilliCPU{800, 100} {
		must(t, ls.Resize(runtime.Whole(to, 64*mib)))
		for name, file := range map[string]func(string) (string, error){"container": ls.File, "pod": pod.File} {
			if got := limit(t, file); got != to {
				t.Errorf("the %s's limit is %d milli, want %d", name, got, to)
			}
		}
		if got := entry(t, s, ls).Requested; got != to {
			t.Errorf("sluice reads a request of %d milli, want %d", got, to)
		}
		isOn(t, ls, cpuset.Difference(online(t), cpu))
	}
}

func testResizedLSR(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	pod, cpu := pinOf(t, rt, "pin", "LSR")
	pin := pod.Container("c")
	ls := run(t, rt, classed("ls", "LS", runtime.Resources{})).Container("c")
	stands := func() {
		t.Helper()
		if got := alone(t, pin); got != cpu {
			t.Errorf("the pin moved from CPU %s to %s", cpu, got)
		}
		isOn(t, ls, cpuset.Difference(online(t), cpu))
		if e := entry(t, s, pin); e.CPUs != cpu || e.Requested != 1000 {
			t.Errorf("sluice tells CPUs %s and a request of %d milli, want %s and 1000", e.CPUs, e.Requested, cpu)
		}
		await(t, "the pod's quota is lifted", func() bool { return limit(t, pod.File) < 0 })
	}
	stands()
	for _, c := range []struct {
		to   workload.MilliCPU
		says []string
	}{
		{1500, []string{"requests 1500m", "request 1 or 2"}},
		{500, []string{"requests 500m"}},
		{2000, []string{"2 CPUs", "would leave 0"}},
	} {
		err := pin.Resize(runtime.Whole(c.to, 64*mib))
		if err == nil {
			t.Fatalf("the resize to %d milli was granted", c.to)
		}
		says(t, err.Error(), append(c.says, "resize of container kube-system/pin/c")...)
		stands()
	}
	must(t, pin.Resize(runtime.Whole(1000, 96*mib))) // a resize of memory alone, whose update contains the quota, too
	stands()
}
