package control

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

var shippedLaw = []PoolConfig{{Name: "critical", Low: 30, High: 50}, {Name: "online", Low: 45, High: 60}, {Name: "batch", Low: 50, High: 80}}

// measurePools computes the usage of pools that share their CPUs from their containers.
func (s *scene) measurePools() {
	for i := range s.Pools {
		s.Pools[i].Usage, s.Pools[i].At, s.Pools[i].Empty = 0, s.Now, true
	}
	for i := range s.Containers {
		if c := &s.Containers[i]; c.Pool >= 0 {
			s.Pools[c.Pool].Usage += c.CPU.Usage
			s.Pools[c.Pool].Empty = false
		}
	}
}

func TestCrowded(t *testing.T) {
	t.Parallel()
	type uses [3]workload.MilliCPU
	for name, test := range map[string]struct {
		uses uses
		age  time.Duration
		want []Shortage
	}{
		"in the band":                     {uses{2000, 8000, 200}, 0, nil},
		"one pool over its band":          {uses{1000, 12000, 200}, 0, []Shortage{{Pool: 1, Missing: 5000, Crowded: true}}},
		"the other one too":               {uses{2500, 11400, 200}, 0, []Shortage{{Pool: 0, Missing: 400, Crowded: true}, {Pool: 1, Missing: 5500, Crowded: true}}},
		"batch work has something left":   {uses{1000, 12000, 2000}, 0, nil},
		"batch work a bit over its floor": {uses{1000, 12000, 215}, 0, []Shortage{{Pool: 1, Missing: 5000, Crowded: true}}},
		"nobody has looked for long":      {uses{1000, 12000, 200}, time.Minute, nil},
	} {
		s := newScene(16)
		for i, class := range []workload.Class{workload.LS, workload.LS, workload.BE} {
			c := s.run(string(rune('a'+i)), class, 1000, 0)
			c.Pool, c.CPU.Usage = i, test.uses[i]
		}
		s.second()
		s.measurePools()
		s.Now = s.Now.Add(test.age)
		if got := Crowded(nil, &s.View, shippedLaw, 200, time.Second); !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// TestDemotionWhereAllShare checks services that compete because they share their CPUs with all
// others. The one that permits demotion and is furthest above its request loses a tenth per second
// until it is at its request. Batch work is not demoted, nor does it get what the demoted one
// loses. After the rush, all limits are restored.
func TestDemotionWhereAllShare(t *testing.T) {
	t.Parallel()
	const floor = 800
	s := newScene(16)
	s.Capacity = 16000
	for _, one := range []struct {
		name           string
		class          workload.Class
		request, usage workload.MilliCPU
		allow          workload.Actions
	}{{"web", workload.LS, 6000, 6500, 0}, {"report", workload.LS, 2000, 6000, workload.Demote}, {"job", workload.BE, 0, floor, 0}} {
		s.run(one.name, one.class, one.request, 0).CPU.Usage = one.usage
		s.Pods[len(s.Pods)-1].Allow = one.allow
	}
	report, d, b := s.at("report"), newDemotion(), NewBatch(BatchConfig{FloorPercent: 5, GrowPercent: 10}, time.Second)
	demand := report.CPU.Usage
	step := func() (quotas []Quota, budget Budget) {
		s.second()
		s.measurePools()
		s.Node.CPU.Usage = s.Pools[1].Usage + s.Pools[2].Usage
		budget, _ = b.Step(&s.View)
		quotas, _ = d.Step(&s.View, Crowded(nil, &s.View, shippedLaw, floor, time.Second))
		s.Demoted = d.Taken(&s.View)
		report.CPU.Usage = demand
		if quota := quotaOf(quotas, "report"); quota > 0 {
			report.CPU.Usage = min(demand, quota)
		}
		return quotas, budget
	}
	var quotas []Quota
	for second := range 60 {
		var budget Budget
		if quotas, budget = step(); budget.Unlimited || budget.Amount > floor {
			t.Fatalf("second %d: batch work is given %s of what a service lost", second, budget.Amount)
		}
		if got := quotaIDs(quotas); !slices.Equal(got, []string{"report"}) {
			t.Fatalf("second %d: demoted %v", second, got)
		}
	}
	// web uses 6.5 CPUs and report 3.1, together 60 % of 16.
	if q := quotaOf(quotas, "report"); q < 2000 || q > 3200 {
		t.Errorf("report is left with %s CPUs", q)
	}
	s.Pods[report.Pod].Squeezed, report.CPU.Usage = true, 1000 // the pod's limit as a culprit is lower
	if taken := d.Taken(&s.View); taken == 0 {
		t.Error("with a lower limit of its pod, batch work gets what demotion has taken")
	}
	s.Pods[report.Pod].Squeezed, demand = false, 1000
	for range 120 {
		quotas, _ = step()
	}
	if len(quotas) != 0 || s.Demoted != 0 {
		t.Errorf("after the rush %v, and %s are kept from batch work", quotas, s.Demoted)
	}
}
