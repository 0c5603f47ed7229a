package control

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// busy returns a node with that many CPUs and that usage, with containers by class and usage.
func busy(capacity, node float64, containers ...Container) *View {
	v := &View{Now: start, ThreadsPerCore: 1}
	v.Capacity = workload.MilliCPU(capacity * 1000)
	v.Allocatable, v.Shared = v.Capacity, v.Capacity
	v.Node.CPU = observe.NodeCPU{At: start, Usage: workload.MilliCPU(node * 1000)}
	v.Containers = containers
	return v
}

func using(class workload.Class, load float64) Container {
	return Container{Class: class, Container: observe.Container{CPU: observe.ContainerCPU{At: start, Usage: workload.MilliCPU(load * 1000)}}}
}

// at moves the view and its measurements to a time.
func at(v *View, now time.Time) *View {
	v.Now, v.Node.CPU.At = now, now
	for i := range v.Containers {
		v.Containers[i].CPU.At = now
	}
	return v
}

func TestBatchBudget(t *testing.T) {
	t.Parallel()
	pin := using(workload.LSE, 3)
	pin.Pool = -1
	silent := Container{Class: workload.LS, Request: 5000}
	for name, c := range map[string]struct {
		cfg    BatchConfig
		view   *View
		change func(*View)
		want   Budget
	}{
		"koordinator's example":  {BatchConfig{ThresholdPercent: 70}, busy(20, 12, using(workload.LS, 8), using(workload.BE, 2)), nil, Budget{Amount: 4000, CPUs: 4}},
		"with a floor":           {BatchConfig{ThresholdPercent: 70, FloorPercent: 60}, busy(20, 12, using(workload.LS, 8), using(workload.BE, 2)), nil, Budget{Amount: 12000, CPUs: 12}},
		"an unknown pod":         {BatchConfig{ThresholdPercent: 70}, busy(20, 11, using(workload.Unclassified, 8), using(workload.BE, 4)), nil, Budget{Amount: 6000, CPUs: 6}},
		"reserved":               {BatchConfig{ThresholdPercent: 70, Reserved: 3000}, busy(20, 12, using(workload.LS, 8), using(workload.BE, 2)), nil, Budget{Amount: 3000, CPUs: 3}},
		"less reserved":          {BatchConfig{ThresholdPercent: 70, Reserved: 1000}, busy(20, 12, using(workload.LS, 8), using(workload.BE, 2)), nil, Budget{Amount: 4000, CPUs: 4}},
		"as shipped":             {BatchConfig{}, busy(20, 0), nil, Budget{Amount: 13000, CPUs: 13}},
		"as shipped, isolated":   {BatchConfig{}, busy(20, 1), func(v *View) { v.Isolated = true }, Budget{Amount: 19000, CPUs: 19}},
		"pins and their CPUs":    {BatchConfig{ThresholdPercent: 50}, busy(20, 8, pin, using(workload.LS, 2)), func(v *View) { v.Shared = 16000 }, Budget{Amount: 3000, CPUs: 3}},
		"no more than is shared": {BatchConfig{ThresholdPercent: 70}, busy(20, 1), func(v *View) { v.Shared, v.Allocatable = 8000, 8000 }, Budget{Unlimited: true, Amount: 8000, CPUs: 8}},
		"the least":              {BatchConfig{ThresholdPercent: 70, FloorCPUs: 2}, busy(20, 19), nil, Budget{Amount: 200, CPUs: 2}},
		"whole cores":            {BatchConfig{ThresholdPercent: 50}, busy(20, 7), func(v *View) { v.ThreadsPerCore = 2 }, Budget{Amount: 3000, CPUs: 4}},
		"squeezed":               {BatchConfig{ThresholdPercent: 70, FloorPercent: 5}, busy(20, 2), func(v *View) { v.Batch.Squeeze = true }, Budget{Amount: 1000, CPUs: 1}},
		"squeezed by half":       {BatchConfig{ThresholdPercent: 70}, busy(20, 2), func(v *View) { v.Batch.Squeeze, v.Batch.Percent = true, 50 }, Budget{Amount: 6000, CPUs: 6}},
		"bounded":                {BatchConfig{ThresholdPercent: 70}, busy(20, 2), func(v *View) { v.Share.Percent = 50 }, Budget{Amount: 6000, CPUs: 6}},
		"bounded and squeezed":   {BatchConfig{ThresholdPercent: 70}, busy(20, 2), func(v *View) { v.Batch.Squeeze, v.Batch.Percent, v.Share.Percent = true, 50, 50 }, Budget{Amount: 3000, CPUs: 3}},
		"bounded, on its floor":  {BatchConfig{ThresholdPercent: 70, FloorPercent: 15}, busy(20, 2), func(v *View) { v.Share.Percent = 5 }, Budget{Amount: 3000, CPUs: 3}},
		"a floor among pins":     {BatchConfig{ThresholdPercent: 70, FloorPercent: 60}, busy(20, 20), func(v *View) { v.Shared = 5000 }, Budget{Unlimited: true, Amount: 5000, CPUs: 5}},
		"pins alone":             {BatchConfig{ThresholdPercent: 70, FloorPercent: 60, FloorCPUs: 2}, busy(20, 20), func(v *View) { v.Shared = 0 }, Budget{Unlimited: true}},
		"a silent container":     {BatchConfig{ThresholdPercent: 70}, busy(20, 2, silent), nil, Budget{Amount: 9000, CPUs: 9}},
		"a silent node at first": {BatchConfig{ThresholdPercent: 70}, busy(20, 2), func(v *View) { v.Node.CPU.At = time.Time{} }, Budget{Hold: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.change != nil {
				c.change(c.view)
			}
			if got, _ := NewBatch(c.cfg, time.Second).Step(c.view); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestBatchSteps checks the steps on a node of 80 CPUs towards a budget of 20.
func TestBatchSteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, want workload.MilliCPU // 0 for unlimited
	}{{10000, 18000}, {19000, 20000}, {24000, 20000}, {19800, 19800}, {20300, 20300}, {0, 20000}} {
		b := NewBatch(BatchConfig{ThresholdPercent: 65, GrowPercent: 10}, time.Second)
		b.now, b.limited = c.from, c.from > 0
		b.used.add(start.Add(-settleTime), 32000)
		got, told := b.Step(busy(80, 32))
		if got.Amount != c.want || (len(told) > 0) != (c.from != c.want) {
			t.Errorf("from %s: %+v, want %s; told %v", c.from, got, c.want, told)
		}
	}
}

// TestBatchThatYields checks batch work that the kernel preempts at once: online work of short
// duration does not lower its budget, a lasting load does, and the budget returns when that load
// ends.
func TestBatchThatYields(t *testing.T) {
	t.Parallel()
	b := NewBatch(BatchConfig{GrowPercent: 10}, time.Second)
	now := start
	step := func(used float64, ticks int) (last workload.MilliCPU) {
		for range ticks {
			v := busy(20, used)
			now = now.Add(100 * time.Millisecond)
			v.Now, v.Node.CPU.At, v.Isolated = now, now, true
			got, _ := b.Step(v)
			last = got.Amount
		}
		return last
	}
	for i, c := range []struct {
		used  float64
		ticks int
		want  workload.MilliCPU
	}{{4, 30, 16000}, {14, 10, 16000}, {4, 10, 16000}, {14, 30, 6000}, {4, 3, 12000}, {4, 10, 16000}} {
		if got := step(c.used, c.ticks); got != c.want {
			t.Errorf("%d: batch may use %s, want %s", i, got, c.want)
		}
	}
}

// TestBatchIsExact checks the budget although the node's usage is counted in clock ticks and that
// of pods is not: batch work gets all that is really left, and less at once when pods use more.
func TestBatchIsExact(t *testing.T) {
	t.Parallel()
	const left = 13000 - 4000 - 1000 // 65 % of 20 CPUs, less the usage of LS pods and of the system
	b := NewBatch(BatchConfig{GrowPercent: 10}, time.Second)
	r := rand.New(rand.NewPCG(1, 2))
	now := start
	step := func(online workload.MilliCPU) workload.MilliCPU {
		now = now.Add(tick)
		v := busy(20, 0, using(workload.BE, 8))
		noise := workload.MilliCPU(r.Int64N(2000)) - 1000
		v.Now, v.Node.CPU.At, v.Node.CPU.Usage = now, now, online+8000+1000+noise
		v.BatchUse, v.PodsUse = Use{At: now, Usage: 8000}, Use{At: now, Usage: 8000 + online}
		got, _ := b.Step(v)
		return got.Amount
	}
	for range 50 {
		step(4000)
	}
	for range 100 {
		if got := step(4000); got < left-700 || got > left+200 {
			t.Errorf("batch may use %s of %d", got, left)
		}
	}
	if got := step(10000); got > left-6000+200 {
		t.Errorf("batch may use %s beside a load that has come", got)
	}
}

// TestBatchCase follows a budget through a night with failures.
func TestBatchCase(t *testing.T) {
	t.Parallel()
	b := NewBatch(BatchConfig{ThresholdPercent: 70, GrowPercent: 10}, time.Second)
	v := busy(20, 4, using(workload.LS, 4))
	v.Containers[0].Request = 12000
	now := start
	for _, c := range []struct {
		what   string
		load   float64
		change func()
		after  time.Duration
		want   workload.MilliCPU
		action string
	}{
		{"begins", 4, nil, 0, 10000, "squeeze"},
		{"online rises", 9, nil, tick, 5000, "squeeze"},
		{"and falls", 4, nil, tick, 5000, ""},
		{"not long enough", 4, nil, 1800 * time.Millisecond, 5000, ""},
		{"long enough", 4, nil, 200 * time.Millisecond, 7000, "grow"},
		{"again", 4, nil, tick, 9000, "grow"},
		{"and all", 4, nil, tick, 10000, "grow"},
		{"a little", 4.1, nil, tick, 10000, ""},
		{"a window closes", 4.1, func() { v.Batch = BatchState{Squeeze: true, Why: "night"} }, tick, 200, "squeeze"},
		{"and opens", 4.1, func() { v.Batch = BatchState{} }, tick, 2200, "grow"},
		{"rises", 1, nil, time.Second, 4200, "grow"},
		{"rises on", 1, nil, 2 * time.Second, 6200, "grow"},
		{"the clock goes back", 1, func() { now = now.Add(-time.Hour) }, 0, 6200, ""},
		{"rises after a while", 1, nil, 2 * time.Second, 8200, "grow"},
		{"and far ahead", 1, func() { now = now.Add(24 * time.Hour) }, 0, 8200, ""},
		{"rises again", 1, nil, 2 * time.Second, 10200, "grow"},
	} {
		if c.change != nil {
			c.change()
		}
		now = now.Add(c.after)
		v.Node.CPU.Usage, v.Containers[0].CPU.Usage = workload.MilliCPU(c.load*1000), workload.MilliCPU(c.load*1000)
		got, told := b.Step(at(v, now))
		if got.Amount != c.want || len(told) > 1 || (len(told) == 1) != (c.action != "") || len(told) == 1 && told[0].Action != c.action {
			t.Fatalf("%s: %+v, told %v; want %s, %s", c.what, got, told, c.want, c.action)
		}
	}
	v.Now = now.Add(4 * time.Second) // no newer measurement, so requests count
	if got, told := b.Step(v); got.Amount != 2000 || told[0].Action != "squeeze" || !b.lost {
		t.Errorf("stale: %+v, told %v", got, told)
	}
	v.Now = v.Now.Add(time.Second)
	if got, told := b.Step(v); got.Amount != 2000 || told != nil {
		t.Errorf("still stale: %+v, told %v", got, told)
	}
	if got, told := b.Step(at(v, v.Now.Add(time.Second))); got.Amount != 2000 || told != nil {
		t.Errorf("measured again: %+v, told %v", got, told)
	}
	if got, told := b.Step(at(v, v.Now.Add(time.Second))); got.Amount != 2000 || told[0].Action != "fresh" {
		t.Errorf("measured again for a while: %+v, told %v", got, told)
	}
}

// On a busy node every other measurement may be too late. That counts as one loss of measurements.
func TestLateMeasurementsAreOneLoss(t *testing.T) {
	t.Parallel()
	b := NewBatch(BatchConfig{ThresholdPercent: 60, GrowPercent: 100, FloorPercent: 10}, 100*time.Millisecond)
	v := busy(2, 2, using(workload.LS, 2), using(workload.BE, 0)) // batch work has its floor by usage as well as by requests
	v.Containers[0].Request = 2000
	var actions []string
	step := func(measured bool) {
		v.Now = v.Now.Add(100 * time.Millisecond)
		if measured {
			at(v, v.Now)
		}
		_, told := b.Step(v)
		for _, d := range told {
			actions = append(actions, d.Action)
		}
	}
	for range 30 {
		step(true)
	}
	for range 100 {
		for range 4 {
			step(false)
		}
		step(true)
	}
	for range 30 {
		step(true)
	}
	if got, want := strings.Join(actions, " "), "squeeze stale fresh"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

// TestBudgetNeverPasses checks that batch work and all others together never have more than the
// threshold by the latest measurement, except for the floor and for changes too small to make, and
// that the budget grows no faster than allowed.
func TestBudgetNeverPasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := BatchConfig{ThresholdPercent: rapid.IntRange(10, 100).Draw(t, "threshold"), FloorPercent: rapid.IntRange(0, 30).Draw(t, "floor"), GrowPercent: 10, FloorCPUs: 2}
		b, twin := NewBatch(cfg, time.Second), NewBatch(cfg, time.Second)
		v := busy(float64(rapid.IntRange(1, 64).Draw(t, "capacity")), 0, using(workload.LS, 0), using(workload.BE, 0))
		v.Shared = v.Capacity - workload.MilliCPU(rapid.IntRange(0, int(v.Capacity/1000)-1).Draw(t, "pinned"))*1000
		var had Budget
		for i := range 100 {
			online := rapid.Int64Range(0, int64(v.Capacity)).Draw(t, "online")
			v.Containers[0].CPU.Usage = workload.MilliCPU(online)
			v.Containers[1].CPU.Usage = workload.MilliCPU(rapid.Int64Range(0, int64(v.Capacity)).Draw(t, "batch"))
			v.Node.CPU.Usage = v.Containers[0].CPU.Usage + v.Containers[1].CPU.Usage
			at(v, v.Now.Add(tick))
			got, _ := b.Step(v)
			if again, _ := twin.Step(v); again != got {
				t.Fatalf("the same inputs gave %+v and %+v", got, again)
			}
			floor := min(max(v.Capacity*workload.MilliCPU(cfg.FloorPercent)/100, 200), v.Shared)
			room := v.Capacity - v.Allocatable + v.Shared
			most := max(room*workload.MilliCPU(cfg.ThresholdPercent)/100-workload.MilliCPU(online), floor)
			if got.Amount > most+v.Capacity/100 || got.Amount < floor || got.Amount > v.Shared {
				t.Fatalf("budget %s, at most %s, at least %s", got.Amount, most, floor)
			}
			if i > 0 && got.Amount > had.Amount+v.Capacity/10 {
				t.Fatalf("from %s to %s at once", had.Amount, got.Amount)
			}
			if got.CPUs*1000 < int(got.Amount) && got.CPUs*1000 < int(v.Shared) {
				t.Fatalf("%d CPUs don't hold %s", got.CPUs, got.Amount)
			}
			had = got
		}
	})
}

// TestFewSqueezes counts the changes of the budget under a noisy load.
func TestFewSqueezes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	b := NewBatch(DefaultConfig().Batch, time.Second)
	v := busy(64, 0, using(workload.LS, 0))
	changes, given, left := 0, 0., 0.
	const steps = 36000 // steps in an hour
	for range steps {
		load := workload.MilliCPU(16000 * (1 + .2*(2*r.Float64()-1)))
		v.Containers[0].CPU.Usage, v.Node.CPU.Usage = load, load
		got, told := b.Step(at(v, v.Now.Add(tick)))
		changes += len(told)
		given += float64(got.Amount)
		left += float64(64000*65/100 - load)
	}
	if perMinute := changes / 60; perMinute > 60 {
		t.Errorf("%d changes a minute", perMinute)
	}
	if given < .85*left {
		t.Errorf("batch got %.0f%% of what is left", 100*given/left)
	}
	t.Logf("%d changes an hour, %.1f%% of what is left", changes, 100*given/left)
}

func BenchmarkBatch(b *testing.B) {
	v := busy(64, 30)
	for i := range 500 {
		v.Containers = append(v.Containers, using([]workload.Class{workload.LS, workload.BE}[i%2], .05))
	}
	batch := NewBatch(DefaultConfig().Batch, time.Second)
	batch.Step(v)
	b.ReportAllocs()
	for b.Loop() {
		at(v, v.Now.Add(tick))
		if _, told := batch.Step(v); told != nil {
			b.Fatal(fmt.Sprint(told))
		}
	}
}
