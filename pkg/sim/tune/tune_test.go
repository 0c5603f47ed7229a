package tune

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

// recorded is a recording of days of a node of 8 cores, with services that have a daily curve.
func recorded(t *testing.T, days int) *recording.Recording {
	t.Helper()
	m, err := synth.Machine("8 cores memory 32G")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d, err := recording.NewDays(&out, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	list := []recording.Container{
		{ID: "web", Ref: "shop/web-0/main", Class: workload.LS, Pool: "online", Request: 3000, Memory: 1 << 30},
		{ID: "pay", Ref: "shop/pay-0/main", Class: workload.LS, Pool: "critical", Request: 1000, Memory: 1 << 30},
		{ID: "job", Ref: "ml/job/main", Class: workload.BE, Pool: "batch"},
	}
	begin := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	for at := time.Duration(0); at < time.Duration(days)*day; at += time.Minute {
		tide := 1 - math.Cos(2*math.Pi*at.Hours()/24)
		cpus := []float64{0.5 + tide, 0.2 + 0.2*tide, 1}
		s := &observe.Snapshot{Now: begin.Add(at)}
		for i := range list {
			s.Containers = append(s.Containers, observe.Container{
				ID: list[i].ID, CPU: observe.ContainerCPU{At: s.Now, Interval: time.Minute, Usage: workload.MilliCPU(1000 * cpus[i])},
				Memory: observe.ContainerMemory{At: s.Now, Anon: 1 << 28, WorkingSet: 1 << 28},
			})
		}
		if err := d.Record(m, list, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := recording.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func options(c *config.Config) Options {
	c.Control.FastInterval = time.Second // fewer steps
	return Options{Config: c, Service: sim.Service{Time: 2 * time.Millisecond, SLO: 40 * time.Millisecond}, Late: -1, Windows: 2}
}

// A budget that leaves much of the node idle is found to be too low, and the tests confirm it; the
// output is a configuration that gives it.
func TestTunesTheThreshold(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Control.Batch.ThresholdPercent = 50
	loads := []Load{{Name: "node", Recording: recorded(t, 2)}}
	r, err := Run(t.Context(), loads, options(c))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Accepted || r.After.BatchCPUs < r.Before.BatchCPUs+1 || r.After.LateFraction > r.Before.LateFraction {
		t.Errorf("%+v", r)
	}
	part, err := config.Parse([]byte(r.Config))
	if err != nil || part.Control.Batch.ThresholdPercent < 85 {
		t.Errorf("%v in\n%s", err, r.Config)
	}
	best := 0
	for _, candidate := range r.Candidates {
		if candidate.Verdict == Best {
			best++
		}
	}
	if best != 1 {
		t.Errorf("%d candidates are the best", best)
	}
	again, err := Run(t.Context(), loads, options(c))
	if err != nil || again.Config != r.Config || *again.After != *r.After {
		t.Errorf("again %+v, %v", again, err)
	}
}

// Where nothing is better by more than noise, nothing is changed.
func TestNoChange(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Control.Batch.ThresholdPercent = 100
	r, err := Run(t.Context(), []Load{{Name: "node", Recording: recorded(t, 2)}}, options(c))
	if err != nil {
		t.Fatal(err)
	}
	if r.Accepted || r.Config != "" || len(r.Settings) != 0 || r.Before != nil || len(r.Candidates) < 10 {
		t.Errorf("%+v", r)
	}
}

// What is better on the training days alone is not accepted: here, services are late on the last
// day because batch work may do more.
func TestTheTestDecides(t *testing.T) {
	t.Parallel()
	present, best := choice{0, 0}, choice{1, 0}
	c := config.Default()
	s := &sim.Scenario{Duration: time.Hour}
	for name, test := range map[string]struct {
		after []sim.Result // of the test pieces
		late  float64
		want  string
	}{
		"late":       {[]sim.Result{{BatchCPUs: 3, LateFraction: 0.02}, {BatchCPUs: 3, LateFraction: 0.02}}, -1, "is late 2.000 %"},
		"allowed":    {[]sim.Result{{BatchCPUs: 3, LateFraction: 0.02}, {BatchCPUs: 3, LateFraction: 0.02}}, 0.03, "confirm"},
		"noise":      {[]sim.Result{{BatchCPUs: 5}, {BatchCPUs: 1.1}}, -1, "by more than noise"},
		"too little": {[]sim.Result{{BatchCPUs: 2.01}, {BatchCPUs: 2.01}}, -1, "by more than noise"},
		"less":       {[]sim.Result{{BatchCPUs: 1}, {BatchCPUs: 1}}, -1, "by more than noise"},
		"better":     {[]sim.Result{{BatchCPUs: 3}, {BatchCPUs: 4}}, -1, "confirm"},
	} {
		tuner := &tuner{options: Options{Late: test.late}, present: c, knobs: knobs(c), train: 1, checked: 1, pieces: []piece{{scenario: s}, {scenario: s}, {scenario: s}}}
		result := func(r sim.Result) *sim.Result { r.ServiceSeconds = 3600; return &r }
		tuner.results = map[string][]*sim.Result{
			present.key(): {result(sim.Result{BatchCPUs: 2}), result(sim.Result{BatchCPUs: 2}), result(sim.Result{BatchCPUs: 2})},
			best.key():    {result(sim.Result{BatchCPUs: 3}), result(test.after[0]), result(test.after[1])},
		}
		r, err := tuner.test(t.Context(), best)
		if err != nil || !strings.Contains(r.Why, test.want) || r.Accepted != (test.want == "confirm") || (r.Config == "") == r.Accepted {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// Each value of each key gives a configuration that is accepted, and differs from the present one in
// that key alone.
func TestKnobs(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.PoolMode{config.Overlap, config.Exclusive} {
		c := config.Default()
		c.Pools.Mode, c.Control.Mode = mode, control.On
		tuner := &tuner{present: c, knobs: knobs(c)}
		for k, knob := range tuner.knobs {
			for v := range knob.values {
				out := tuner.configure(make(choice, len(tuner.knobs)).with(k, v+1))
				text, err := out.YAML()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := config.Parse(text); err != nil {
					t.Errorf("%s: %s: %v", knob.key, knob.values[v].text, err)
				}
				if changes := config.Compare(config.Values(c), config.Values(out)); len(changes) != 1 || changes[0].Key != knob.key {
					t.Errorf("%s: %s: %+v", knob.key, knob.values[v].text, changes)
				}
			}
		}
		if changes := config.Compare(config.Values(c), config.Values(tuner.configure(make(choice, len(tuner.knobs))))); len(changes) != 0 {
			t.Errorf("%+v", changes)
		}
	}
}

func TestTooShort(t *testing.T) {
	t.Parallel()
	for want, loads := range map[string][]Load{
		"two days at least":     {{Name: "node", Recording: recorded(t, 1)}},
		"nothing to tune on":    nil,
		"services in 0 windows": {{Name: "node", Recording: &recording.Recording{End: time.Time{}.Add(72 * time.Hour)}}},
	} {
		if _, err := Run(t.Context(), loads, options(config.Default())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
