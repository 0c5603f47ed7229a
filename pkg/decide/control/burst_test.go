package control

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func newBurst() *Burst { return NewBurst(DefaultConfig().Burst, time.Second) }

// The numbers are those of the table on CPU burst in docs/control.md: 16 cores, node usage 10, LSR
// request 8.
func TestShareLoad(t *testing.T) {
	t.Parallel()
	for lsr, want := range map[workload.MilliCPU]string{7000: "idle", 6250: "cooling", 5000: "overload"} {
		s := newScene(16)
		s.run("pin", workload.LSR, 8000, 8000).CPU.Usage = lsr
		s.Node.CPU.Usage = 10000
		load := shareLoad(s.second(), time.Second) * 100
		got := "idle"
		cfg := DefaultConfig().Burst
		if load > float64(cfg.CoolingPercent) {
			got = "cooling"
		}
		if load > float64(cfg.OverloadPercent) {
			got = "overload"
		}
		if got != want {
			t.Errorf("LSR uses %s: a load of %.1f %% is %s, want %s", lsr, load, got, want)
		}
	}
}

func TestShareLoadTakesNothingUnknownForIdle(t *testing.T) {
	t.Parallel()
	s := newScene(10)
	s.run("batch", workload.BE, 0, 0).CPU.Usage = 8000
	s.Node.CPU.Usage = 9000
	v := s.second()
	if got := shareLoad(v, time.Second); got != 0.1 {
		t.Errorf("load %v, want 0.1", got)
	}
	s.at("batch").CPU.At = time.Time{}
	if got := shareLoad(v, time.Second); got != 0.9 {
		t.Errorf("load with BE unknown %v, want 0.9", got)
	}
	s.run("pin", workload.LSE, 10000, 0)
	if got := shareLoad(v, time.Second); got != 1 {
		t.Errorf("load of no CPUs %v, want 1", got)
	}
}

// quotaOf returns a container's quota, or 0 if it has its limit.
func quotaOf(quotas []Quota, id string) workload.MilliCPU {
	for _, q := range quotas {
		if q.ID == id {
			return q.CPU
		}
	}
	return 0
}

// throttled returns a node of 16 CPUs with an LS container that is throttled at its limit.
func throttled(limit workload.MilliCPU) (*scene, *Container) {
	s := newScene(16)
	c := s.run("web", workload.LS, limit/4, limit)
	c.Burst.Auto = true
	c.CPU.Usage, c.CPU.Periods, c.CPU.Throttled = limit/4, 10, 3
	s.Node.CPU.Usage = 4000
	return s, c
}

func TestBurst(t *testing.T) {
	t.Parallel()
	type step struct {
		node      workload.MilliCPU
		throttled int64
		blind     bool
		seconds   int
		want      workload.MilliCPU
	}
	for name, test := range map[string]struct {
		set   func(*Container)
		steps []step
	}{
		"raised while it is throttled, up to 300 %": {steps: []step{
			{4000, 3, false, 1, 1200}, {4000, 3, false, 1, 1440}, {4000, 3, false, 3, 2487}, {4000, 3, false, 2, 3000}, {4000, 3, false, 9, 3000},
		}},
		"held while the CPUs cool, by the mean of 5 s": {steps: []step{
			{4000, 3, false, 1, 1200}, {7600, 3, false, 2, 1728}, {7600, 3, false, 3, 2487}, {7600, 3, false, 9, 2487},
		}},
		"down to the limit in overload": {steps: []step{
			{4000, 3, false, 5, 2487}, {16000, 3, false, 2, 2387}, {16000, 3, false, 1, 1909}, {16000, 3, false, 2, 1221}, {16000, 3, false, 2, 0},
		}},
		"walks back after a minute without": {steps: []step{
			{4000, 3, false, 2, 1440}, {4000, 0, false, 59, 1440}, {4000, 0, false, 1, 1152}, {4000, 0, false, 1, 0}, {4000, 3, false, 1, 1200},
		}},
		"a throttled period begins the minute anew": {steps: []step{
			{4000, 3, false, 2, 1440}, {4000, 0, false, 59, 1440}, {7600, 1, false, 6, 2984}, {7600, 0, false, 59, 2984},
		}},
		"nothing seen: held, then walks back": {steps: []step{
			{4000, 3, false, 2, 1440}, {0, 0, true, 58, 1440}, {0, 0, true, 2, 1152}, {0, 0, true, 1, 0},
		}},
		"its own maximum":            {func(c *Container) { c.Burst.QuotaPercent = 130 }, []step{{4000, 3, false, 9, 1300}}},
		"a maximum that is no raise": {func(c *Container) { c.Burst.QuotaPercent = 50 }, []step{{4000, 3, false, 9, 0}}},
		"not asked for":              {func(c *Container) { c.Burst = workload.Burst{Percent: 100} }, []step{{4000, 3, false, 9, 0}}},
		"beside a static burst":      {func(c *Container) { c.Burst.Percent = 100 }, []step{{4000, 3, false, 1, 1200}}},
		"no limit":                   {func(c *Container) { c.Limit = 0 }, []step{{4000, 3, false, 9, 0}}},
		"BE":                         {func(c *Container) { c.Class = workload.BE }, []step{{4000, 3, false, 9, 0}}},
		"for two seconds at most, at twice the limit": {func(c *Container) { c.Burst.QuotaPercent, c.Burst.QuotaPeriod, c.CPU.Usage = 200, 2*time.Second, 2000 }, []step{
			// The bucket holds 200 and starts full; the first step measures no time.
			{4000, 3, false, 1, 1200}, {4000, 3, false, 1, 1440}, {4000, 3, false, 1, 1152}, {4000, 3, false, 1, 0}, {4000, 3, false, 9, 0},
		}},
	} {
		s, c := throttled(1000)
		if test.set != nil {
			test.set(c)
		}
		b := newBurst()
		for i, step := range test.steps {
			s.Node.CPU.Usage, c.CPU.Throttled = step.node, step.throttled
			var quotas []Quota
			for range step.seconds {
				if step.blind {
					quotas, _ = b.Step(s.blind())
				} else {
					quotas, _ = b.Step(s.second())
				}
			}
			if got := quotaOf(quotas, "web"); got != step.want {
				t.Errorf("%s: after step %d the quota is %s, want %s", name, i, got, step.want)
			}
		}
	}
}

// After a resize, bursting starts at the new limit; what was learned of the old limit is dropped.
func TestBurstAfterAResize(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit  workload.MilliCPU
		action string // of the step in which the resize is noticed
		next   workload.MilliCPU
	}{
		"lower":               {500, "lower", 600},
		"higher":              {2000, "lower", 2400},
		"above what it was":   {4000, "", 4800},
		"just what it was":    {2487, "", 2984},
		"the same: no resize": {1000, "raise", 3000},
	} {
		s, c := throttled(1000)
		b := newBurst()
		for range 5 {
			b.Step(s.second())
		}
		c.Limit = test.limit
		quotas, decisions := b.Step(s.second())
		action := ""
		for _, d := range decisions {
			action += d.Action
		}
		if action != test.action || test.limit != 1000 && len(quotas) > 0 {
			t.Errorf("%s: quotas %v, decisions %+v", name, quotas, decisions)
		}
		if quotas, _ = b.Step(s.second()); quotaOf(quotas, "web") != test.next {
			t.Errorf("%s: then %v, want %s", name, quotas, test.next)
		}
	}
}

func TestBurstForAll(t *testing.T) {
	t.Parallel()
	s, c := throttled(1000)
	c.Burst = workload.Burst{}
	cfg := DefaultConfig().Burst
	cfg.All = true
	if quotas, _ := NewBurst(cfg, time.Second).Step(s.second()); quotaOf(quotas, "web") != 1200 {
		t.Errorf("quotas %v, want 1.2 for web", quotas)
	}
}

func TestBurstBucketFills(t *testing.T) {
	t.Parallel()
	s, c := throttled(1000)
	c.Burst.QuotaPeriod, c.CPU.Usage = 10*time.Second, 3000
	b := newBurst()
	for range 30 {
		b.Step(s.second())
	}
	if quotas, _ := b.Step(s.second()); quotaOf(quotas, "web") != 0 {
		t.Fatalf("quotas %v after the bucket is empty", quotas)
	}
	c.CPU.Usage = 800 // the container neither uses nor saves burst
	for range 30 {
		if quotas, _ := b.Step(s.second()); quotaOf(quotas, "web") != 0 {
			t.Fatalf("quotas %v at 80 %% of the limit", quotas)
		}
	}
	c.CPU.Usage = 500
	if quotas, _ := b.Step(s.second()); quotaOf(quotas, "web") != 1200 {
		t.Errorf("quotas %v after it has saved, want 1.2", quotas)
	}
}

func TestBurstTells(t *testing.T) {
	t.Parallel()
	s, _ := throttled(2000)
	b := newBurst()
	_, decisions := b.Step(s.second())
	if len(decisions) != 1 || decisions[0].From != "2 CPUs" || decisions[0].To != "2.4 CPUs" ||
		decisions[0].Why != "it was throttled in 3 of 10 periods, and the CPUs that LS shares are only 25 % busy" {
		t.Errorf("decisions %+v", decisions)
	}
	// A clock that goes back or far forward does not count as elapsed time.
	s.at("web").CPU.Throttled = 0
	for _, jump := range []time.Duration{-time.Hour, 24 * time.Hour} {
		if quotas, decisions := b.Step(s.pass(jump)); quotaOf(quotas, "web") != 2400 || decisions != nil {
			t.Errorf("a jump of %v: quotas %v, decisions %v", jump, quotas, decisions)
		}
	}
	s.at("web").CPU.Throttled = 3
	if quotas, _ := b.Step(s.pass(-time.Hour)); quotaOf(quotas, "web") != 2880 {
		t.Errorf("throttled after the clock went back: %v", quotas)
	}
	s.gone()
	if quotas, _ := b.Step(s.second()); len(quotas) != 0 || len(b.states.of) != 0 {
		t.Errorf("quotas %v, %d states after the container is gone", quotas, len(b.states.of))
	}
}

func TestBurstAdvice(t *testing.T) {
	t.Parallel()
	s, c := throttled(1000)
	c.CPU.Usage, c.CPU.Throttled = 620, 0
	b := newBurst()
	told := 0
	for range 400 {
		_, decisions := b.Step(s.second())
		told += len(decisions)
	}
	if advice := b.Advice(); told != 1 || len(advice) != 1 ||
		!strings.Contains(advice[0].Text, "it is 62 % busy on average with a limit of 1 CPUs; its usage of 0.62 suggests a limit of 1.3") {
		t.Errorf("told %d times: %v", told, b.Advice())
	}
	c.CPU.Usage = 100
	for range 400 {
		b.Step(s.second())
	}
	if advice := b.Advice(); len(advice) != 0 {
		t.Errorf("advice to an idle container: %v", advice)
	}
}

func TestBurstCheck(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig().Burst
	if p := cfg.Check(); len(p) != 0 {
		t.Errorf("problems of the shipped config: %v", p)
	}
	cfg = BurstConfig{MaxPercent: 99, CoolingPercent: 60, OverloadPercent: 50}
	if p := cfg.Check(); len(p) != 3 || p[0].Key != "maxPercent" || p[1].Key != "coolingPercent" || p[2].Key != "calmAfter" {
		t.Errorf("problems %v", p)
	}
}

// A quota always lies between the limit and the maximum, changes one step at a time, does not rise
// in overload, and each change is reported.
func TestBurstProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, c := throttled(workload.MilliCPU(rapid.IntRange(1, 20000).Draw(t, "limit")))
		c.Burst.QuotaPercent = rapid.SampledFrom([]int{0, 50, 150, 1000}).Draw(t, "percent")
		c.Burst.QuotaPeriod = rapid.SampledFrom([]time.Duration{0, 3 * time.Second, time.Minute}).Draw(t, "period")
		percent := max(100, c.Burst.QuotaPercent)
		if c.Burst.QuotaPercent == 0 {
			percent = 300
		}
		b := newBurst()
		before := c.Limit
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			s.Node.CPU.Usage = workload.MilliCPU(rapid.IntRange(0, 16000).Draw(t, "node"))
			c.CPU.Throttled = int64(rapid.IntRange(0, 2).Draw(t, "throttled"))
			c.CPU.Usage = workload.MilliCPU(rapid.IntRange(0, 3).Draw(t, "usage")) * c.Limit
			var v *View
			switch rapid.IntRange(0, 9).Draw(t, "time") {
			case 0:
				v = s.blind()
			case 1:
				v = s.pass(-time.Minute)
			case 2:
				v = s.pass(time.Hour)
			default:
				v = s.second()
			}
			quotas, decisions := b.Step(v)
			now := max(c.Limit, quotaOf(quotas, "web"))
			load, known := 0.0, b.share.full > 0
			for _, l := range b.share.loads[:b.share.full] {
				load += l / float64(b.share.full)
			}
			switch {
			case now > max(c.Limit, c.Limit*workload.MilliCPU(percent)/100):
				t.Fatalf("quota %s is above %d %% of the limit %s", now, percent, c.Limit)
			case now > max(before+1, before*120/100), now < c.Limit || now < before*80/100:
				t.Fatalf("from %s to %s in one step", before, now)
			case now > before && (!known || load > 0.4501):
				t.Fatalf("raised at a load of %v, known: %v", load, known)
			case now < before && len(decisions) == 0, now > before && len(decisions) == 0:
				t.Fatalf("from %s to %s without a decision", before, now)
			}
			before = now
		}
	})
}

func TestBurstAllocs(t *testing.T) {
	s := fiveHundred()
	b := newBurst()
	stepsWithout(t, s, func(v *View) { b.Step(v) })
}

func BenchmarkBurst(b *testing.B) {
	c := newBurst()
	benchSteps(b, func(v *View) { c.Step(v) })
}

// A steady demand above the limit is throttled for some seconds per hour. Even so, the container's
// quota returns to its limit each time.
func TestBurstWithSteadyDemand(t *testing.T) {
	t.Parallel()
	s, c := throttled(1000)
	b := newBurst()
	quota, seconds, decided := c.Limit, 0, 0
	for range 3600 {
		c.CPU.Usage, c.CPU.Throttled = min(quota, 2000), 0
		if quota < 2000 {
			c.CPU.Throttled = 5
			seconds++
		}
		quotas, decisions := b.Step(s.second())
		quota = max(c.Limit, quotaOf(quotas, "web"))
		decided += len(decisions)
	}
	t.Logf("throttled in %d of 3600 s, %d decisions", seconds, decided)
	if seconds > 200 || decided > 200 {
		t.Errorf("throttled in %d of 3600 s, %d decisions", seconds, decided)
	}
}
