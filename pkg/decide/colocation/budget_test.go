package colocation

import (
	"maps"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestDivideBudget(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/besteffort"
	job, low, other := running("job/a", "besteffort", workload.BE), running("low/a", "burstable", workload.BE), running("other/a", "burstable", workload.BE)
	low.Request.Milli, other.Request.Milli = 3000, 1000
	late := running("late/a", "burstable", workload.BE)
	late.Started = false
	mixed := running("low/b", "burstable", workload.LS)
	for name, c := range map[string]struct {
		containers []Container
		budget     Budget
		cgroups    map[string]workload.MilliCPU
		pods       map[string]workload.MilliCPU
	}{
		"nobody":                                {nil, Budget{Amount: 4000}, nil, nil},
		"a batch cgroup alone":                  {[]Container{job}, Budget{Amount: 4000}, map[string]workload.MilliCPU{dir: 4000}, nil},
		"pods by weight":                        {[]Container{low, other}, Budget{Amount: 1000}, nil, map[string]workload.MilliCPU{"low": 500, "other": 500}},
		"a floor above the budget":              {[]Container{low, other}, Budget{Amount: 100, Floor: 800}, nil, map[string]workload.MilliCPU{"low": 600, "other": 200}},
		"the least that a quota is made for":    {[]Container{low, other}, Budget{Amount: 1}, nil, map[string]workload.MilliCPU{"low": LeastQuota, "other": LeastQuota}},
		"a pod that isn't batch as a whole":     {[]Container{low, mixed}, Budget{Amount: 1000}, nil, nil},
		"a pod that is being resized":           {[]Container{low, other}, Budget{Amount: 1000, Resizing: map[string]bool{"low": true}}, nil, map[string]workload.MilliCPU{"other": 1000}},
		"v2: a container that is being created": {[]Container{late}, Budget{Amount: 1000, Now: start}, nil, map[string]workload.MilliCPU{"late": 1000}},
		"v1: a container that is being created": {[]Container{late}, Budget{Amount: 1000, Now: start, NestedQuotas: true}, nil, nil},
		"v1: one that never started":            {[]Container{late}, Budget{Amount: 1000, Now: start.Add(time.Minute), NestedQuotas: true}, nil, map[string]workload.MilliCPU{"late": 1000}},
	} {
		var v NodeView
		v.SetInventory(inventory(c.containers...))
		want := NewCPUDesired()
		want.Pods["gone"] = qos.Loop{Quota: Quota(100), Why: BudgetWhy}
		var d BudgetDivider
		d.Divide(&v, &c.budget, NewCPUDesired(), want)
		if got := amounts(want.BatchCgroups); !maps.Equal(got, c.cgroups) {
			t.Errorf("%s: cgroups get %v, want %v", name, got, c.cgroups)
		}
		if got := amounts(want.Pods); !maps.Equal(got, c.pods) {
			t.Errorf("%s: pods get %v, want %v", name, got, c.pods)
		}
	}
}

// A claim that uses less than its share by weight keeps what it uses, and the others get the rest.
func TestDivideBudgetByDemand(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(inventory(running("busy/a", "burstable", workload.BE), running("idle/a", "burstable", workload.BE)))
	v.Container("busy/a").CPU.Usage = 4000
	want := NewCPUDesired()
	var d BudgetDivider
	d.Divide(&v, &Budget{Amount: 4000}, NewCPUDesired(), want)
	if got := amounts(want.Pods); got["busy"] != 2000 || got["idle"] != 2000 {
		t.Errorf("both may grow: %v", got)
	}
	v.Container("idle/a").Request = 8000 // its weight alone would give it the most
	d.Divide(&v, &Budget{Amount: 4000}, NewCPUDesired(), want)
	if got := amounts(want.Pods); got["busy"] != 2000 || got["idle"] != 2000 {
		t.Errorf("idle gets no more than it can use at once: %v", got)
	}
}

func TestPodsKeepTheirQuotas(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(inventory(running("low/a", "burstable", workload.BE)))
	for had, want := range map[workload.MilliCPU]workload.MilliCPU{0: 1000, 900: 1000, 960: 960, 1000: 1000, 1001: 1000} {
		have, next := NewCPUDesired(), NewCPUDesired()
		if had > 0 {
			have.Pods["low"] = qos.Loop{Quota: Quota(had), Why: BudgetWhy}
		}
		var d BudgetDivider
		d.Divide(&v, &Budget{Amount: 1000}, have, next)
		if got := amounts(next.Pods)["low"]; got != want {
			t.Errorf("a pod with %d of a new budget of 1000 gets %d, want %d", had, got, want)
		}
	}
}

func TestDesired(t *testing.T) {
	t.Parallel()
	loop := func(cpu workload.MilliCPU, why string) qos.Loop { return qos.Loop{Quota: Quota(cpu), Why: why} }
	d := NewCPUDesired()
	d.WantQuota("web/a", loop(2000, "burst"))
	d.WantQuota("web/a", loop(500, "throttle"))
	d.WantQuota("web/a", loop(1000, "rule"))
	if got := d.Containers["web/a"]; got != loop(500, "throttle") {
		t.Errorf("of three quotas the container gets %v, want the lowest", got)
	}
	twin := d.Clone()
	if !d.Equal(twin) {
		t.Error("a copy wants something else")
	}
	for name, change := range map[string]func(){
		"containers": func() { twin.Containers["x"] = loop(1, "") }, "pods": func() { twin.Pods["x"] = loop(1, "") },
		"cgroups": func() { twin.BatchCgroups["x"] = loop(1, "") }, "weights": func() { twin.LSWeights["x"] = 200 },
		"culprits": func() { twin.Culprits["x"] = loop(1, "") },
		"parts":    func() { twin.Parts["x"] = loop(1, "") },
	} {
		twin = d.Clone()
		if change(); d.Equal(twin) {
			t.Errorf("a change of the %s is not seen, or changes the original", name)
		}
	}
	twin.ForgetBatchQuotas()
	if len(twin.Pods)+len(twin.BatchCgroups)+len(twin.Parts) > 0 || len(twin.Containers) == 0 {
		t.Errorf("only the quotas that bound batch work are forgotten: %+v", twin)
	}
}

// TestPodQuota checks that of the quotas for a pod the lowest counts.
func TestPodQuota(t *testing.T) {
	t.Parallel()
	loop := func(cpu workload.MilliCPU) qos.Loop { return qos.Loop{Quota: Quota(cpu)} }
	d := NewCPUDesired()
	d.Pods["pod"], d.Parts["part"], d.Culprits["culprit"] = loop(2000), loop(2000), loop(500)
	for uid, want := range map[string]workload.MilliCPU{"pod": 2000, "part": 2000, "culprit": 500, "none": 0} {
		if got := d.PodQuota(uid); got != (map[bool]qos.Loop{true: loop(want)}[want > 0]) {
			t.Errorf("pod %s has the quota %v, want %d", uid, got, want)
		}
	}
	for _, uid := range []string{"pod", "part"} {
		if d.Culprits[uid] = loop(500); d.PodQuota(uid) != loop(500) {
			t.Errorf("%s: a culprit has %v", uid, d.PodQuota(uid))
		}
		if d.Culprits[uid] = loop(3000); d.PodQuota(uid) != loop(2000) {
			t.Errorf("%s: a culprit's limit raises the quota of the budget to %v", uid, d.PodQuota(uid))
		}
	}
	if d.ForgetBatchQuotas(); len(d.Culprits) == 0 {
		t.Error("the division of the budget forgets who makes services wait")
	}
}

func amounts(quotas map[string]qos.Loop) map[string]workload.MilliCPU {
	if len(quotas) == 0 {
		return nil
	}
	all := map[string]workload.MilliCPU{}
	for name, q := range quotas {
		all[name] = workload.MilliCPU(q.Quota.Milli())
	}
	return all
}
