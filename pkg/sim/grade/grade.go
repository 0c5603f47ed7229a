// Package grade finds, in recordings, which workloads belong to which pool.
package grade

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Grade is where a workload belongs.
type Grade string

// These are the grades.
const (
	Critical Grade = "critical" // the pool with the most room
	Online   Grade = "online"
	Batch    Grade = "batch"
	Kept     Grade = "kept" // it has CPUs of its own or is of the system, or too little was recorded of it
)

// The rules follow the service grading of Meituan's Load Auto-Regulator (LAR), which puts services
// that are sensitive and small into the pool of high priority: sensitive, because only they gain
// from its room; small, because that room is idle. LAR publishes no numbers: those below are
// assumed.
const (
	// sensitiveWaits is the time that a workload's threads wait for a CPU, by the CPU time that
	// they use, from which it is sensitive: M/M/k queues that are answered in time wait less.
	sensitiveWaits = 0.10
	smallCPUs      = 1.0  // mean use of a small workload's pod in CPUs, at most
	smallPart      = 0.05 // mean use of a small workload of a node's CPUs, at most
	// criticalPart is what all critical workloads together may use, of a node's CPUs, at their
	// 99th percentiles.
	criticalPart = 0.25
	// Batch work computes without a pause. steadyPart is its use in all but the lowest tenth of
	// the time, by its 99th percentile; fullCPUs the least mean use of its pods.
	steadyPart = 0.8
	fullCPUs   = 0.5
	leastTime  = time.Hour // of a workload
)

// Workload is a workload with its grade.
type Workload struct {
	Name  string         `json:"name"`           // "namespace/name"
	Class workload.Class `json:"class"`          // at present
	Pool  string         `json:"pool,omitempty"` // at present
	Grade Grade          `json:"grade"`
	Why   string         `json:"why"`

	Hours             float64           `json:"hours"` // in which it was recorded
	Pods              float64           `json:"pods"`  // at a time, on average
	Request           workload.MilliCPU `json:"requestMilliCPU"`
	MeanCPUs          float64           `json:"meanCPUs"` // of a pod
	P99CPUs           float64           `json:"p99CPUs"`  // of all its pods on a node
	SteadyFraction    float64           `json:"steadyFraction"`
	WaitsRatio        *float64          `json:"waitsRatio,omitempty"`        // time waited for a CPU by CPU time used
	PressureFraction  *float64          `json:"pressureFraction,omitempty"`  // of the time in which some thread waited
	ThrottledFraction *float64          `json:"throttledFraction,omitempty"` // of the quota's periods

	usedCPUs float64 // of all its pods, on average
}

// Grades returns the workloads of recordings by name, each with its grade.
func Grades(all []*recording.Recording) []Workload {
	uses := map[string]*use{}
	cpus := 0.0
	for _, r := range all {
		cpus = max(cpus, float64(r.Machine.Online.Size()))
		enter(uses, r)
	}
	out := make([]Workload, 0, len(uses))
	for name, u := range uses {
		w := u.workload(name)
		w.Grade, w.Why = w.grade(cpus)
		out = append(out, w)
	}
	bound(out, cpus)
	slices.SortFunc(out, func(a, b Workload) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// grade returns the grade of a workload by itself.
func (w *Workload) grade(cpus float64) (Grade, string) {
	sensitive, waits := w.sensitive()
	steady := w.SteadyFraction >= steadyPart && w.MeanCPUs >= fullCPUs
	switch {
	case w.Class.Pinned() || w.Class == workload.System:
		return Kept, "class " + w.Class.String() + " has CPUs of its own"
	case w.Class == workload.BE:
		return Batch, "it is batch work already"
	case w.Hours < leastTime.Hours():
		return Kept, fmt.Sprintf("only %.1f h of it were recorded", w.Hours)
	case sensitive && w.MeanCPUs <= smallCPUs && w.usedCPUs <= smallPart*cpus:
		return Critical, fmt.Sprintf("sensitive (%s) and small", waits)
	case steady && !sensitive:
		return Batch, fmt.Sprintf("steady full use, and not sensitive (%s)", waits)
	case sensitive && steady:
		return Online, fmt.Sprintf("steady full use as of batch work, but sensitive (%s)", waits)
	case sensitive:
		return Online, fmt.Sprintf("sensitive (%s), but too large for the critical pool", waits)
	}
	return Online, fmt.Sprintf("not sensitive (%s)", waits)
}

// sensitive reports whether waiting for CPUs is much of a workload's time, and by what: the run
// delay, or the pressure where it was not measured. Throttling by its own limit does not count: no
// pool changes that.
func (w *Workload) sensitive() (bool, string) {
	switch {
	case w.WaitsRatio != nil:
		return *w.WaitsRatio >= sensitiveWaits, fmt.Sprintf("waits %.1f %% of its CPU time", 100**w.WaitsRatio)
	case w.PressureFraction != nil:
		return *w.PressureFraction >= sensitiveWaits, fmt.Sprintf("waits in %.1f %% of the time", 100**w.PressureFraction)
	}
	return false, "its waiting was not measured"
}

// bound moves the least sensitive workloads from the critical pool until it is small.
func bound(all []Workload, cpus float64) {
	var critical []*Workload
	for i := range all {
		if all[i].Grade == Critical {
			critical = append(critical, &all[i])
		}
	}
	waits := func(w *Workload) float64 {
		if w.WaitsRatio != nil {
			return *w.WaitsRatio
		}
		return *w.PressureFraction
	}
	slices.SortFunc(critical, func(a, b *Workload) int {
		return cmp.Or(cmp.Compare(waits(b), waits(a)), cmp.Compare(a.Name, b.Name))
	})
	used := 0.0
	for _, w := range critical {
		if used += w.P99CPUs; used > criticalPart*cpus {
			used -= w.P99CPUs
			w.Grade, w.Why = Online, w.Why+fmt.Sprintf(", but the critical pool is for %.0f %% of the CPUs", 100*criticalPart)
		}
	}
}
