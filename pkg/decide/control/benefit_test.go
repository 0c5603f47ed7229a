package control

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestBenefit(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	s.run("web", workload.LS, 4000, 0)
	be := s.run("batch", workload.BE, 8000, 0)
	be.Container.Memory.WorkingSet = 3 * testGiB
	s.Node.CPU.Usage = 12000
	b := NewBenefit(time.Second, BenefitCounts{})
	b.Step(s.second(), Given{CPU: 6000})
	for range 3600 { // from 12:00:01 to 13:00:01
		b.Step(s.second(), Given{CPU: 6000})
	}
	b.Step(s.second(), Given{CPU: 6000, Squeezes: 2, Kills: 1})
	r := b.Report(s.Now)
	near := func(got, want float64) bool { return math.Abs(got-want) < 0.01 }
	if !near(r.CPUHours, 8) || !near(r.GiBHours, 3) || !near(r.Day.CPUHours, 8) || !near(r.Day.GiBHours, 3) ||
		!near(r.Day.UtilizationFraction, 0.75) || !near(r.Day.KnownHours, 1) || !near(r.SatisfactionFraction, 0.75) || r.Day.Squeezes != 2 || r.Day.Evicted != 1 {
		t.Errorf("report %+v", r)
	}
	if len(r.ByHour) != 2 || r.ByHour[0].StartsAt.Hour() != 12 || !near(r.ByHour[0].UtilizationFraction, 0.75) {
		t.Errorf("by hour %+v", r.ByHour)
	}
	// The counters continue after a restart.
	text, err := json.Marshal(b.Counts())
	if err != nil {
		t.Fatal(err)
	}
	var kept BenefitCounts
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	again := NewBenefit(time.Second, kept)
	again.Step(s.second(), Given{})
	if got := again.Report(s.Now); got.CPUHours != r.CPUHours || got.Day != r.Day {
		t.Errorf("after a restart %+v, before %+v", got, r)
	}
	// Only the sums remain of hours more than a day old.
	s.pass(24 * time.Hour)
	if got := b.Report(s.Now); got.CPUHours != r.CPUHours || got.Day != (Day{}) || got.SatisfactionFraction != 1 {
		t.Errorf("a day later %+v", got)
	}
}

func TestBenefitBlindAndClockJumps(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	s.run("batch", workload.BE, 0, 0).CPU.Usage = 8000
	s.Node.CPU.Usage = 8000
	b := NewBenefit(time.Second, BenefitCounts{})
	b.Step(s.second(), Given{})
	b.Step(s.pass(240*time.Hour), Given{}) // at most three seconds count
	b.Step(s.pass(-240*time.Hour), Given{})
	if got := b.Counts().CPUHours * 3600; math.Abs(got-24) > 1e-6 {
		t.Errorf("%v CPU-seconds, want 24", got)
	}
	for range 10 {
		b.Step(s.blind(), Given{})
	}
	if got := b.Counts().CPUHours * 3600; math.Abs(got-48) > 1e-6 {
		t.Errorf("%v CPU-seconds, want 48: what was not seen for three seconds is not counted", got)
	}
}

// The mean utilization lies between the lowest and the highest measured one, whatever the times.
func TestBenefitProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(16)
		s.run("batch", workload.BE, 4000, 0)
		b := NewBenefit(time.Second, BenefitCounts{})
		least, most := 1.0, 0.0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			s.Node.CPU.Usage = workload.MilliCPU(rapid.IntRange(0, 16000).Draw(t, "usage"))
			least, most = min(least, float64(s.Node.CPU.Usage)/16000), max(most, float64(s.Node.CPU.Usage)/16000)
			b.Step(s.pass(time.Duration(rapid.IntRange(-7200, 7200).Draw(t, "seconds"))*time.Second), Given{CPU: workload.MilliCPU(rapid.IntRange(0, 8000).Draw(t, "granted"))})
			r := b.Report(s.Now)
			if r.Day.KnownHours > 0 && (r.Day.UtilizationFraction < least-1e-9 || r.Day.UtilizationFraction > most+1e-9) {
				t.Fatalf("utilization %v of %v to %v", r.Day.UtilizationFraction, least, most)
			}
			if r.SatisfactionFraction < 0 || r.SatisfactionFraction > 1+1e-9 {
				t.Fatalf("satisfaction %v", r.SatisfactionFraction)
			}
		}
	})
}

func TestHours(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"), 0)
		hour := hourOf(at)
		if i := hourIndex(hour); i < 0 || i > 23 || hourIndex(hour+24) != i {
			t.Fatalf("hour %d is at %d", hour, i)
		}
		if begin := time.Unix(hour*3600, 0); at.Before(begin) || !at.Before(begin.Add(time.Hour)) {
			t.Fatalf("%v is not in the hour from %v", at, begin)
		}
	})
}

func TestBenefitAllocs(t *testing.T) {
	b := NewBenefit(time.Second, BenefitCounts{})
	stepsWithout(t, fiveHundred(), func(v *View) { b.Step(v, Given{}) })
}

func BenchmarkBenefit(b *testing.B) {
	c := NewBenefit(time.Second, BenefitCounts{})
	benchSteps(b, func(v *View) { c.Step(v, Given{}) })
}
