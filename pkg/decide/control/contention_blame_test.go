package control

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// blamed returns a node whose service has run alone and then beside batch pods, of which job3 moves far more than the
// others.
func blamed(counts bool) *bus {
	b := newBus()
	b.resctrl, b.counts = true, counts
	b.steps(300)
	b.work(2000)
	b.wants["job3"], b.traffic["job3"] = 8000, 2
	return b
}

// TestPhases checks what an innocent pod loses beside a service that uses its caches in phases, whose ends look as if a trial
// had helped: at most a fourth of an hour, whatever the phases are.
func TestPhases(t *testing.T) {
	t.Parallel()
	worst := 0
	for seed := range uint64(24) {
		random := rand.New(rand.NewPCG(seed, 7))
		long, short := 5+random.IntN(60), 5+random.IntN(240)
		b := blamed(false)
		left, slow := 0, false
		b.lost = func() bool { return slow }
		for range 3600 {
			if left--; left <= 0 {
				if slow = !slow; slow {
					left = 1 + random.IntN(2*long)
				} else {
					left = 1 + random.IntN(2*short)
				}
			}
			b.step()
		}
		worst = max(worst, b.limited["job3"])
		for pod, n := range b.limited {
			if n > 3600/4 {
				t.Errorf("seed %d, phases of %d and %d s: %s had a limit for %d s of an hour: %s", seed, long, short, pod, n, strings.Join(b.log, "; "))
			}
		}
	}
	t.Logf("at most %d s of 3600", worst)
}

// TestCountsEndInTrials checks that a pod is not tried again and again while the processor's counters are always missing
// during its trials.
func TestCountsEndInTrials(t *testing.T) {
	t.Parallel()
	b := blamed(true)
	b.slowedBy("job3")
	for range 3600 {
		b.counts = len(b.limits) == 0
		b.step()
	}
	if n, tried := b.limited["job3"], strings.Count(strings.Join(b.log, ";"), "squeeze"); n == 0 || n > 150 {
		t.Errorf("%d trials had a limit for %d s of an hour: %v", tried, n, b.log)
	}
}

// TestContentionBesideWaiting checks that a service which waits for CPU without a suspect does not keep the culprit of its
// caches from being found, nor that of another service.
func TestContentionBesideWaiting(t *testing.T) {
	t.Parallel()
	for _, waits := range []string{"web", "other"} {
		b := newBus()
		b.run("other", workload.LS, 1000, 0)
		b.resctrl = true
		b.steps(300)
		b.work(2000)
		b.wants["job3"], b.traffic["job3"] = 3000, 5
		b.slowedBy("job3")
		b.at(waits).Pressure.CPU = 0.4
		b.steps(400)
		if !slices.ContainsFunc(b.actions(t, "job3"), func(s string) bool { return strings.HasSuffix(s, "confirm") }) {
			t.Errorf("while %s waits: %v", waits, b.log)
		}
	}
}

// TestWaitingComesFirst checks that the pod is tried first that makes a service wait, although contention is stronger.
func TestWaitingComesFirst(t *testing.T) {
	t.Parallel()
	b := blamed(false)
	b.wants["job7"] = 25000
	b.at("web").Pressure.CPU = 0.15
	b.lost = func() bool {
		b.at("web").Pressure.At = b.Now // it is watched closely
		return true
	}
	b.steps(60)
	if len(b.log) == 0 || !strings.Contains(b.log[0], "ns/job7") || !strings.Contains(b.why[0], "the CPU pressure of ns/web") {
		t.Errorf("decided %v", b.log)
	}
	var d Disturbance
	d.Latest[0], d.Latest[lostCache] = Reading{at: b.Now, above: 0.15}, Reading{at: b.Now, above: 1}
	if of, part := NewCulprit(BatchConfig{}, time.Second).worst(&b.View, []Disturbance{d}, 0); of == nil || part != 0 {
		t.Errorf("signal %d of %v comes first", part, of)
	}
}

// TestClockIsSet checks that a clock that is set while a service is slowed down neither adds counts nor keeps the culprit from
// being found by the correlation.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{-24 * time.Hour, -90 * time.Second, 90 * time.Second, 24 * time.Hour} {
		b := newBus()
		b.slowedBy("job3")
		b.steps(300)
		b.work(2000)
		b.steps(60)
		b.wants["job3"], b.traffic["job3"] = 8000, 2
		b.steps(105) // two counts
		before := b.f.cycles.find("web").n
		b.Now, b.began, b.countedAt = b.Now.Add(by), b.began.Add(by), b.countedAt.Add(by)
		for i := range b.Containers { // as observe.Meter does
			c := &b.Containers[i]
			c.CPU.At, c.CPU.StatAt, c.CPI.At = c.CPU.At.Add(by), c.CPU.StatAt.Add(by), c.CPI.At.Add(by)
		}
		b.steps(3)
		if after := b.f.cycles.find("web").n; after != before || len(b.f.disturbed) == 0 || b.f.disturbed[0].Cycles == nil {
			t.Errorf("%v: %d counts are %d then; measured %+v", by, before, after, b.f.disturbed)
		}
		b.steps(70)
		if actions := b.actions(t, "job3"); len(actions) == 0 {
			t.Errorf("%v: nobody is found", by)
		}
	}
}

// TestNewContainer checks that a container of which little is known does not hide one that is slowed down, and that what is
// usual has a value from the first count on.
func TestNewContainer(t *testing.T) {
	t.Parallel()
	b := newBus()
	b.slowedBy("job3")
	b.steps(300)
	b.work(2000)
	b.wants["job3"], b.traffic["job3"] = 8000, 2
	b.steps(200)
	web := b.at("web")
	added := *web
	added.ID, added.CPI.Cycles = "new", 9
	b.Containers = slices.Insert(b.Containers, 1, added)
	b.Pods[0].Count++
	for i := range b.Pods[1:] {
		b.Pods[i+1].First++
	}
	b.at("new").CPI.At = b.Now
	d, _ := b.f.Step(&b.View)
	if c := d[0].Cycles; c == nil || !c.Learned || c.PerInstructionRatio > 8 {
		t.Errorf("measured %+v", c)
	}
	fresh := newBus()
	fresh.steps(40)
	if c := fresh.f.disturbed[0].Cycles; c == nil || c.Learned || c.UsualRatio != c.PerInstructionRatio {
		t.Errorf("after one count: %+v", c)
	}
}

// TestFewCounts checks that the limit is further away after few counts.
func TestFewCounts(t *testing.T) {
	t.Parallel()
	var few, many moments
	for i := range 30 {
		x := 1 + 0.2*float64(i%2)
		if many.enter(x); i < 4 {
			few.enter(x)
		}
	}
	if few.limit() < 1.35 || many.limit() > 1.33 {
		t.Errorf("the limits are %v and %v", few.limit(), many.limit())
	}
}
