package colocation

import (
	"reflect"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestCgroupsOfTheKubelet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		above, allPods, bestEffort string
	}{
		{"/kubepods/besteffort", "/kubepods", "/kubepods/besteffort"},
		{"/kubepods", "/kubepods", "/kubepods/besteffort"},
		{"/kubepods.slice/kubepods-burstable.slice", "/kubepods.slice", "/kubepods.slice/kubepods-besteffort.slice"},
		{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice", "/kubelet.slice/kubelet-kubepods.slice", "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"},
		{"/", "", ""},
		{"", "", ""},
	} {
		got := AllPodsCgroup(c.above)
		if got != c.allPods {
			t.Errorf("the cgroup of all pods above %s is %q, want %q", c.above, got, c.allPods)
		}
		if got != "" && BestEffortCgroup(got) != c.bestEffort {
			t.Errorf("the BestEffort cgroup below %s is %q, want %q", got, BestEffortCgroup(got), c.bestEffort)
		}
	}
	for dir, best := range map[string]bool{
		"/kubepods/besteffort": true, "/a.slice/a-besteffort.slice": true,
		"/kubepods/burstable": false, "/kubepods/mybesteffort": false, "/kubepods/besteffort/pod1": false,
	} {
		if IsBestEffort(dir) != best {
			t.Errorf("%s: BestEffort is %t, want %t", dir, !best, best)
		}
	}
}

func TestFindBatchCgroups(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/besteffort"
	job, service := running("job/c", "besteffort", workload.BE), running("proxy/c", "besteffort", workload.LS)
	unplaced := running("late/c", "besteffort", workload.LS)
	unplaced.Request = nil
	inVM := running("vm/c", "besteffort", workload.BE)
	inVM.Reachable = false
	for name, c := range map[string]struct {
		containers []Container
		usual      string
		want       BatchCgroups
	}{
		"no pod":                        {},
		"no pod, all BestEffort batch":  {usual: dir, want: BatchCgroups{Limited: []string{dir}}},
		"batch alone":                   {containers: []Container{job}, want: BatchCgroups{Dirs: []string{dir}, Limited: []string{dir}}},
		"two of batch, counted once":    {containers: []Container{job, job}, usual: dir, want: BatchCgroups{Dirs: []string{dir}, Limited: []string{dir}}},
		"beside a service":              {containers: []Container{job, service, service}, usual: dir, want: BatchCgroups{Mixed: []string{dir, dir}, MixedBy: []string{"ns/proxy"}}},
		"beside one without a place":    {containers: []Container{job, unplaced}, want: BatchCgroups{Dirs: []string{dir}, Limited: []string{dir}}},
		"in a virtual machine":          {containers: []Container{inVM}, want: BatchCgroups{Mixed: []string{dir}, MixedBy: []string{"ns/vm"}}},
		"batch that isn't BestEffort's": {containers: []Container{running("low/c", "burstable", workload.BE)}},
	} {
		inv := inventory(c.containers...)
		inv.BestEffortCgroup = c.usual
		if got := FindBatchCgroups(inv); !same(got.Dirs, c.want.Dirs) || !same(got.Limited, c.want.Limited) || !same(got.Mixed, c.want.Mixed) || !same(got.MixedBy, c.want.MixedBy) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func same(a, b []string) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }
