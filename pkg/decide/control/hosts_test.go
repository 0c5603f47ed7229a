package control

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestCheckHostApplications(t *testing.T) {
	t.Parallel()
	fine := []HostApplication{
		{Name: "yarn", Cgroup: "/hadoop-yarn", OfferPercent: 60, File: "/run/offers/yarn.json"},
		{Name: "backup", Cgroup: "/system.slice/backup.service", OfferPercent: 40},
		{Name: "yarn-2", Cgroup: "/hadoop-yarn-2"},
	}
	if found := CheckHostApplications(fine); len(found) > 0 {
		t.Errorf("%+v", found)
	}
	for want, wrong := range map[string]HostApplication{
		`[3].name: "Yarn": must be 1 to 63 small letters`:                {Name: "Yarn", Cgroup: "/x"},
		`[3].name: backup is there twice`:                                {Name: "backup", Cgroup: "/x"},
		`[3].cgroup: "": must be the path`:                               {Name: "x"},
		`[3].cgroup: "x": must be the path`:                              {Name: "x", Cgroup: "x"},
		`[3].cgroup: "/x/": must be the path`:                            {Name: "x", Cgroup: "/x/"},
		`[3].cgroup: "/x/../y": must be the path`:                        {Name: "x", Cgroup: "/x/../y"},
		`[3].cgroup: / holds other services of the node too`:             {Name: "x", Cgroup: "/"},
		`[3].cgroup: /system.slice holds other services of the node too`: {Name: "x", Cgroup: "/system.slice"},
		`[3].cgroup: "/kubepods.slice" is the kubelet's`:                 {Name: "x", Cgroup: "/kubepods.slice"},
		`[3].cgroup: "/hadoop-yarn/a" and the cgroup of yarn`:            {Name: "x", Cgroup: "/hadoop-yarn/a"},
		`[3].offerPercent: 101: must be 0 to 100`:                        {Name: "x", Cgroup: "/x", OfferPercent: 101},
		`[3].offerPercent: -1: must be 0 to 100`:                         {Name: "x", Cgroup: "/x", OfferPercent: -1},
		`: the parts of the offer (offerPercent) add up to 101 percent`:  {Name: "x", Cgroup: "/x", OfferPercent: 1},
		`[3].file: "run/x": must be the absolute path`:                   {Name: "x", Cgroup: "/x", File: "run/x"},
		`[3].file: "/run/offers/yarn.json" is the file of yarn too`:      {Name: "x", Cgroup: "/x", File: "/run/offers/yarn.json"},
	} {
		found := CheckHostApplications(append(fine, wrong))
		if len(found) == 0 || !strings.HasPrefix(found[0].Key+": "+found[0].Text, want) {
			t.Errorf("want %s, got %+v", want, found)
		}
	}
}

// The use of a host application is batch work's: the budget does not give way to it, whether pods are
// measured as a whole or not.
func TestBudgetBesideHostApplication(t *testing.T) {
	t.Parallel()
	for _, exact := range []bool{true, false} {
		budget := func(host workload.MilliCPU) workload.MilliCPU {
			b := NewBatch(BatchConfig{ThresholdPercent: 65, GrowPercent: 100}, time.Second)
			v := &View{Now: time.Unix(1e9, 0), Capacity: 10000, Allocatable: 10000, Shared: 10000}
			for range 40 {
				v.Now = v.Now.Add(100 * time.Millisecond)
				v.Node.CPU = observe.NodeCPU{At: v.Now, Usage: 3000 + host} // 2 of pods, of which 1 is batch, and 1 of the system
				v.HostApplications = []HostUse{{HostApplication: &HostApplication{Name: "yarn"}, CPU: Use{At: v.Now, Usage: host}}}
				v.Containers = []Container{
					{Container: observe.Container{CPU: observe.ContainerCPU{At: v.Now, Usage: 1000}}, Class: workload.LS},
					{Container: observe.Container{CPU: observe.ContainerCPU{At: v.Now, Usage: 1000}}, Class: workload.BE},
				}
				if exact {
					v.BatchUse, v.PodsUse = Use{v.Now, 1000}, Use{v.Now, 2000}
				}
				b.Step(v)
			}
			got, _ := b.Step(v)
			return got.Amount
		}
		without, with := budget(0), budget(4000)
		if without < 4490 || without > 4510 || with < without-10 || with > without+10 {
			t.Errorf("exact %v: the budget is %v without a host application, and %v beside one that uses 4 CPUs", exact, without, with)
		}
	}
}

func TestLeftToBatch(t *testing.T) {
	t.Parallel()
	for want, v := range map[workload.MilliCPU]View{
		4000: {},
		2000: {Share: BatchShare{Percent: 50}},
		1200: {Batch: BatchState{Squeeze: true, Percent: 30}},
		600:  {Batch: BatchState{Squeeze: true, Percent: 30}, Share: BatchShare{Percent: 50}},
		0:    {Batch: BatchState{Squeeze: true}},
	} {
		if got := v.LeftToBatch(4000); got != want {
			t.Errorf("%+v, %+v leave %d of 4000, want %d", v.Batch, v.Share, got, want)
		}
	}
}
