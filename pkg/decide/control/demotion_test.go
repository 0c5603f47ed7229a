package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func newDemotion() *Demotion { return NewDemotion(DefaultConfig().Demotion, time.Second) }

// heavy returns a node with an LS pod that permits demotion and two BE pods, each above its
// request.
func heavy() *scene {
	s := newScene(16)
	for _, one := range []struct {
		name           string
		class          workload.Class
		request, usage workload.MilliCPU
		allow          workload.Actions
	}{
		{"web", workload.LS, 1000, 3000, workload.Demote},
		{"shy", workload.LS, 1000, 9000, workload.Throttle | workload.Reclaim},
		{"small", workload.BE, 1000, 2000, 0},
		{"large", workload.BE, 1000, 4000, 0},
		{"pin", workload.LSR, 2000, 2000, workload.Demote},
	} {
		s.run(one.name, one.class, one.request, 0).CPU.Usage = one.usage
		s.Pods[len(s.Pods)-1].Allow = one.allow
	}
	return s
}

func quotaIDs(quotas []Quota) (names []string) {
	for _, q := range quotas {
		names = append(names, q.ID)
	}
	slices.Sort(names)
	return names
}

func TestDemotionOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		short []Shortage
		want  []string
	}{
		"nothing is short":               {nil, nil},
		"the heaviest first":             {[]Shortage{{Pool: 0, Missing: 400}}, []string{"large"}},
		"then the next":                  {[]Shortage{{Pool: 0, Missing: 500}}, []string{"large", "small"}},
		"then the next pool, as allowed": {[]Shortage{{Pool: 0, Missing: 5000}}, []string{"large", "small", "web"}},
		"its own pool comes last":        {[]Shortage{{Pool: 1, Missing: 5000}}, []string{"large", "small", "web"}},
		"never a higher pool":            {[]Shortage{{Pool: 2, Missing: 5000}}, []string{"large", "small"}},
		"apart, only its own pool":       {[]Shortage{{Pool: 1, Missing: 5000, Apart: true}}, []string{"web"}},
		"two pools":                      {[]Shortage{{Pool: 0, Missing: 400}, {Pool: 1, Missing: 100}}, []string{"large"}},
	} {
		s := heavy()
		quotas, _ := newDemotion().Step(s.second(), test.short)
		if got := quotaIDs(quotas); !slices.Equal(got, test.want) {
			t.Errorf("%s: demoted %v, want %v", name, got, test.want)
		}
	}
}

func TestDemotionCutsAndRestores(t *testing.T) {
	t.Parallel()
	s := heavy()
	large := s.at("large")
	d := newDemotion()
	step := func(seconds int, short ...Shortage) (quota workload.MilliCPU, decisions []Decision) {
		for range seconds {
			var quotas []Quota
			quotas, decisions = d.Step(s.second(), short)
			if quota = quotaOf(quotas, "large"); quota > 0 {
				large.CPU.Usage = min(large.CPU.Usage, quota)
			}
		}
		return quota, decisions
	}
	quota, decisions := step(1, Shortage{Pool: 0, Missing: 100})
	if quota != 3600 || len(decisions) != 1 || decisions[0].From != "4 CPUs in use" || decisions[0].To != "3.6 CPUs" ||
		decisions[0].Why != "pool critical lacks 0.1 CPUs and finds none to take; this container of pool batch uses 4, its request is 1" {
		t.Errorf("the first cut: %s, %+v", quota, decisions)
	}
	if quota, decisions = step(1, Shortage{Pool: 0, Missing: 100}); quota != 3240 || decisions[0].From != "3.6 CPUs" {
		t.Errorf("the second cut: %s, %+v", quota, decisions)
	}
	// What a demotion frees counts before it is measured.
	if quotas, decisions := d.Step(s.blind(), []Shortage{{Pool: 0, Missing: 100}}); quotaOf(quotas, "large") != 3240 || len(decisions) != 0 && decisions[0].Object == "ns/large/main" {
		t.Errorf("without a new look: %v, %v", quotas, decisions)
	}
	if quota, _ = step(60, Shortage{Pool: 0, Missing: 5000}); quota != 1000 {
		t.Errorf("cut to %s, want its request", quota)
	}
	if quota, decisions = step(2); quota != 1000 || decisions != nil {
		t.Errorf("after two calm steps: %s, %v", quota, decisions)
	}
	if quota, decisions = step(1); quota != 1100 || len(decisions) == 0 || decisions[0].Action != "restore" {
		t.Errorf("after three: %s, %v", quota, decisions)
	}
	if quota, _ = step(20); quota != 0 {
		t.Errorf("restored to %s, want no quota", quota)
	}
}

func TestDemotionGoesOnWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	s := heavy()
	d := newDemotion()
	short := []Shortage{{Pool: 0, Missing: 100}}
	d.Step(s.second(), short)
	if quotas, _ := d.Step(s.pass(-time.Hour), short); quotaOf(quotas, "large") != 3240 {
		t.Errorf("quotas %v, want a second cut", quotas)
	}
}

func TestDemotionLetsGo(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *scene, c *Container){
		"may not be demoted any more": func(_ *scene, c *Container) { c.Class = workload.LSR },
		"a larger request":            func(_ *scene, c *Container) { c.Request = 3900 },
		"a smaller limit":             func(_ *scene, c *Container) { c.Limit = 500 },
		"gone":                        func(s *scene, _ *Container) { s.Pods, s.Containers = s.Pods[:3], s.Containers[:3] },
	} {
		s := heavy()
		d := newDemotion()
		d.Step(s.second(), []Shortage{{Pool: 0, Missing: 400}})
		change(s, s.at("large"))
		if quotas, _ := d.Step(s.second(), nil); quotaOf(quotas, "large") != 0 {
			t.Errorf("%s: %v", name, quotas)
		}
	}
}

func TestDemotionOfWhatHasALimit(t *testing.T) {
	t.Parallel()
	s := heavy()
	s.at("large").Limit, s.at("large").Request = 4000, 0
	d := newDemotion()
	if quotas, _ := d.Step(s.second(), []Shortage{{Pool: 0, Missing: 100}}); quotaOf(quotas, "large") != 3600 {
		t.Errorf("quotas %v, want 3.6", quotas)
	}
	for range 100 {
		s.at("large").CPU.Usage = 50
		d.Step(s.second(), []Shortage{{Pool: 0, Missing: 5000}})
	}
	if quotas, _ := d.Step(s.second(), []Shortage{{Pool: 0, Missing: 5000}}); quotaOf(quotas, "large") != 3600 {
		t.Errorf("quotas %v: one that uses less than the least is left alone", quotas)
	}
	if p := (&DemotionConfig{StepPercent: 100}).Check(); len(p) != 2 {
		t.Errorf("problems %v", p)
	}
	shipped := DefaultConfig().Demotion
	if p := shipped.Check(); len(p) != 0 {
		t.Errorf("problems of the shipped config: %v", p)
	}
}

// A demoted container keeps at least its request. Containers that don't permit demotion, and those
// of pools above the short one, keep everything. When load is low again, all limits are restored.
func TestDemotionProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(64)
		for i := range rapid.IntRange(1, 8).Draw(t, "containers") {
			c := s.run(string(rune('a'+i)), rapid.SampledFrom([]workload.Class{workload.LS, workload.BE, workload.LSR}).Draw(t, "class"),
				workload.MilliCPU(rapid.IntRange(0, 3000).Draw(t, "request")), 0)
			s.Pods[i].Allow = workload.Actions(rapid.IntRange(0, 15).Draw(t, "allow"))
			if c.Pool >= 0 {
				c.Pool = rapid.IntRange(0, 2).Draw(t, "pool")
			}
		}
		d := newDemotion()
		highest := 2
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			for i := range s.Containers {
				s.Containers[i].CPU.Usage = workload.MilliCPU(rapid.IntRange(0, 8000).Draw(t, "usage"))
			}
			var short []Shortage
			if rapid.Bool().Draw(t, "short") {
				short = append(short, Shortage{Pool: rapid.IntRange(0, 2).Draw(t, "which"), Missing: workload.MilliCPU(rapid.IntRange(1, 9000).Draw(t, "missing"))})
				short[0].Crowded = rapid.Bool().Draw(t, "crowded")
				highest = min(highest, short[0].Pool)
			}
			quotas, _ := d.Step(s.second(), short)
			for _, q := range quotas {
				c := s.at(q.ID)
				switch {
				case q.CPU < max(c.Request, leastQuota):
					t.Fatalf("%s has %s, its request is %s", q.ID, q.CPU, c.Request)
				case c.Class == workload.LSR, c.Class == workload.LS && s.Pods[c.Pod].Allow&workload.Demote == 0:
					t.Fatalf("%s may not be demoted", q.ID)
				case c.Pool < highest:
					t.Fatalf("%s of pool %d is demoted for pool %d", q.ID, c.Pool, highest)
				case q.Why == "":
					t.Fatalf("%s has no reason", q.ID)
				}
			}
		}
		var quotas []Quota
		for range 120 {
			quotas, _ = d.Step(s.second(), nil)
		}
		if len(quotas) != 0 {
			t.Fatalf("still demoted after two calm minutes: %v", quotas)
		}
	})
}

// While the load stays high, the controller tries to return limits at growing intervals.
func TestDemotionSettles(t *testing.T) {
	t.Parallel()
	s := heavy()
	large := s.at("large")
	d := newDemotion()
	decided, short := 0, []Shortage(nil)
	for range 3600 {
		quotas, decisions := d.Step(s.second(), short)
		decided += len(decisions)
		large.CPU.Usage = 4000
		if quota := quotaOf(quotas, "large"); quota > 0 {
			large.CPU.Usage = min(large.CPU.Usage, quota)
		}
		short = nil
		if missing := large.CPU.Usage - 2500; missing > 0 {
			short = []Shortage{{Pool: 0, Missing: missing}}
		}
	}
	t.Logf("%d decisions in an hour", decided)
	if decided > 400 {
		t.Errorf("%d decisions in an hour of constant load", decided)
	}
}

func TestDemotionAllocs(t *testing.T) {
	s := heavy()
	d := newDemotion()
	stepsWithout(t, s, func(v *View) { d.Step(v, nil) })
	s.at("large").CPU.Usage, s.at("small").CPU.Usage, s.at("web").CPU.Usage = 900, 900, 900
	short := []Shortage{{Pool: 0, Missing: 5000}}
	stepsWithout(t, s, func(v *View) { d.Step(v, short) })
}

func BenchmarkDemotion(b *testing.B) {
	d := newDemotion()
	short := []Shortage{{Pool: 0, Missing: 20000}}
	benchSteps(b, func(v *View) { d.Step(v, short) })
}

func TestNoisy(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	s.run("batch", workload.BE, 0, 0).RunDelay.Waiting = 50
	c := s.run("web", workload.LS, 2000, 0)
	c.RunDelay.Waiting = 1.1
	n := NewNoisy(time.Second)
	step := func(seconds int) (advice []Advice, told int) {
		for range seconds {
			var decisions []Decision
			advice, decisions = n.Step(s.second())
			told += len(decisions)
		}
		return advice, told
	}
	if advice, told := step(19); len(advice) != 0 || told != 0 {
		t.Errorf("noisy after two measurements: %v", advice)
	}
	if advice, told := step(1); told != 1 || len(advice) != 1 || advice[0].Object != "ns/web" {
		t.Errorf("after three: %v, told %d times", advice, told)
	}
	c.RunDelay.Waiting = 0.9
	if advice, told := step(119); len(advice) != 1 || told != 0 {
		t.Errorf("calm for 119 s: %v, told %d times", advice, told)
	}
	if advice, told := step(1); len(advice) != 0 || told != 1 {
		t.Errorf("calm for 120 s: %v, told %d times", advice, told)
	}
	c.RunDelay.Waiting, c.Limit = 3.9, 4000 // of a limit of 4; the demand is 5.9 of 6
	if advice, _ := step(9); len(advice) != 0 {
		t.Errorf("within 1.5 of its limit: %v", advice)
	}
	s.at("web").RunDelay.Waiting = 9
	for range 9 {
		if advice, _ := n.Step(s.blind()); len(advice) != 0 {
			t.Errorf("without a new look: %v", advice)
		}
	}
}

// TestNoisyRemedy checks that a noisy pod is advised what helps on its node.
func TestNoisyRemedy(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]func(*View){
		"a pool of its own (pool.sluice.dev) would keep it apart": func(v *View) { v.ExclusivePools, v.Pods[0].Allow = true, workload.Demote },
		"control.culprit can lower its CPU limit":                 func(v *View) { v.Pods[0].Allow = workload.Demote },
		"a pool of its own would not, because the pools share":    func(v *View) { v.Pods[0].Allow = workload.Throttle },
	} {
		s := newScene(16)
		s.run("web", workload.LS, 2000, 0).RunDelay.Waiting = 9
		set(&s.View)
		n := NewNoisy(time.Second)
		var advice []Advice
		for range 40 {
			advice, _ = n.Step(s.second())
		}
		if len(advice) != 1 || !strings.Contains(advice[0].Text, want) {
			t.Errorf("%v, want %q", advice, want)
		}
	}
}

func TestNoisyAllocs(t *testing.T) {
	n := NewNoisy(time.Second)
	stepsWithout(t, fiveHundred(), func(v *View) { n.Step(v) })
}

func BenchmarkNoisy(b *testing.B) {
	n := NewNoisy(time.Second)
	benchSteps(b, func(v *View) { n.Step(v) })
}
