package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// A pool grows to the forecast before the load comes, does not shrink below it, and gives the
// CPUs back when it is gone.
func TestPoolsFollowTheForecast(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{15, 20, 29}, []int{24, 32, 0})
	b.load = cpuLoads(6, 10, 99)
	b.run(time.Minute, tick)
	b.view.Forecasts.Pools = cpuLoads(0, 15)
	b.told = nil
	if sizes := b.step(tick); sizes[1] != 25 { // 15 CPUs are 60 % of 25
		t.Errorf("sizes %v", sizes)
	}
	if len(b.told) == 0 || !strings.Contains(b.told[0].Why, "expected to reach 15 CPUs in the next 10m0s, 60% of 25") {
		t.Errorf("decisions %+v", b.told)
	}
	if sizes := b.run(10*time.Minute, tick); sizes[1] != 25 {
		t.Errorf("after ten minutes of low load: %v", sizes)
	}
	b.view.Forecasts.Pools = nil
	if sizes := b.run(20*time.Minute, tick); sizes[1] >= 25 {
		t.Errorf("without a forecast: %v", sizes)
	}
}

// A forecast takes CPUs from the batch pool alone, and not its minimum. Load that is there comes
// before load that is expected.
func TestForecastsComeAfterLoad(t *testing.T) {
	t.Parallel()
	law := shipped()
	law[1].RCFMax = 1000
	b := newBench(law, []int{15, 20, 29}, []int{24, 32, 0})
	b.load = cpuLoads(6, 10, 20)
	b.run(time.Minute, tick)
	b.view.Forecasts.Pools = cpuLoads(0, 100)
	sizes := b.run(time.Minute, tick)
	if sizes[0] != 15 || sizes[2] != law[2].Min {
		t.Errorf("a forecast for more than the node has: %v", sizes)
	}
	b.load = cpuLoads(11, 10, 20)
	if sizes = b.run(5*time.Second, tick); sizes[0] < 22 {
		t.Errorf("the load of the higher pool comes second: %v", sizes)
	}
}

// A pool that is a little over its band takes from busy batch work what a forecast for a lower pool would take in the same step.
func TestLoadComesBeforeALowerForecast(t *testing.T) {
	t.Parallel()
	law := shipped()
	law[0].RCFMax, law[1].RCFMax = 1000, 1000
	b := newBench(law, []int{10, 10, 12}, []int{10, 10, 0})
	b.load = cpuLoads(6.1, 5.9, 99)
	b.view.Forecasts.Pools = cpuLoads(0, 60)
	if sizes := b.step(tick); sizes[0] <= 10 {
		t.Errorf("the pool that has load gets nothing: %v", sizes)
	}
}

// Where a forecast counts, the long-term offer is what requests have above it, and the short-term
// offer leaves room for it.
func TestOfferCountsWithForecasts(t *testing.T) {
	t.Parallel()
	s := newScene(10)
	web := s.run("web", workload.LS, 2000, 0)
	web.Memory, web.CPU.Usage = 2*testGiB, 100
	web.Container.Memory.WorkingSet, web.Container.Memory.Anon = testGiB/2, testGiB/2
	s.Node.CPU.Usage, s.Node.Memory.Available = 100, s.MemoryTotal-testGiB/2
	before, _ := firstOffer(t, newOffering(Peaks{}), s.second)
	s.Forecasts = Forecasts{Soon: Amount{CPU: 550}, Long: Amount{CPU: 550, MemoryBytes: testGiB}}
	offer, _ := firstOffer(t, newOffering(Peaks{}), s.second)
	if offer.LongTerm != (Amount{1450, testGiB}) {
		t.Errorf("long-term offer %+v, want what a request of 2 CPUs and 2 GiB leaves above 0.55 CPUs and 1 GiB", offer.LongTerm)
	}
	if offer.ShortTerm.CPU != before.ShortTerm.CPU-450 || offer.ShortTerm.MemoryBytes != before.ShortTerm.MemoryBytes {
		t.Errorf("short-term offer %+v, without a forecast %+v", offer.ShortTerm, before.ShortTerm)
	}
	s.Node.CPU.Usage = 5900 // of the system
	if offer, _ = firstOffer(t, newOffering(Peaks{}), s.second); offer.LongTerm.CPU != offer.ShortTerm.CPU {
		t.Errorf("more is offered for long, %v, than is free, %v", offer.LongTerm.CPU, offer.ShortTerm.CPU)
	}
}

// After days with the same course, the node, its pools and its workloads are forecast, and those
// who restarted go on with what was learned.
func TestPredictionLearns(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	for _, name := range []string{"web-5d4f8c9b7d-bcdf2", "web-5d4f8c9b7d-ghjk4", "job"} {
		s.run(name, map[bool]workload.Class{true: workload.BE}[name == "job"], 4000, 0)
	}
	s.Pods[0].Class, s.Pods[1].Class = workload.LS, workload.LS
	cfg := DefaultConfig().Prediction
	p := NewPrediction(cfg, time.Minute, nil)
	var f *Forecasts
	for minute := range 4*24*60 + 9*60 - 5 {
		at := workload.MilliCPU(1000)
		if hour := (minute / 60) % 24; hour == 9 || hour == 10 {
			at = 3000
		}
		s.Pools[1].Usage = 2 * at
		s.Containers[0].CPU.Usage, s.Containers[1].CPU.Usage, s.Containers[2].CPU.Usage = at, at, 9000
		v := s.pass(time.Minute)
		s.Pools[1].At = s.Now
		if minute == 3*24*60 { // a restart
			p = NewPrediction(cfg, time.Minute, p.Set())
		}
		f = p.Step(v, Amount{CPU: 2*at + 500, MemoryBytes: testGiB}, true)
	}
	if got := f.pool(1); got < 6000 || got > 7500 {
		t.Errorf("pool: %v CPUs", got)
	}
	if got := f.Soon.CPU; got < 6500 || got > 8000 || f.Long.CPU < got || f.pool(0) != 0 || f.pool(9) != 0 {
		t.Errorf("node: %+v, %+v", f.Soon, f.Long)
	}
	got := p.Set().Forecast(s.Now, predict.Key{Kind: predict.Workload, Name: "ns/web", Resource: predict.CPU}, soon)
	if !got.Trusted || got.Peak < 6 || got.Peak > 7.5 || p.Set().Len() != 9 {
		t.Errorf("workload: %+v, and %d series", got, p.Set().Len())
	}
	batch := p.Set().Forecast(s.Now, classKey(workload.BE, predict.CPU), soon)
	if online := p.Set().Forecast(s.Now, classKey(workload.LS, predict.CPU), soon); online.Peak != got.Peak || batch.Peak < 9 || batch.Peak > 11 {
		t.Errorf("classes: %+v, %+v", online, batch)
	}
	names := []string{}
	for _, f := range p.Report(&s.View) {
		names = append(names, f.Object+" "+string(f.Resource))
	}
	if want := []string{"node cpu", "node memory", "pool online cpu", "class LS cpu", "class LS memory", "class BE cpu", "class BE memory"}; !slices.Equal(names, want) {
		t.Errorf("reported: %q", names)
	}
}

// A class that has no pods any more uses nothing, and one that never had pods is not forecast.
func TestClassWithoutPods(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	s.run("web", workload.LS, 4000, 1000)
	p := NewPrediction(DefaultConfig().Prediction, time.Minute, nil)
	p.Step(s.pass(time.Minute), Amount{}, false)
	s.Pods, s.Containers = nil, nil
	for range 2 * 24 * 60 {
		p.Step(s.pass(time.Minute), Amount{}, false)
	}
	if f := p.Set().Forecast(s.Now, classKey(workload.LS, predict.CPU), soon); !f.Trusted || f.Peak > 0.1 {
		t.Errorf("LS: %+v", f)
	}
	if p.Set().Has(classKey(workload.BE, predict.CPU)) {
		t.Error("BE is forecast")
	}
}

// A workload that requests three times its expected peak or more is reported with both.
func TestOverAskingWorkloads(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	s.run("web-0", workload.LS, 4000, 0)
	s.run("web-1", workload.LS, 4000, 0)
	s.run("db-0", workload.LS, 2000, 0)
	s.run("tiny-0", workload.LS, 100, 0)
	for i, use := range []workload.MilliCPU{1000, 1000, 1500, 1} {
		s.Containers[i].CPU.Usage = use
	}
	p := NewPrediction(DefaultConfig().Prediction, time.Minute, nil)
	for minute := range 30 * 60 {
		p.Step(s.pass(time.Minute), Amount{}, false)
		if got := overAsks(p.Report(&s.View)); len(got) > 0 && minute < 24*60 {
			t.Fatalf("after %d minutes: %+v", minute, got)
		}
	}
	got := overAsks(p.Report(&s.View))
	if len(got) != 1 || got[0].Object != "workload ns/web" || got[0].Requested != (Amount{CPU: 8000}) || got[0].Day.CPU < 2200 || got[0].Day.CPU > 2400 {
		t.Errorf("%+v", got)
	}
}

// overAsks returns the forecasts of workloads.
func overAsks(all []PeakForecast) []PeakForecast {
	return slices.DeleteFunc(all, func(f PeakForecast) bool { return !strings.HasPrefix(f.Object, "workload ") })
}

func TestPredictionCheck(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig().Prediction
	if p := cfg.Check(); len(p) != 0 {
		t.Errorf("problems of the shipped config: %v", p)
	}
	if p := (&PredictionConfig{CPUPercentile: 101, MemoryPercentile: 49, MarginPercent: -1, ConfidencePercent: 101}).Check(); len(p) != 6 {
		t.Errorf("problems %v", p)
	}
}

func TestPredictionAllocs(t *testing.T) {
	p := NewPrediction(DefaultConfig().Prediction, time.Second, nil)
	s := fiveHundred()
	for range 600 { // each series' period is searched once
		p.Step(s.second(), Amount{}, true)
	}
	if n := testing.AllocsPerRun(20, func() { p.Step(s.second(), Amount{}, true) }); n > 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

func BenchmarkPrediction(b *testing.B) {
	p := NewPrediction(DefaultConfig().Prediction, time.Second, nil)
	benchSteps(b, func(v *View) { p.Step(v, Amount{CPU: 5000, MemoryBytes: testGiB}, true) })
}
