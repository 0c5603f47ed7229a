package grade

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

// made is a made container: what it uses at a minute, and the time that its threads wait by the CPU
// time that they use.
type made struct {
	recording.Container
	cpus     func(minute int) float64
	waits    float64 // Unknown: not measured
	pressure float64
	minutes  int
}

func recorded(t *testing.T, all ...made) *recording.Recording {
	t.Helper()
	m, err := synth.Machine("16 cores")
	if err != nil {
		t.Fatal(err)
	}
	r := &recording.Recording{Machine: m, Start: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), Interval: time.Minute}
	r.End = r.Start.Add(10 * time.Hour)
	for _, c := range all {
		track := recording.Track{Container: c.Container}
		for minute := range c.minutes {
			cpu := c.cpus(minute)
			s := recording.Sample{At: time.Duration(minute) * time.Minute, CPU: float32(cpu), Peak: float32(cpu), Waiting: float32(cpu * c.waits), Pressure: float32(c.pressure), Throttled: recording.Unknown}
			if c.waits == recording.Unknown {
				s.Waiting = recording.Unknown
			}
			track.Samples = append(track.Samples, s)
		}
		r.Tracks = append(r.Tracks, track)
	}
	return r
}

func container(ref string, class workload.Class, pool string) recording.Container {
	return recording.Container{ID: ref, Ref: ref + "/main", Class: class, Pool: pool}
}

func steady(cpus float64) func(int) float64 { return func(int) float64 { return cpus } }

func tide(cpus float64) func(int) float64 {
	return func(minute int) float64 { return cpus * (1 - math.Cos(2*math.Pi*float64(minute)/600)) / 2 }
}

func TestGrades(t *testing.T) {
	t.Parallel()
	ls := func(ref string) recording.Container { return container(ref, workload.LS, "online") }
	all := []made{
		{ls("shop/pay-5d4f8c9b7d-bcdf2"), tide(0.3), 0.2, 0.1, 600},
		{ls("shop/pay-5d4f8c9b7d-bcdf4"), tide(0.3), 0.2, 0.1, 600},
		{ls("shop/web-0"), tide(2), 0.02, 0.9, 600},
		{ls("shop/search-0"), tide(4), 0.2, 0.1, 600},                      // large
		{ls("shop/cache-0"), tide(0.3), recording.Unknown, 0.3, 600},       // by its pressure
		{ls("shop/odd-0"), tide(0.3), recording.Unknown, -1, 600},          // nothing measured
		{ls("ml/index-0"), steady(1), 0.01, 0, 600},                        // computes
		{ls("ml/small-0"), steady(0.1), 0.01, 0, 600},                      // too little to be worth it
		{ls("ml/solver-0"), steady(2), 0.3, 0, 600},                        // waits
		{container("ml/train-0", workload.BE, "batch"), tide(2), 1, 0, 60}, // is batch work
		{container("db/db-0", workload.LSE, ""), tide(0.3), 0.2, 0, 600},
		{ls("new/new-0"), tide(0.3), 0.2, 0, 59},
	}
	grades := Grades([]*recording.Recording{recorded(t, all...)})
	want := map[string]Grade{
		"shop/pay": Critical, "shop/web": Online, "shop/search": Online, "shop/cache": Critical, "shop/odd": Online,
		"ml/index": Batch, "ml/small": Online, "ml/solver": Online, "ml/train": Batch, "db/db": Kept, "new/new": Kept,
	}
	if len(grades) != len(want) || !slices.IsSortedFunc(grades, func(a, b Workload) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%+v", grades)
	}
	for _, w := range grades {
		if w.Grade != want[w.Name] {
			t.Errorf("%s is %s (%s), want %s", w.Name, w.Grade, w.Why, want[w.Name])
		}
		if w.Name == "shop/pay" && (w.Pods != 2 || math.Abs(w.MeanCPUs-0.15) > 0.01 || math.Abs(*w.WaitsRatio-0.2) > 0.01 || w.Hours != 10 || math.Abs(w.P99CPUs-0.6) > 0.01) {
			t.Errorf("%+v", w)
		}
	}
}

// The critical pool stays small: the least sensitive workloads are left out.
func TestBound(t *testing.T) {
	t.Parallel()
	var all []made
	for i := range 10 {
		all = append(all, made{container(fmt.Sprintf("shop/w%dx-0", i), workload.LS, "online"), steady(0.7), 0.2 + float64(i)/10, 0, 600})
	}
	sum := 0.0
	for i, w := range Grades([]*recording.Recording{recorded(t, all...)}) {
		if w.Grade == Critical {
			sum += w.P99CPUs
		}
		if critical := w.Grade == Critical; critical != (i >= 5) { // 5 × 0.7 of 16 CPUs × 25 %
			t.Errorf("%s is %s: %s", w.Name, w.Grade, w.Why)
		}
	}
	if sum > criticalPart*16 {
		t.Errorf("the critical pool has %v CPUs", sum)
	}
}

// Rules are a part of the configuration that puts the pods of alike namespaces where they belong,
// after the rules that were there.
func TestRules(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte("classify: [{namespaces: [old], set: {class: BE}}]"))
	if err != nil {
		t.Fatal(err)
	}
	w := func(name, pool string, g Grade) Workload { return Workload{Name: name, Pool: pool, Grade: g} }
	rules, mixed := Rules([]Workload{
		w("pay/a", "online", Critical), w("pay/b", "critical", Critical),
		w("ml/a", "online", Batch),
		w("web/a", "online", Online),
		w("back/a", "critical", Online),
		w("mix/a", "online", Critical), w("mix/b", "online", Online),
		w("kept/a", "online", Kept),
	}, c)
	text, err := Classify(c, rules)
	if err != nil {
		t.Fatal(err)
	}
	part, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var got []string
	for _, r := range part.Classify {
		got = append(got, fmt.Sprintf("%v %s%s", r.Namespaces, r.Set["class"].Text, r.Set["pool"].Text))
	}
	if want := "[old] BE;[back] online;[ml] BE;[pay] critical"; strings.Join(got, ";") != want || fmt.Sprint(mixed) != "[mix]" {
		t.Errorf("%s, want %s; mixed %v", strings.Join(got, ";"), want, mixed)
	}
	if text, err := Classify(c, nil); text != "" || err != nil {
		t.Errorf("no rules are %q, %v", text, err)
	}
	c.Pools.List = c.Pools.List[1:] // without a critical pool
	if rules, _ := Rules([]Workload{w("pay/a", "online", Critical)}, c); len(rules) != 0 {
		t.Errorf("%+v", rules)
	}
}
