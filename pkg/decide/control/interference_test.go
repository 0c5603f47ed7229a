package control

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// shared returns a node with a web server, and with three BE pods that don't use CPU yet.
func shared() (s *scene, web *Container) {
	s = newScene(16)
	s.run("web", workload.LS, 2000, 0)
	s.run("large", workload.BE, 0, 0)
	s.run("small", workload.BE, 0, 0)
	s.run("idle", workload.BE, 0, 0)
	return s, s.at("web")
}

func TestInterference(t *testing.T) {
	t.Parallel()
	s, web := shared()
	f := NewInterference(time.Second)
	step := func(seconds int) (web Disturbance, decisions []Decision) {
		for range seconds {
			disturbed, now := f.Step(s.second())
			web, decisions = disturbed[0], append(decisions, now...)
		}
		return web, decisions
	}
	// Alone, the server waits a fifth of its time: usage 2, waiting 0.5.
	web.RunDelay.Waiting, web.Pressure.CPU = 0.5, 0.1
	v, decisions := step(100)
	if !v.Learned || math.Abs(v.Calm.RunDelayFraction-0.2) > 1e-9 || v.Excess != (Strain{}) || len(decisions) != 0 {
		t.Fatalf("alone: %+v, %v", v, decisions)
	}
	// With BE work, it waits half of its time.
	s.at("large").CPU.Usage, s.at("small").CPU.Usage = 6000, 2000
	web.RunDelay.Waiting = 2
	v, decisions = step(60)
	if math.Abs(v.Excess.RunDelayFraction-0.3) > 0.01 || v.Excess.CPUFraction != 0 || math.Abs(v.Calm.RunDelayFraction-0.2) > 1e-9 {
		t.Errorf("with BE: %+v", v)
	}
	if len(decisions) != 1 || !strings.HasSuffix(decisions[0].Why, "above its calm baseline of 20 %; of all that BE used of CPU then, most was used by ns/large (75 %), ns/small (25 %): a hint, no proof") {
		t.Errorf("decisions %+v", decisions)
	}
	if len(v.Suspects) != 2 || v.Suspects[0].Ref != "ns/large" || v.Suspects[0].UsageFraction != 0.75 {
		t.Errorf("suspects %+v", v.Suspects)
	}
	// Without measurements the result stays as it is.
	if disturbed, decisions := f.Step(s.blind()); len(disturbed) != 1 || len(decisions) != 0 {
		t.Errorf("unseen: %v, %v", disturbed, decisions)
	}
	// The BE work ends.
	s.at("large").CPU.Usage, s.at("small").CPU.Usage, web.RunDelay.Waiting = 0, 0, 0.5
	v, decisions = step(60)
	if v.Excess.RunDelayFraction > 0.01 || len(decisions) != 1 || decisions[0].Action != "calm" || decisions[0].Why != "its run delay is no more than 5 % above its calm baseline again" || len(v.Suspects) != 0 {
		t.Errorf("BE away: %+v, %v", v, decisions)
	}
}

func TestInterferenceWithoutACalmMoment(t *testing.T) {
	t.Parallel()
	s, web := shared()
	s.at("large").CPU.Usage = 6000
	f := NewInterference(time.Second)
	web.Pressure.Memory = 0.1
	f.Step(s.second())
	web.Pressure.Memory = 0.5
	var decisions []Decision
	var v Disturbance
	for range 60 {
		disturbed, now := f.Step(s.second())
		v, decisions = disturbed[0], append(decisions, now...)
	}
	if v.Learned || math.Abs(v.Calm.MemoryFraction-0.101) > 0.001 || len(decisions) != 1 ||
		!strings.Contains(decisions[0].Why, "its memory pressure is 11 % above the 10 % that were the least seen, since it was never alone for long") {
		t.Errorf("%+v, %+v", v, decisions)
	}
}

// TestInterferenceLearns checks that unavoidable waiting raises the baseline, and that this is forgotten slowly, or
// once the pod is measured without batch work.
func TestInterferenceLearns(t *testing.T) {
	t.Parallel()
	s, web := shared()
	s.at("large").CPU.Usage, web.Pressure.CPU = 6000, 0.1
	f := NewInterference(time.Second)
	calm := func(seconds int) float64 {
		var disturbed []Disturbance
		for range seconds {
			disturbed, _ = f.Step(s.second())
		}
		return disturbed[0].Calm.CPUFraction
	}
	calm(10)
	f.Learn(Unavoidable{"web", 0, 0.3})
	f.Learn(Unavoidable{"web", 0, 0.2})
	f.Learn(Unavoidable{"gone", 0, 0.9})
	web.Pressure.CPU = 0.4
	if got := calm(60); got != 0.3 {
		t.Errorf("a baseline of %v, want the 0.3 that were learned", got)
	}
	web.Pressure.CPU = 0.1
	if got := calm(600); math.Abs(got-0.29) > 0.001 {
		t.Errorf("a baseline of %v after ten minutes with less waiting, want 0.29", got)
	}
	s.at("large").CPU.Usage = 0
	if got := calm(300); math.Abs(got-0.1) > 0.001 {
		t.Errorf("a baseline of %v after five minutes alone, want 0.1", got)
	}
}

func TestInterferenceOfOwnMaking(t *testing.T) {
	t.Parallel()
	s, web := shared()
	f := NewInterference(time.Second)
	for i := range 600 {
		web.CPU.Periods, web.CPU.Throttled = 10, int64(i%10) // the container is throttled while it is alone, too
		s.at("large").CPU.Usage = 0
		if i >= 300 {
			s.at("large").CPU.Usage = 6000
		}
		if _, decisions := f.Step(s.second()); len(decisions) != 0 {
			t.Fatalf("after %d s: %+v", i, decisions)
		}
	}
	if got := f.pods.at("web").calm.ThrottledFraction; got < 0.7 || got > 0.95 {
		t.Errorf("baseline %v of values 0 to 0.9, want their 90th percentile", got)
	}
}

// TestInterferenceBesideAVirtualMachine checks that batch work whose usage can't be measured keeps no bound from being measured,
// and that nothing is learned as if the service were alone.
func TestInterferenceBesideAVirtualMachine(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	s.run("web", workload.LS, 2000, 0)
	s.run("vm", workload.BE, 0, 0).Unseen = true
	s.Pods[0].SLO.RunDelay = 0.2
	web, vm := s.at("web"), s.at("vm")
	web.RunDelay.Waiting = 2
	f := NewInterference(time.Second)
	var disturbed []Disturbance
	for range 700 {
		s.second()
		vm.CPU.At = time.Time{}
		disturbed, _ = f.Step(&s.View)
	}
	if len(disturbed) != 1 {
		t.Fatalf("%d pods are measured", len(disturbed))
	}
	if got := disturbed[0]; !got.Bounds[0].Measured || got.Bounds[0].Alone || got.Learned {
		t.Errorf("%+v, %+v", got, got.Bounds)
	}
}

// The baseline stays between the lowest and the highest measured value, and the excess is at most
// what BE work can have caused.
func TestInterferenceProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, web := shared()
		f := NewInterference(time.Second)
		least, most := 1.0, 0.0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			web.Pressure.CPU = rapid.Float64Range(0, 1).Draw(t, "pressure")
			s.at("large").CPU.Usage = workload.MilliCPU(rapid.SampledFrom([]int{0, 100, 8000}).Draw(t, "BE"))
			least, most = min(least, web.Pressure.CPU), max(most, web.Pressure.CPU)
			disturbed, _ := f.Step(s.second())
			if calm := disturbed[0].Calm.CPUFraction; calm < least || calm > most {
				t.Fatalf("baseline %v of values from %v to %v", calm, least, most)
			}
			if excess := disturbed[0].Excess.CPUFraction; excess < 0 || excess > most-least {
				t.Fatalf("excess %v of values from %v to %v", excess, least, most)
			}
		}
	})
}

func TestUsersKeepsTheLargest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amounts := rapid.SliceOfN(rapid.IntRange(0, 100), 1, 20).Draw(t, "amounts")
		var u users
		sum := 0
		for i, amount := range amounts {
			u.enter(i, "", float64(amount))
			sum += amount
		}
		u.share()
		for i, one := range u.most() {
			if math.Abs(one.UsageFraction-float64(amounts[one.Pod])/float64(sum)) > 1e-9 {
				t.Fatalf("share %v of %v", one, amounts)
			}
			larger := 0
			for _, amount := range amounts {
				if amount > amounts[one.Pod] {
					larger++
				}
			}
			if larger > i {
				t.Fatalf("place %d of %v is %v", i, amounts, one)
			}
		}
	})
}

func TestInterferenceAllocs(t *testing.T) {
	f := NewInterference(time.Second)
	stepsWithout(t, fiveHundred(), func(v *View) { f.Step(v) })
}

func BenchmarkInterference(b *testing.B) {
	f := NewInterference(time.Second)
	benchSteps(b, func(v *View) { f.Step(v) })
}

// TestNothingLearnedOfACulprit checks that what a service waits under a lower limit for others becomes neither its
// baseline nor its fault, and that batch work does not give way for it.
func TestNothingLearnedOfACulprit(t *testing.T) {
	t.Parallel()
	n := newAnswering(func(workload.MilliCPU) time.Duration { return 5 * time.Millisecond })
	n.Pods[0].SLO.CPUPressure = 0.1
	n.runs(60, 0)
	before := n.disturbed[0]
	n.Pods[0].Squeezed, n.at("web").Pressure.CPU = true, 0.9
	n.takes = func(workload.MilliCPU) time.Duration { return 500 * time.Millisecond }
	n.runs(700, 0)
	if now := n.disturbed[0]; now.Calm != before.Calm || now.Bounds[0].Alone || now.Objective.Alone || now.Objective.tolerated != before.Objective.tolerated {
		t.Errorf("learned while it is limited: %+v, %+v, %+v", now.Calm, now.Bounds, now.Objective)
	}
	n.runs(60, 4000)
	n.Pods[0].Squeezed, n.at("web").Pressure.CPU = false, 0
	n.takes = func(workload.MilliCPU) time.Duration { return 5 * time.Millisecond }
	n.runs(70, 4000)
	if n.share.Percent != 100 || len(n.decisions) > 0 {
		t.Errorf("batch work has %+v: %+v", n.share, n.decisions)
	}
}
