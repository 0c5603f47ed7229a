package control

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Evictions and demotions have a one-word cause for counting.
func TestCauses(t *testing.T) {
	t.Parallel()
	s := newStage(29*gib, 20*gib, actor{uid: "be", class: workload.BE, anon: 10 << 10, cache: 10 << 10})
	_, request, _ := evictsAfter(newMemory(), s, nil)
	if request.Cause != "node-memory" {
		t.Errorf("the node's memory is counted as %q", request.Cause)
	}
	e := newEviction()
	e.Step(&s.View, 0, []EvictRequest{request})
	if _, decisions := e.Step(s.tick(), 0, []EvictRequest{request}); len(decisions) != 1 || decisions[0].Cause != request.Cause {
		t.Errorf("%+v", decisions)
	}
	s.Batch = BatchState{Evict: true, Why: "a window"}
	e = newEviction()
	e.Step(&s.View, 0, nil)
	if _, decisions := e.Step(s.tick(), 0, nil); len(decisions) != 1 || decisions[0].Cause != "window" {
		t.Errorf("%+v", decisions)
	}
	node := heavy()
	_, decisions := newDemotion().Step(node.second(), []Shortage{{Pool: 0, Missing: 400}})
	if len(decisions) != 1 || decisions[0].Cause != node.Pools[0].Name {
		t.Errorf("%+v", decisions)
	}
}

// The counters of this run begin at 0, whatever an earlier run saved.
func TestBenefitOfThisRun(t *testing.T) {
	t.Parallel()
	b := NewBenefit(time.Second, BenefitCounts{CPUHours: 5, GiBHours: 7})
	s := newStage(60*gib, 40*gib, actor{uid: "be", class: workload.BE, anon: 1 << 10, cpu: 3600_000})
	if r := b.Report(s.Now); r.CPUHours != 5 || r.RunCPUHours != 0 || r.RunGiBHours != 0 {
		t.Errorf("%+v", r)
	}
	b.Step(&s.View, Given{})
	b.Step(s.tick(), Given{})
	if r := b.Report(s.Now); r.RunCPUHours <= 0 || math.Abs(r.CPUHours-5-r.RunCPUHours) > 1e-9 || math.Abs(r.GiBHours-7-r.RunGiBHours) > 1e-9 {
		t.Errorf("%+v", r)
	}
}
