package colocation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

func TestFailsafeCPUs(t *testing.T) {
	t.Parallel()
	written := func(name, cgroup string, class workload.Class, change func(*Container)) Container {
		c := running(name, cgroup, class)
		c.CPUsWritten = true
		if change != nil {
			change(&c)
		}
		return c
	}
	f := Failsafe{
		WriteCPUs: true, SharedCPUs: cpus(0, 6), FloorCPUs: cpus(0, 2),
		Containers: []Container{
			written("web/a", "burstable", workload.LS, nil),
			written("job/a", "besteffort", workload.BE, nil),
			written("pin/a", "", workload.LSR, func(c *Container) { c.Pinned = true }),
			written("late/a", "burstable", workload.LS, func(c *Container) { c.Started = false }),
			written("vm/a", "burstable", workload.LS, func(c *Container) { c.Reachable = false }),
			written("untouched/a", "burstable", workload.LS, func(c *Container) { c.CPUsWritten = false }),
			written("unplaced/a", "burstable", workload.LS, func(c *Container) { c.Request = nil }),
			written("agent/a", "burstable", workload.System, nil),
		},
	}
	var got []string
	for _, c := range f.Plan() {
		got = append(got, fmt.Sprint(c.Object.Name, " ", c.Knob, " ", knobs.FormatValue(c.To)))
	}
	if want := []string{"ns/web/a cpuset.cpus 0-5", "ns/job/a cpuset.cpus 0-1"}; !slices.Equal(got, want) {
		t.Errorf("the plan is %q, want %q", got, want)
	}
	f.WriteCPUs = false
	if got := f.Plan(); len(got) != 0 {
		t.Errorf("cpusets that aren't Sluice's are in the plan: %v", got)
	}
}

func TestFailsafeQuotas(t *testing.T) {
	t.Parallel()
	web, job, low := running("web/a", "burstable", workload.LS), running("job/a", "besteffort", workload.BE), running("low/a", "burstable", workload.BE)
	original := quotaOf(300_000)
	quota := func(level knobs.Level, path, pod string, has knobs.CPUQuota, kept bool) QuotaSetting {
		return QuotaSetting{Object: knobs.Object{Path: path, Level: level}, Pod: pod, Value: has, Original: original, Recorded: kept}
	}
	alone := running("alone/a", "burstable", workload.BE)
	part := running("part/a", "besteffort", workload.BE)
	less := quota(knobs.PodLevel, part.PodPath, "part", Quota(50), true)
	less.Original = Quota(200)
	culprit, lone := running("culprit/a", "besteffort", workload.BE), running("lone/a", "burstable", workload.BE)
	bound := running("bound/a", "burstable", workload.BE)
	bound.Request.Batch.CPULimit = workload.Some(workload.MilliCPU(2000))
	half := Quota(500) // half of the floor of 1000, for a cgroup and a pod
	for name, c := range map[string]struct {
		set  QuotaSetting
		v1   bool
		want knobs.Value // nil if the plan leaves the value alone
	}{
		"a batch cgroup":                          {quota(knobs.ClassLevel, job.Above, "", Quota(4000), true), false, half},
		"a batch cgroup that has less":            {quota(knobs.ClassLevel, job.Above, "", Quota(100), true), false, half},
		"one without an original":                 {quota(knobs.ClassLevel, job.Above, "", Quota(4000), false), false, nil},
		"a batch pod outside":                     {quota(knobs.PodLevel, low.PodPath, "low", Quota(4000), true), false, half},
		"its container, which is throttled":       {quota(knobs.ContainerLevel, low.Path, "low", Quota(4000), true), false, original},
		"one without an original, throttled":      {quota(knobs.ContainerLevel, low.Path, "low", Quota(4000), false), false, nil},
		"throttled where nothing else bounds it":  {quota(knobs.ContainerLevel, alone.Path, "alone", Quota(4000), true), false, nil},
		"v1: its container":                       {quota(knobs.ContainerLevel, low.Path, "low", Quota(4000), false), true, half},
		"v1: its container, which has less":       {quota(knobs.ContainerLevel, low.Path, "low", Quota(100), false), true, Quota(100)},
		"v1: a container in a batch cgroup":       {quota(knobs.ContainerLevel, job.PodPath+"/a", "job", Quota(4000), true), true, half},
		"v1: a pod in a batch cgroup":             {quota(knobs.PodLevel, job.PodPath, "job", Quota(4000), true), true, half},
		"v2: a pod in a batch cgroup":             {quota(knobs.PodLevel, job.PodPath, "job", Quota(4000), true), false, nil},
		"a pod with a part":                       {quota(knobs.PodLevel, part.PodPath, "part", Quota(100), true), false, half},
		"v1: a pod with a part":                   {quota(knobs.PodLevel, part.PodPath, "part", Quota(100), true), true, half},
		"a pod with a part that had less":         {less, false, less.Original},
		"a pod with a part and no original":       {quota(knobs.PodLevel, part.PodPath, "part", Quota(100), false), false, nil},
		"a culprit in a batch cgroup":             {quota(knobs.PodLevel, culprit.PodPath, "culprit", Quota(100), true), false, half},
		"v1: a culprit in a batch cgroup":         {quota(knobs.PodLevel, culprit.PodPath, "culprit", Quota(100), true), true, half},
		"v1: a culprit's container in it":         {quota(knobs.ContainerLevel, culprit.Path, "culprit", Quota(100), true), true, half},
		"a culprit that the budget bounds":        {quota(knobs.PodLevel, low.PodPath, "low", Quota(100), true), false, half},
		"a culprit without a budget":              {quota(knobs.PodLevel, lone.PodPath, "lone", Quota(100), true), false, original},
		"v1: a culprit without a budget":          {quota(knobs.PodLevel, lone.PodPath, "lone", Quota(100), true), true, original},
		"v1: the container of one":                {quota(knobs.ContainerLevel, lone.Path, "lone", Quota(100), true), true, original},
		"a culprit with a limit of its own":       {quota(knobs.PodLevel, bound.PodPath, "bound", Quota(100), true), false, Quota(2000)},
		"v1: its container, which has one too":    {quota(knobs.ContainerLevel, bound.Path, "bound", Quota(100), true), true, Quota(2000)},
		"v2: its container, which has one too":    {quota(knobs.ContainerLevel, bound.Path, "bound", Quota(2000), true), false, nil},
		"a culprit without an original":           {quota(knobs.PodLevel, lone.PodPath, "lone", Quota(100), false), false, nil},
		"a service that was raised":               {quota(knobs.ContainerLevel, web.Path, "web", Quota(4000), true), false, original},
		"its pod":                                 {quota(knobs.PodLevel, web.PodPath, "web", Quota(4000), true), false, original},
		"a service that the loop has not touched": {quota(knobs.ContainerLevel, "/kubepods/poddb/a", "db", Quota(4000), true), false, nil},
	} {
		f := Failsafe{Containers: []Container{web, job, low, alone, culprit, lone, bound}, Floor: 1000, NestedQuotas: c.v1, InForce: NewCPUDesired(), Quotas: []QuotaSetting{c.set}}
		f.InForce.BatchCgroups[job.Above] = qos.Loop{Quota: Quota(4000)}
		f.InForce.Pods["low"] = qos.Loop{Quota: Quota(4000)}
		f.InForce.Parts["part"] = qos.Loop{Quota: Quota(100)}
		for _, uid := range []string{"culprit", "lone", "low", "bound"} {
			f.InForce.Culprits[uid] = qos.Loop{Quota: Quota(100)}
		}
		f.InForce.Containers["web/a"] = qos.Loop{Quota: Quota(4000)}
		f.InForce.Containers["alone/a"] = qos.Loop{Quota: Quota(4000)}
		f.InForce.Containers["low/a"] = qos.Loop{Quota: Quota(4000)}
		var to knobs.Value
		plan := f.Plan()
		if len(plan) == 1 {
			to = plan[0].To
		}
		if to != c.want {
			t.Errorf("%s: the plan is %v, want %v", name, plan, c.want)
		}
	}
}

func TestSortChanges(t *testing.T) {
	t.Parallel()
	at := func(path string, knob knobs.Knob) knobs.Change {
		return knobs.Change{Object: knobs.Object{Path: path}, Knob: knob}
	}
	changes := []knobs.Change{at("/b", knobs.CPUs), at("/a", knobs.Weight), at("/a", knobs.Quota)}
	SortChanges(changes)
	if changes[0] != at("/a", min(knobs.Quota, knobs.Weight)) || changes[2] != at("/b", knobs.CPUs) {
		t.Errorf("sorted: %v", changes)
	}
}

func TestFloorCPUs(t *testing.T) {
	t.Parallel()
	m := &topology.Machine{}
	if got := FloorCPUs(m, cpus(0, 4), 4); got != cpus(0, 4) {
		t.Errorf("a floor of all shared CPUs is %s", got)
	}
}
