// Package report presents the benchmark's results as JSON, as a table and as a plot, and judges
// them by the goals.
package report

import "time"

// Report holds the results of one run.
type Report struct {
	Machine    Machine
	Run        Run
	Cells      []Cell
	Memory     []Memory
	Reactions  []Reaction
	Mornings   []Morning
	Objectives []Objective
}

// Machine describes the machine of the run.
type Machine struct {
	CPUs   int
	Model  string
	Kernel string
	Memory int64 // in bytes
}

// Run describes the run's parameters.
type Run struct {
	At       time.Time
	Service  string        // "probe", "nginx" or "redis"
	Work     time.Duration // CPU time of a request on the idle machine
	Slice    time.Duration
	Settle   time.Duration // time before each slice that is not counted
	Repeat   int
	MaxOther float64       // CPUs of other programs above which a slice is discarded
	MaxLate  time.Duration // delay of the generator at its p99 above which a slice is discarded
	MaxSteal float64       // fraction of the node that the hypervisor took above which a slice is discarded
	MaxPace  float64       // fraction by which the CPUs' speed differed from the run's median above which a slice is discarded
	Config   string        // Sluice's configuration
}

// Cell holds the results of one setting at one load beside one kind of hog, over all of its
// slices.
type Cell struct {
	Level   string // load of the service in percent of the node
	Hog     string // "" if there is none
	Setting string

	Slices, Dropped int // counted and discarded slices, see Run
	Requests, Lost  int

	P50, P99, P999  time.Duration // latency from the due time, over all slices
	P99s            Spread        // p99 of the single slices
	Wait99          time.Duration // p99 of the time until a thread of the service ran
	Late99          time.Duration // p99 of the generator's delay
	Busy, Steal     float64       // fractions of the node
	Service, Batch  float64       // in CPUs
	Other           float64       // CPUs of everything else: kernel, runtime, Sluice, other programs
	Pace            time.Duration // of the same multiplications on every CPU, as a median
	Work            float64       // of the hog, per second
	Stalled         float64       // fraction of the time in which a thread of the service waited for a CPU (PSI some)
	BatchOfLeavings float64       // the hog's work divided by what it could do on what the service leaves; 0 if unknown
	Waits           []Wait        // largest first; nil without a trace
}

// Wait holds for how long threads of the service could run and did not, because something else ran on their CPU.
type Wait struct {
	For                 string        // "batch", "service" itself, "generator", "idle CPU" or "others"
	PerRequest, Longest time.Duration // mean per request, and part of the longest single wait
}

// Spread holds the minimum, the median and the maximum.
type Spread struct{ Low, Median, High time.Duration }

// Memory holds the results of one setting of the memory part.
type Memory struct {
	Setting string
	Holds   string // "anonymous" or "page cache"; "" without batch work

	Repetitions        int
	P50, P99, P999     time.Duration // latency of the service's requests while its memory grows
	Lost               int
	Reclaiming         Spread        // time in which a thread of the service waited for memory (PSI some), per repetition
	FreedP50, FreedP99 time.Duration // from the demand until batch work has freed what is missing
	NotFreed           int           // repetitions in which it never did
	Failures           int64         // number of allocations that met the batch cgroup's limit (failcnt)
	Swapped            int64         // bytes that were written to swap
	Evicted            int           // growths in which batch work was evicted
	Kills              int64         // kills by the kernel for lack of memory
	ServiceKills       int           // kills of the service
}

// Reaction is the time from a load step until the kernel shows that batch work was squeezed.
type Reaction struct {
	Setting       string
	Steps, Missed int
	P50, P99, Max time.Duration
}

// Find returns a cell; ok is false if it was not measured.
func (r *Report) Find(level, hog, setting string) (Cell, bool) {
	for _, c := range r.Cells {
		if c.Level == level && c.Hog == hog && c.Setting == setting {
			return c, true
		}
	}
	return Cell{}, false
}
