// Package report is what the benchmark found, as JSON, as a table and as a plot, and
// its judgement by the goals.
package report

import "time"

// Report is one run.
type Report struct {
	Machine   Machine
	Run       Run
	Cells     []Cell
	Memory    []Memory
	Reactions []Reaction
}

// Machine is where it ran.
type Machine struct {
	CPUs   int
	Model  string
	Kernel string
	Memory int64 // bytes
}

// Run is how it ran.
type Run struct {
	At       time.Time
	Work     time.Duration // CPU time of a request on the idle machine
	Slice    time.Duration
	Settle   time.Duration // before each slice, not counted
	Repeat   int
	MaxOther float64       // CPUs of strangers, above which a slice was thrown away
	MaxLate  time.Duration // of the generator at its p99, likewise
	Config   string        // of Sluice
}

// Cell is one setting at one load beside one kind of hog, over all its slices.
type Cell struct {
	Level   string // of the service, in percent of the node
	Hog     string // "" where none runs
	Setting string

	Slices, Dropped int // counted; thrown away, see Run
	Requests, Lost  int

	P50, P99, P999  time.Duration // latency from when a request was due, of all slices together
	P99s            Spread        // the slices' own p99
	Wait99          time.Duration // until a thread of the service ran
	Late99          time.Duration // the generator's own
	Busy, Steal     float64       // share of the node
	Service, Batch  float64       // CPUs
	Other           float64       // CPUs of all else: kernel, runtime, Sluice, strangers
	Work            float64       // of the hog, per second
	Stalled         float64       // share of the time that a thread of the service waited for a CPU (PSI some)
	BatchOfLeavings float64       // the hog's work in what it would do on what the service leaves, 0 where not known
}

// Spread is the least, the median and the largest.
type Spread struct{ Low, Median, High time.Duration }

// Memory is one setting of the take-back of memory.
type Memory struct {
	Setting string
	Holds   string // what batch holds: "anonymous" or "page cache", "" without batch

	Repetitions        int
	P50, P99, P999     time.Duration // of the service's requests while its memory grows
	Lost               int
	Reclaiming         Spread        // time that some thread of the service waited for memory (PSI some), per repetition
	FreedP50, FreedP99 time.Duration // from the demand until batch has given back what is missing
	NotFreed           int           // repetitions in which it never had
	Failures           int64         // how often an allocation met the box's limit (failcnt)
	Kills              int64         // by the kernel, for memory
	ServiceKills       int           // of these, the service
}

// Reaction is how soon the kernel shows that batch was squeezed after a load step.
type Reaction struct {
	Setting       string
	Steps, Missed int
	P50, P99, Max time.Duration
}

// Find is the cell, false where it was not measured.
func (r *Report) Find(level, hog, setting string) (Cell, bool) {
	for _, c := range r.Cells {
		if c.Level == level && c.Hog == hog && c.Setting == setting {
			return c, true
		}
	}
	return Cell{}, false
}
