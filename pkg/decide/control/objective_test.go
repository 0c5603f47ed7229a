package control

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// answering is a node with a service that has an objective, and with batch work that uses all that its
// share leaves it. Of a hundred requests, two take as long as the function says, and the others 2 ms.
type answering struct {
	*borne
	takes   func(batch workload.MilliCPU) time.Duration
	rate    float64 // requests a second
	silent  bool    // its histogram can't be read
	meter   observe.LatencyMeter
	h       observe.Histogram
	seconds int
}

const bound = 20 * time.Millisecond

// newAnswering returns a node whose service has seen two minutes without batch work.
func newAnswering(takes func(batch workload.MilliCPU) time.Duration) *answering {
	n := &answering{borne: newBorne(workload.SLO{}, func(workload.MilliCPU) float64 { return 0.02 }), takes: takes, rate: 1000}
	n.Pods[0].SLO.Latency = workload.Objective{Metric: "seconds", Quantile: 0.99, Bound: bound, Unit: time.Second, Port: 80, Path: "/metrics"}
	for ms := 1.0; ms < 1000; ms *= 1.1 {
		n.h.UpTo = append(n.h.UpTo, ms/1000)
	}
	n.h.UpTo = append(n.h.UpTo, math.Inf(1))
	n.h.Counts = make([]float64, len(n.h.UpTo))
	n.runs(120, 0)
	return n
}

func (n *answering) step(wants workload.MilliCPU) {
	n.count(2*time.Millisecond, 0.98*n.rate)
	n.count(n.takes(n.used(wants)), 0.02*n.rate)
	if n.seconds++; n.seconds%5 == 0 {
		l := &n.Pods[0].Latency
		if l.Problem = "connection refused"; !n.silent {
			n.meter.Add(n.Now, observe.Histogram{UpTo: n.h.UpTo, Counts: slices.Clone(n.h.Counts)})
			*l = n.meter.Latency(0.99, bound.Seconds())
		}
	}
	n.borne.step(wants)
}

func (n *answering) count(took time.Duration, requests float64) {
	for i := range n.h.UpTo {
		if took.Seconds() <= n.h.UpTo[i] {
			n.h.Counts[i] += requests
		}
	}
}

func (n *answering) runs(seconds int, wants workload.MilliCPU) {
	for range seconds {
		n.step(wants)
	}
}

func (n *answering) objective() *Objective { return n.disturbed[0].Objective }

// slowedDown answers in 5 ms alone, and in 37 ms beside 16 CPUs of batch work.
func slowedDown(batch workload.MilliCPU) time.Duration {
	return 5*time.Millisecond + time.Duration(batch)*2*time.Microsecond
}

func TestObjectiveSqueezesBatch(t *testing.T) {
	t.Parallel()
	n := newAnswering(slowedDown)
	if n.runs(60, 4000); n.share.Percent != 100 || len(n.decisions) != 0 || !n.objective().Measured {
		t.Fatalf("beside little batch work: %+v, %+v, %+v", n.share, n.decisions, n.objective())
	}
	n.runs(20, 16000)
	first := n.decisions[0]
	if first.Action != "squeeze" || first.To == "70 % of its budget" || !strings.Contains(first.Why, "ns/web answers 99 % of its requests within 3") || !strings.Contains(first.Why, "and its objective is 20 ms") {
		t.Errorf("the first cut is %+v", first)
	}
	broken := 0
	for range 600 {
		n.step(16000)
		if n.objective().Seconds > 1.1*bound.Seconds() {
			broken++
		}
	}
	if used := n.share.of(16000); broken > 60 || used < 4000 || used > 8000 {
		t.Errorf("broken for %d of 600 s; batch work has %d, and the objective allows 7500", broken, used)
	}
	n.runs(600, 4000)
	if n.share.Percent != 100 {
		t.Errorf("beside little batch work again: %+v", n.share)
	}
}

// Where the objective is broken by far, batch work gives way within half a minute.
func TestObjectiveBrokenByFar(t *testing.T) {
	t.Parallel()
	n := newAnswering(func(batch workload.MilliCPU) time.Duration {
		return 5*time.Millisecond + 20*time.Microsecond*time.Duration(batch)
	})
	n.runs(30, 16000)
	if used := n.share.of(16000); used > 1500 {
		t.Errorf("batch work has %d after 30 s", used)
	}
}

// A service whose histogram is lost gives batch work nothing, until the objective is forgotten.
func TestObjectiveLost(t *testing.T) {
	t.Parallel()
	n := newAnswering(slowedDown)
	n.runs(60, 16000)
	squeezed := n.share.Percent
	n.silent = true
	n.runs(280, 0)
	if o := n.objective(); n.share.Percent > squeezed+2*boundRise || o.Measured || o.Problem != "connection refused" {
		t.Errorf("batch work has %d %% and had %d: %+v", n.share.Percent, squeezed, o)
	}
	if last := n.decisions[len(n.decisions)-1]; last.Action != "advise" || !strings.Contains(last.Why, "its histogram seconds can't be read: connection refused") {
		t.Errorf("%+v", last)
	}
	n.runs(400, 0)
	if n.share.Percent != 100 {
		t.Errorf("long after that: %+v", n.share)
	}
}

// Few slow requests may have been unlucky, and a service without requests holds nothing back.
func TestObjectiveOfFewRequests(t *testing.T) {
	t.Parallel()
	n := newAnswering(slowedDown)
	n.rate = 1
	n.runs(60, 0)
	if n.runs(120, 16000); len(n.decisions) != 0 {
		t.Errorf("with one request a second: %+v", n.decisions)
	}
	n.rate = 10
	if n.runs(120, 16000); n.share.Percent == 100 {
		t.Error("nothing is squeezed with ten requests a second")
	}
	n.rate = 0
	if n.runs(360, 16000); n.share.Percent != 100 {
		t.Errorf("without requests: %+v", n.share)
	}
}

// A service that breaks its objective without batch work, too, costs batch work only what that adds.
func TestObjectiveBrokenAlone(t *testing.T) {
	t.Parallel()
	n := newAnswering(func(workload.MilliCPU) time.Duration { return 40 * time.Millisecond })
	n.runs(900, 16000)
	if n.share.Percent != 100 {
		t.Errorf("%+v", n.share)
	}
	n.runs(660, 0)
	advice := n.decisions[len(n.decisions)-1]
	if !n.objective().Alone || advice.Action != "advise" || !strings.Contains(advice.Why, "it needs more CPU") {
		t.Errorf("%+v, %+v", n.objective(), advice)
	}
	n.takes = slowedDown
	n.runs(60, 0)
	n.runs(300, 16000)
	if o := n.objective(); o.Alone || o.Seconds > 1.2*bound.Seconds() {
		t.Errorf("once it is fast alone: %+v", o)
	}
}

// A service whose response times vary, and that breaks its objective whatever batch work does, does not
// take batch work's share.
func TestObjectiveBrokenAloneVarying(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rate, varies float64 }{"many requests": {1000, 0.1}, "few requests": {0.1, 0}} {
		random := rand.New(rand.NewPCG(1, 2))
		n := newAnswering(slowedDown)
		n.rate = c.rate
		n.takes = func(workload.MilliCPU) time.Duration {
			return time.Duration(40 * math.Exp(c.varies*random.NormFloat64()) * float64(time.Millisecond))
		}
		sum, seconds := 0, 3600
		for i := range 600 + seconds {
			n.count(40*time.Millisecond, 0.3)
			if n.step(16000); i >= 600 {
				sum += n.share.Percent
			}
		}
		if sum < 50*seconds {
			t.Errorf("%s: batch work has %d %% in the mean of an hour", name, sum/seconds)
		}
	}
}

// A service that was slow alone once, while it started, does not lose its protection by that.
func TestObjectiveAfterWarmUp(t *testing.T) {
	t.Parallel()
	n := newAnswering(func(workload.MilliCPU) time.Duration { return 500 * time.Millisecond })
	n.takes = func(batch workload.MilliCPU) time.Duration { return slowedDown(2 * batch) }
	n.runs(3600, 16000)
	if o := n.objective(); o.Seconds > 1.1*bound.Seconds() || n.share.Percent == 100 {
		t.Errorf("after an hour: %+v, batch work has %d %%", o, n.share.Percent)
	}
}

// What was learned of one objective says nothing about another.
func TestObjectiveReplaced(t *testing.T) {
	t.Parallel()
	n := newAnswering(func(workload.MilliCPU) time.Duration { return 40 * time.Millisecond })
	n.runs(700, 0)
	if !n.objective().Alone {
		t.Fatalf("%+v", n.objective())
	}
	n.Pods[0].SLO.Latency.Metric = "other_seconds"
	n.Pods[0].Latency = observe.Latency{}
	n.runs(1, 16000)
	if o := n.objective(); o.Alone || !o.BrokenAt.IsZero() || o.tolerated != bound.Seconds() || o.lost {
		t.Errorf("%+v", o)
	}
}

// Its own limit, a trial of a culprit, preview: nothing is cut.
func TestObjectiveCutsNothing(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*answering){
		"throttled": func(n *answering) {
			c := n.at("web")
			c.CPU.Periods, c.CPU.Throttled = 10, 5
		},
		"held":    func(n *answering) { n.hold = true },
		"preview": func(n *answering) { n.preview = true },
	} {
		n := newAnswering(slowedDown)
		prepare(n)
		if n.runs(120, 16000); n.share.Percent != 100 || len(n.decisions) > 1 || (len(n.decisions) == 1) != n.preview {
			t.Errorf("%s: %+v, %+v", name, n.share, n.decisions)
		}
	}
}

// A page that fails at times does not repeat the advice.
func TestObjectiveAdviceOnce(t *testing.T) {
	t.Parallel()
	n := newAnswering(func(workload.MilliCPU) time.Duration { return 40 * time.Millisecond })
	n.runs(660, 0)
	for range 20 {
		n.silent = true
		n.runs(25, 0)
		n.silent = false
		n.runs(35, 0)
	}
	if len(n.decisions) != 1 || n.decisions[0].Action != "advise" {
		t.Errorf("%d decisions: %+v", len(n.decisions), n.decisions)
	}
}

// Nothing is cut or grows in preview, whatever was before, and a service that breaks its objective again and
// again is reported a few times.
func TestObjectivePreview(t *testing.T) {
	t.Parallel()
	n := newAnswering(slowedDown)
	n.runs(60, 16000)
	n.preview = true
	before := len(n.decisions)
	n.runs(300, 0)
	if n.share.Percent != 100 || len(n.decisions) != before {
		t.Errorf("%+v, %+v", n.share, n.decisions[before:])
	}
	for range 60 {
		n.runs(5, 16000)
		n.runs(5, 0)
	}
	if len(n.decisions) > before+5 {
		t.Errorf("%d decisions in ten minutes", len(n.decisions)-before)
	}
}

// Whatever is read, the share stays within its bounds, and nothing grows while it is not known how fast a
// service answers.
func TestObjectiveProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := newAnswering(slowedDown)
		for range rapid.IntRange(1, 40).Draw(t, "phases") {
			n.silent, n.rate = rapid.Bool().Draw(t, "silent"), rapid.Float64Range(0, 2000).Draw(t, "rate")
			ms := rapid.Float64Range(0.1, 2000).Draw(t, "ms")
			n.takes = func(workload.MilliCPU) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
			if rapid.IntRange(0, 9).Draw(t, "clock") == 0 {
				n.Now = n.Now.Add(time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "jump")) * time.Second)
			}
			for range rapid.IntRange(1, 60).Draw(t, "seconds") {
				before := n.share.Percent
				n.step(workload.MilliCPU(rapid.IntRange(0, 16000).Draw(t, "wants")))
				if p := n.share.Percent; p < boundLeast || p > 100 {
					t.Fatalf("share %d", p)
				}
				if o := n.objective(); n.share.Percent > before && o.lost {
					t.Fatalf("the share grows from %d to %d while nothing is known: %+v", before, n.share.Percent, o)
				}
			}
		}
	})
}

func TestTimesInWords(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{0: "0 ms", 0.00015: "0.15 ms", 0.0317: "31.7 ms", 0.9994: "999 ms", 0.9996: "1 s", 12.34: "12.3 s", 1e6: "1000000 s"} {
		if got := inTime(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
}
