package report

import (
	"fmt"
	"slices"
	"time"
)

// These are the settings that are judged.
const (
	Alone      = "alone"
	Again      = "alone again"
	Unmanaged  = "unmanaged"
	Kubernetes = "kubernetes"
	Sluice     = "sluice"
	HogAlone   = "hog alone"   // without load on the service
	SlowLoop   = "sluice, 1 s" // with an interval of a second
)

// Leavings computes for each hog its fraction of what the service leaves: its work, divided by its
// work on the whole node times the fraction of the node that is idle when the service is alone.
func (r *Report) Leavings() {
	for i := range r.Cells {
		c := &r.Cells[i]
		whole, measured := r.Find("0", c.Hog, HogAlone)
		alone, has := r.Find(c.Level, "", Alone)
		if left := whole.Work * (1 - alone.Busy - alone.Steal); measured && has && alone.Slices > 0 && left > 0 {
			c.BatchOfLeavings = c.Work / left
		}
	}
}

// Goal is a goal and whether it was reached.
type Goal struct {
	Of      string // measured value
	Text    string
	Reached bool
}

// Goals judges the results of Sluice.
func (r *Report) Goals() []Goal {
	return slices.Concat(r.mixGoals(), r.memoryGoals(), r.reactionGoals())
}

func (r *Report) mixGoals() []Goal {
	var goals []Goal
	for _, c := range r.Cells {
		a, hasA := r.Find(c.Level, "", Alone)
		again, hasAgain := r.Find(c.Level, "", Again)
		if c.Setting != Sluice || !hasA || !hasAgain {
			continue
		}
		add := func(reached bool, format string, args ...any) {
			goals = append(goals, Goal{fmt.Sprintf("load %s, %s", c.Level, c.Hog), fmt.Sprintf(format, args...), reached})
		}
		if c.Requests == 0 {
			add(false, "no slice was quiet enough to count")
			continue
		}
		noise := (a.P99 - again.P99).Abs()
		mean := (a.P99 + again.P99) / 2
		bound := mean + mean/20 + noise
		add(c.P99 <= bound && c.Busy > 0.9, "p99 %s, bound %s (1.05 × %s alone + %s A/A), node %.0f %% busy (over 90)",
			ms(c.P99), ms(bound), ms(mean), ms(noise), 100*c.Busy)
		if un, has := r.Find(c.Level, c.Hog, Unmanaged); has {
			base := (a.P999 + again.P999) / 2
			removed := 0.0
			if un.P999 > base {
				removed = float64(un.P999-c.P999) / float64(un.P999-base)
			}
			add(removed >= 0.5, "p99.9 %s, unmanaged %s, alone %s: %.0f %% of the excess removed (50)", ms(c.P999), ms(un.P999), ms(base), 100*removed)
		}
		if c.BatchOfLeavings > 0 {
			add(c.BatchOfLeavings >= 0.9, "batch did %.0f %% of what it does on what the service leaves (90)", 100*c.BatchOfLeavings)
		}
	}
	return goals
}

func (r *Report) memoryGoals() []Goal {
	var goals []Goal
	find := func(setting string) (Memory, bool) {
		i := slices.IndexFunc(r.Memory, func(m Memory) bool { return m.Setting == setting })
		if i < 0 {
			return Memory{}, false
		}
		return r.Memory[i], true
	}
	a, hasA := find(Alone)
	again, hasAgain := find(Again)
	for _, m := range r.Memory {
		if m.Setting != Sluice {
			continue
		}
		of := "memory, " + m.Holds
		goals = append(goals,
			Goal{of, fmt.Sprintf("the service waited %s for memory in the worst of %d growths (0), %d kills of it (0)", ms(m.Reclaiming.High), m.Repetitions, m.ServiceKills), m.Reclaiming.High == 0 && m.ServiceKills == 0})
		if hasA && hasAgain {
			mean, noise := (a.P99+again.P99)/2, (a.P99 - again.P99).Abs()
			bound := mean + mean/20 + noise
			goals = append(goals, Goal{of, fmt.Sprintf("p99 %s, bound %s (1.05 × %s alone + %s A/A)", ms(m.P99), ms(bound), ms(mean), ms(noise)), m.P99 <= bound && m.Lost == 0 && m.ServiceKills == 0})
		}
	}
	return goals
}

func (r *Report) reactionGoals() []Goal {
	const bound = 300 * time.Millisecond
	var goals []Goal
	for _, n := range r.Reactions {
		if n.Setting == Sluice {
			goals = append(goals, Goal{"reaction", fmt.Sprintf("p99 %s (under %s), %d of %d steps without a squeeze", ms(n.P99), bound, n.Missed, n.Steps), n.P99 < bound && n.Missed == 0})
		}
	}
	return goals
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }
