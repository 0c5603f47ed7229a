package control

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// borne is a node with a service that has a bound, and with batch work that uses all that its share
// leaves it. The service waits as the function says.
type borne struct {
	*scene
	interference *Interference
	bounds       *Bounds
	culprit      *Culprit          // nil if nobody looks for one
	limit        workload.MilliCPU // of batch work as the culprit; 0 for none
	preview      bool
	hold         bool // a culprit is being tried
	unread       bool // how the service waits is not measured
	slow         bool // it is measured each ten seconds only
	waits        func(batch workload.MilliCPU) float64

	share     BatchShare
	disturbed []Disturbance
	decisions []Decision
}

// newBorne returns a node whose service has seen a minute without batch work.
func newBorne(slo workload.SLO, waits func(batch workload.MilliCPU) float64) *borne {
	b := &borne{scene: newScene(16), interference: NewInterference(time.Second), bounds: NewBounds(time.Second), waits: waits}
	b.run("web", workload.LS, 2000, 0)
	b.run("batch", workload.BE, 0, 0)
	b.Pods[0].SLO = slo
	b.runs(60, 0)
	return b
}

// step runs a second in which batch work would use that much.
func (b *borne) step(wants workload.MilliCPU) {
	used := b.used(wants)
	b.at("batch").CPU.Usage = used
	web := b.at("web")
	before := web.RunDelay.At
	b.second()
	if b.bounds.Closely() == "web" && !b.slow {
		web.RunDelay.At, web.Pressure.At = b.Now, b.Now
	}
	if b.unread {
		web.RunDelay.At, web.Pressure.At = before, before
	}
	waits := min(b.waits(used), 0.99)
	web.RunDelay.Waiting = float64(web.CPU.Usage) / 1000 * waits / (1 - waits)
	disturbed, _ := b.interference.Step(&b.View)
	if b.culprit != nil {
		b.limit = 0
		limits, decisions := b.culprit.Step(&b.View, disturbed, true, func(int) bool { return true })
		for _, l := range limits {
			b.limit = l.CPU
		}
		b.hold, b.decisions = b.culprit.Trying(), append(b.decisions, decisions...)
	}
	share, decisions := b.bounds.Step(&b.View, disturbed, !b.preview, b.hold)
	b.share, b.Share, b.disturbed, b.decisions = share, share, disturbed, append(b.decisions, decisions...)
}

// used returns what batch work uses if it wants that much.
func (b *borne) used(wants workload.MilliCPU) workload.MilliCPU {
	if used := b.share.of(wants); b.limit == 0 || used < b.limit {
		return used
	}
	return b.limit
}

// accuse lets a culprit be looked for among batch work and two pods more.
func (b *borne) accuse() {
	b.run("job0", workload.BE, 0, 0)
	b.run("job1", workload.BE, 0, 0)
	b.culprit = NewCulprit(BatchConfig{}, time.Second)
}

func (b *borne) runs(seconds int, wants workload.MilliCPU) {
	for range seconds {
		b.step(wants)
	}
}

// actions lists what has been decided, without repetitions in a row.
func (b *borne) actions() (all []string) {
	for _, d := range b.decisions {
		all = append(all, d.Action)
	}
	return slices.Compact(all)
}

// inProportion waits for CPUs as much as batch work uses: a fiftieth alone, half beside 16 CPUs.
func inProportion(batch workload.MilliCPU) float64 { return 0.02 + 0.03*float64(batch)/1000 }

func TestBoundSqueezesBatch(t *testing.T) {
	t.Parallel()
	b := newBorne(workload.SLO{RunDelay: 0.2}, inProportion)
	b.runs(300, 16000)
	used := b.share.of(16000)
	if got := b.disturbed[0].Bounds[0].WaitingFraction; got > 0.22 || used < 2000 {
		t.Errorf("after five minutes the service waits %.3f of its time and batch work has %d", got, used)
	}
	if !strings.Contains(b.share.Why, "ns/web waits ") || !strings.Contains(b.share.Why, "(runDelay), and its bound is 20 %") {
		t.Errorf("why: %q", b.share.Why)
	}
	first := b.decisions[0]
	if first.Controller != "slo" || first.Action != "squeeze" || first.From != "100 % of its budget" || first.To != "70 % of its budget" {
		t.Errorf("first decision %+v", first)
	}
	b.runs(300, 2000)
	if b.share.Percent != 100 || b.share.Why != "" {
		t.Errorf("beside less batch work: %+v", b.share)
	}
	if got := b.actions(); got[len(got)-1] != "grow" {
		t.Errorf("decisions %v", got)
	}
}

// Each cut waits for a measurement that shows what the last one has brought.
func TestBoundMeasuredSlowly(t *testing.T) {
	t.Parallel()
	for slow, most := range map[bool]int{true: 5, false: 20} {
		b := newBorne(workload.SLO{RunDelay: 0.1}, func(workload.MilliCPU) float64 { return 0.02 })
		b.slow, b.waits = slow, func(workload.MilliCPU) float64 { return 0.5 }
		b.runs(50, 16000)
		cuts := 0
		for _, d := range b.decisions {
			if d.Action == "squeeze" {
				cuts++
			}
		}
		if cuts == 0 || cuts > most || !slow && b.share.Percent != boundLeast {
			t.Errorf("measured slowly %t: %d cuts in 50 s, to %d %%", slow, cuts, b.share.Percent)
		}
	}
}

// A pod that waits for itself does not hold batch work down: its share returns once it is clear that
// batch work is not the cause.
func TestBoundNotKeptAlone(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(second int) float64{
		"from the beginning": func(int) float64 { return 0.3 },
		"just below":         func(int) float64 { return 0.09 },
		"later":              func(second int) float64 { return map[bool]float64{true: 0.3, false: 0.02}[second > 200] },
	} {
		second := 0
		b := newBorne(workload.SLO{RunDelay: 0.1}, func(workload.MilliCPU) float64 { second++; return at(second) })
		b.runs(60, 16000)
		b.runs(60, 400)
		if b.runs(900, 400); b.share.Percent < 100 {
			t.Errorf("%s: the share is %d %%: %s", name, b.share.Percent, b.share.Why)
		}
	}
}

// The clock is set back by an hour: the mean does not become absurd.
func TestBoundClockSetBack(t *testing.T) {
	t.Parallel()
	b := newBorne(workload.SLO{RunDelay: 0.2}, func(workload.MilliCPU) float64 { return 0.1 })
	b.runs(60, 16000)
	b.Now = b.Now.Add(-time.Hour)
	for range 60 {
		b.runs(1, 16000)
		if mean := b.disturbed[0].Bounds[0].WaitingFraction; mean < 0 || mean > 0.2 {
			t.Fatalf("it waits %v of its time", mean)
		}
	}
}

// A bound that is kept, or that only a short peak breaks, costs nothing.
func TestBoundKept(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]func(second *int) float64{
		"kept": func(*int) float64 { return 0.15 },
		"a peak": func(second *int) float64 {
			*second++
			return map[bool]float64{true: 0.6, false: 0.02}[*second%300 == 200]
		},
	} {
		second := 0
		b := newBorne(workload.SLO{RunDelay: 0.2}, func(workload.MilliCPU) float64 { return waits(&second) })
		if b.runs(900, 16000); len(b.decisions) > 0 {
			t.Errorf("%s: %+v", name, b.decisions)
		}
	}
}

// A service that breaks its bound alone costs batch work nothing, as long as batch work does not
// make it worse, and gets advice.
func TestBoundBrokenAlone(t *testing.T) {
	t.Parallel()
	b := newBorne(workload.SLO{RunDelay: 0.1}, func(workload.MilliCPU) float64 { return 0.3 })
	b.runs(660, 0)
	if len(b.decisions) != 1 || b.decisions[0].Action != "advise" || b.decisions[0].Object != "ns/web" ||
		!strings.Contains(b.decisions[0].Why, "it has waited longer than its bound of 10 % (runDelay) for ten minutes without batch work, now 30 % of its time: it needs more CPU for it (a pin, or a larger request)") {
		t.Fatalf("alone: %+v", b.decisions)
	}
	b.runs(300, 16000)
	if got := b.actions(); !slices.Equal(got, []string{"advise"}) {
		t.Errorf("beside batch work that changes nothing: %v", got)
	}
	if one := b.disturbed[0].Bounds[0]; !one.Alone || one.BrokenAt.IsZero() {
		t.Errorf("bound %+v", one)
	}
	b.waits = func(batch workload.MilliCPU) float64 { return 0.3 + inProportion(batch) }
	b.runs(60, 16000)
	if b.share.Percent > 50 {
		t.Errorf("batch work makes it worse, and keeps %d %%", b.share.Percent)
	}
}

// Without a measurement the share does not rise; it does not fall while a culprit is tried, in
// preview, or for waiting that isn't for CPUs, or because of the service's own limit.
func TestBoundHolds(t *testing.T) {
	t.Parallel()
	b := newBorne(workload.SLO{RunDelay: 0.2}, inProportion)
	b.runs(60, 16000)
	was := b.share.Percent
	b.unread = true
	if b.runs(240, 0); b.share.Percent > was {
		t.Errorf("unread: the share rose from %d to %d %%", was, b.share.Percent)
	}
	said := len(b.decisions)
	if b.runs(360, 0); b.share.Percent != 100 {
		t.Errorf("unread for ten minutes: the share is %d %%", b.share.Percent)
	}
	if d := b.decisions[said]; d.Action != "advise" || !strings.Contains(d.Why, "not been measured for 5m0s") {
		t.Errorf("unread for ten minutes: %+v", d)
	}
	for name, change := range map[string]func(*borne){
		"a culprit is tried": func(b *borne) { b.hold = true },
		"no bound":           func(b *borne) { b.Pods[0].SLO = workload.SLO{} },
		"other resources":    func(b *borne) { b.Pods[0].SLO = workload.SLO{MemoryPressure: 0.01, IOPressure: 0.01} },
		"its own limit": func(b *borne) {
			b.at("web").CPU.Periods, b.at("web").CPU.Throttled = 10, 5
		},
	} {
		b := newBorne(workload.SLO{RunDelay: 0.2}, inProportion)
		change(b)
		b.runs(60, 16000)
		if b.share.limits() || len(b.decisions) > 0 {
			t.Errorf("%s: %+v, %+v", name, b.share, b.decisions)
		}
	}
	b = newBorne(workload.SLO{RunDelay: 0.2}, inProportion)
	b.preview = true
	b.runs(300, 16000)
	if b.share.limits() || len(b.decisions) != 1 || b.decisions[0].Action != "squeeze" {
		t.Errorf("preview: %+v, %+v", b.share, b.decisions)
	}
}

// TestBoundAfterPreview checks that a bound that was broken in preview limits batch work as soon as the controller acts.
func TestBoundAfterPreview(t *testing.T) {
	t.Parallel()
	b := newBorne(workload.SLO{RunDelay: 0.2}, inProportion)
	b.preview = true
	b.runs(60, 16000)
	if len(b.decisions) != 1 || b.share.limits() {
		t.Fatalf("in preview: %+v, %+v", b.share, b.decisions)
	}
	b.preview = false
	b.runs(30, 16000)
	if !b.share.limits() {
		t.Errorf("after preview: %+v, %+v", b.share, b.decisions)
	}
}

// The share stays within its bounds, never rises while a bound is broken, and returns to 100 % once
// batch work no longer makes the service wait.
func TestBoundProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.Float64Range(0.01, 0.5).Draw(t, "bound")
		slope := rapid.Float64Range(0, 0.1).Draw(t, "slope")
		b := newBorne(workload.SLO{RunDelay: bound}, func(batch workload.MilliCPU) float64 { return 0.005 + slope*float64(batch)/1000 })
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			wants := workload.MilliCPU(rapid.IntRange(0, 16000).Draw(t, "wants"))
			b.unread, b.hold = rapid.Bool().Draw(t, "unread"), rapid.Bool().Draw(t, "hold")
			for range rapid.IntRange(1, 40).Draw(t, "seconds") {
				was := b.share.Percent
				b.step(wants)
				one := b.disturbed[0].Bounds[0]
				switch {
				case b.share.Percent < boundLeast || b.share.Percent > 100:
					t.Fatalf("share %d %%", b.share.Percent)
				case b.share.Percent > was && one.WaitingFraction > max(bound, b.disturbed[0].Calm.RunDelayFraction+leastBears):
					t.Fatalf("the share rose from %d to %d %% while the service waits %v and can bear %v", was, b.share.Percent, one.WaitingFraction, bound)
				case b.share.Percent < was && b.hold:
					t.Fatalf("the share fell from %d to %d %% in a trial", was, b.share.Percent)
				case b.share.limits() == (b.share.Why == ""):
					t.Fatalf("share %+v", b.share)
				}
			}
		}
		b.unread, b.hold = false, false
		if b.runs(500, 0); b.share.Percent != 100 {
			t.Fatalf("without batch work: %+v", b.share)
		}
	})
}

// The narrower of two bounds counts, and waiting beyond a bound of less than a tenth is suffering.
func TestBoundIsSuffering(t *testing.T) {
	t.Parallel()
	slo := workload.SLO{RunDelay: 0.2}
	slo.Tighten(workload.SLO{RunDelay: 0.05, CPUPressure: 0.1})
	if want := (workload.SLO{RunDelay: 0.05, CPUPressure: 0.1}); slo != want {
		t.Errorf("both: %+v, want %+v", slo, want)
	}
	b := newBorne(slo, func(batch workload.MilliCPU) float64 { return 0.02 + 0.005*float64(batch)/1000 })
	var suffers []Decision
	for range 60 {
		b.at("batch").CPU.Usage = 10000
		v := b.second()
		b.at("web").RunDelay.Waiting = float64(b.at("web").CPU.Usage) / 1000 * 0.07 / 0.93
		_, decisions := b.interference.Step(v)
		suffers = append(suffers, decisions...)
	}
	if len(suffers) != 1 || suffers[0].Action != "suffers" {
		t.Errorf("decisions %+v", suffers)
	}
	if got := b.interference.pods.at("web").bears(&slo, runDelay); math.Abs(got-0.03) > 0.005 {
		t.Errorf("it bears %v above its baseline, want 0.03", got)
	}
}

func TestBoundsAllocs(t *testing.T) {
	b := newBorne(workload.SLO{}, inProportion)
	stepsWithout(t, b.scene, func(v *View) { b.bounds.Step(v, b.disturbed, true, false) })
}
