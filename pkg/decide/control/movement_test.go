package control

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// budgetStep returns a step of the batch budget, in thousandths of a CPU.
func budgetStep(from, to int, why string) *Decision {
	d := &Decision{Controller: "batch", Object: "node", Action: "grow", Why: why, Moves: "budget", Facts: []Fact{{"others_cpus", float64(4000-to) / 1000}}}
	if to < from {
		d.Action = "squeeze"
	}
	d.From, d.To = fmt.Sprint(from), fmt.Sprint(to)
	return d
}

func TestMovements(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	type step struct {
		at   time.Duration
		mode Mode
		d    *Decision
	}
	other := &Decision{Controller: "batch", Object: "node", Action: "stale", Why: "unknown"}
	for name, test := range map[string]struct {
		steps []step
		want  string // what is reported at the end, the oldest first
	}{
		"one way": {[]step{
			{0, On, budgetStep(3000, 2500, "others use 1 CPU")},
			{100 * time.Millisecond, On, budgetStep(2500, 2000, "others use 2 CPUs")},
			{9 * time.Second, On, budgetStep(2000, 1000, "others use 3.5 CPUs")},
		}, "squeeze, 3000 to 1000 in 3 steps over 9s: others use 3.5 CPUs"},
		"there and back": {[]step{
			{0, On, budgetStep(3000, 2500, "a")}, {time.Second, On, budgetStep(2500, 2000, "a")},
			{2 * time.Second, On, budgetStep(2000, 2500, "a")}, {3 * time.Second, On, budgetStep(2500, 2600, "a")},
			{4 * time.Second, On, budgetStep(2600, 2500, "a")},
		}, "squeeze, 3000 to 2000 in 2 steps over 1s: a; grow, 2000 to 2600 in 2 steps over 1s: a; squeeze, 2600 to 2500: a"},
		"a rest": {[]step{
			{0, On, budgetStep(3000, 2500, "a")}, {10 * time.Second, On, budgetStep(2500, 2000, "a")},
		}, "squeeze, 3000 to 2500: a; squeeze, 2500 to 2000: a"},
		"another mode": {[]step{
			{0, Preview, budgetStep(3000, 2500, "a")}, {time.Second, On, budgetStep(3000, 2500, "a")},
		}, "squeeze, 3000 to 2500: a; squeeze, 3000 to 2500: a"},
		"the clock goes back": {[]step{
			{time.Hour, On, budgetStep(3000, 2500, "a")}, {0, On, budgetStep(2500, 2000, "a")},
		}, "squeeze, 3000 to 2500: a; squeeze, 2500 to 2000: a"},
		"another reason": {[]step{
			{0, On, budgetStep(3000, 2500, "others use 12 MiB")}, {time.Second, On, budgetStep(2500, 2000, "others use 1.5 GiB")},
			{2 * time.Second, On, budgetStep(2000, 1000, "the switch says so")},
		}, "squeeze, 3000 to 1000 in 3 steps over 2s: at first: others use 12 MiB; at last: the switch says so"},
		"no movement between": {[]step{
			{0, On, budgetStep(3000, 2500, "a")}, {time.Second, On, other}, {2 * time.Second, On, budgetStep(2500, 2000, "a")},
		}, "squeeze, 3000 to 2000 in 2 steps over 2s: a; stale: unknown"},
		"values apart": {[]step{
			{0, On, &Decision{Object: "class be", Action: "narrow cache", Moves: "cache", To: "80"}},
			{0, On, &Decision{Object: "class be", Action: "narrow bandwidth", Moves: "bandwidth", To: "90"}},
			{time.Second, On, &Decision{Object: "class be", Action: "narrow cache", Moves: "cache", To: "70"}},
			{time.Second, On, &Decision{Object: "class web", Action: "narrow cache", Moves: "cache", To: "90"}},
		}, "narrow cache, 70 in 2 steps over 1s: ; narrow bandwidth, 90: ; narrow cache, 90: "},
	} {
		var m Movements
		var all []ReportedDecision
		put := func(d ReportedDecision) {
			for i := range all {
				if o := &all[i]; o.Time.Equal(d.Time) && o.Mode == d.Mode && o.Object == d.Object && o.Action == d.Action {
					*o = d
					return
				}
			}
			all = append(all, d)
		}
		var now time.Time
		for _, s := range test.steps {
			now = begin.Add(s.at)
			ended, told := m.Add(now, s.mode, s.d)
			for _, d := range ended {
				put(d)
			}
			if told.Ongoing != (s.d.Moves != "") {
				t.Errorf("%s: after %v it is going: %v", name, s.at, told.Ongoing)
			}
			put(told)
		}
		if got := m.Rest(now.Add(movementRest-1), false); len(got) > 0 && got[0].LastStepAt.Equal(now) {
			t.Errorf("%s: it ended too early", name)
		} else {
			for _, d := range got {
				put(d)
			}
		}
		for _, d := range m.Rest(now.Add(movementRest), false) {
			put(d)
		}
		var texts []string
		for i := range all {
			if all[i].Ongoing {
				t.Errorf("%s: %s has not ended", name, all[i].Change())
			}
			texts = append(texts, all[i].Change()+": "+all[i].Why)
		}
		if got := strings.Join(texts, "; "); got != test.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, test.want)
		}
	}
}

// A movement has the facts of its first and of its last step.
func TestFactsOfAMovement(t *testing.T) {
	t.Parallel()
	var m Movements
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	m.Add(now, On, budgetStep(3000, 2500, "a"))
	m.Add(now.Add(time.Second), On, budgetStep(2500, 2000, "a"))
	_, told := m.Add(now.Add(2*time.Second), On, budgetStep(2000, 1000, "a"))
	if told.FirstFacts[0].Value != 1.5 || told.Facts[0].Value != 3 || told.Change() != "squeeze, 3000 to 1000 in 3 steps over 2s so far" {
		t.Errorf("%+v", told)
	}
	if all := m.Rest(now, true); len(all) != 1 || all[0].Ongoing {
		t.Errorf("%+v", all)
	}
}

// The names of an eviction's facts contain their unit, so that they can be printed for people.
func TestEvictionFactsNameTheirUnit(t *testing.T) {
	t.Parallel()
	for resource, want := range map[Resource]Fact{
		ResourceCPU: {"need_cpus", 1.5}, ResourceMemory: {"need_bytes", 1500}, ResourceIO: {"need_bytes_per_second", 1500},
	} {
		if got := resource.fact("need", 1500); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
