package sim

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/topology"
)

// Scenario is a node with its pods and their load over time. docs/simulation.md describes the
// file.
type Scenario struct {
	About    string        `yaml:"about"`
	Machine  string        `yaml:"machine"` // topology/synth's words
	Start    Time          `yaml:"start"`
	Duration time.Duration `yaml:"duration"`
	Seed     int           `yaml:"seed"`
	Budget   Percent       `yaml:"budget"` // of the services' time that may be over their SLO, where policies are compared
	Vary     Vary          `yaml:"vary"`   // pods whose load is varied to compare at equal violations
	Hardware Hardware      `yaml:"hardware"`
	Pods     []Pod         `yaml:"pods"`

	// Config is the file's part of sluice.yaml, over the defaults.
	Config *config.Config `yaml:"-"`

	// Warmup is the time at the beginning that does not count in the result.
	Warmup time.Duration `yaml:"-"`

	machine *topology.Machine `yaml:"-"` // of a recording, in place of Machine
}

// Vary names the pods whose load is varied.
type Vary string

// These are the pods that can vary.
const (
	VaryBatch  Vary = "batch"  // pods of class BE
	VaryOnline Vary = "online" // all others
)

// Hardware describes what the machine's text doesn't say.
type Hardware struct {
	Bandwidth Bytes   `yaml:"bandwidth"` // of memory, bytes per second; 0: contention for it is left out
	LLC       Bytes   `yaml:"llc"`       // size of the last-level cache; 0: contention for it is left out
	SMT       Percent `yaml:"smt"`       // speed of a thread whose sibling is busy
	Reclaim   Bytes   `yaml:"reclaim"`   // page cache that the kernel can free, in bytes per second
}

// Pod is a pod, or several identical ones, of one container each.
type Pod struct {
	Name        string            `yaml:"name"`
	Count       int               `yaml:"count"` // named NAME-0 and so on; 0: one, named NAME
	Start       time.Duration     `yaml:"start"`
	End         time.Duration     `yaml:"end"`     // 0 for never
	Stagger     time.Duration     `yaml:"stagger"` // each starts, ends and moves its load so much later than the one before
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
	Requests    Resources         `yaml:"requests"`
	Limits      Resources         `yaml:"limits"`

	Load    Load    `yaml:"load"`
	Service Service `yaml:"service"`
	Memory  Memory  `yaml:"memory"`

	Traffic     Bytes   `yaml:"traffic"`     // memory traffic of one busy CPU in bytes per second
	LLC         Bytes   `yaml:"llc"`         // last-level cache that it would fill
	Sensitivity Percent `yaml:"sensitivity"` // how much longer its work takes once the memory's bandwidth is used up, or without its cache
	Cycles      []Step  `yaml:"cycles"`      // its cycles per instruction over time, as multiples of the usual, for reasons of its own
}

// Resources are a container's requests or limits.
type Resources struct {
	CPU    Cores `yaml:"cpu"`
	Memory Bytes `yaml:"memory"`
}

// Load is the CPU that a container wants over time, in CPUs at full speed.
type Load struct {
	Curve   Curve         `yaml:"curve"`
	CPU     Cores         `yaml:"cpu"`     // maximum
	Low     Percent       `yaml:"low"`     // minimum of a sine, and the level between bursts, in percent of the maximum
	Peaks   []Hour        `yaml:"peaks"`   // times of day of a sine's peaks; 14:00 if empty
	Width   time.Duration `yaml:"width"`   // width of each peak, from minimum to minimum, if there are several
	Weekend Percent       `yaml:"weekend"` // height of a sine's peaks above its minimum on Saturdays and Sundays, in percent of that of other days
	Drift   Percent       `yaml:"drift"`   // growth per day; cpu is the maximum at the pod's start
	Steps   []Step        `yaml:"steps"`   // levels of steps; with another curve, what multiplies it
	Every   time.Duration `yaml:"every"`   // mean time between bursts
	For     time.Duration `yaml:"for"`     // duration of a burst
	Trace   string        `yaml:"trace"`   // lines of seconds and CPUs, for example "60,2.5"
	Noise   Percent       `yaml:"noise"`   // standard deviation in percent of the load
	Threads int           `yaml:"threads"` // that can run at a time; 0: as many as it wants CPUs

	points   []point   `yaml:"-"` // of the trace
	recorded *recorded `yaml:"-"` // in place of points, for a recording of days
}

// Curve is the form of a load over time.
type Curve string

// These are the forms of a load.
const (
	Constant Curve = "constant"
	Sine     Curve = "sine"   // follows the time of day
	Steps    Curve = "steps"  // jumps from one level to the next
	Bursts   Curve = "bursts" // at random times, drawn from the seed
	Trace    Curve = "trace"  // linear between the points
)

// Step is a level of load from a time on.
type Step struct {
	At   time.Duration `yaml:"at"`
	Load Percent       `yaml:"load"` // of the load's cpu
}

// Service makes a container answer requests. What it can't do at once waits.
type Service struct {
	Time time.Duration `yaml:"time"` // CPU time of a request, on average; 0: it is no service
	SLO  time.Duration `yaml:"slo"`  // 99 % of the requests are to be answered within this time
}

// Memory is what a container holds over time.
type Memory struct {
	Anon  Bytes   `yaml:"anon"`  // heap, from its start on
	Low   Percent `yaml:"low"`   // heap without load, in percent of Anon; the heap follows the load
	Leak  Bytes   `yaml:"leak"`  // growth of the heap per hour
	Cache Bytes   `yaml:"cache"` // page cache that it would fill
	Speed Bytes   `yaml:"speed"` // with which it allocates, bytes per second
}

// defaults fills in what a file leaves out.
func (s *Scenario) defaults() {
	s.Start = Time(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)) // a Monday
	s.Seed = 1
	s.Budget = 0.001
	s.Vary = VaryBatch
	s.Hardware = Hardware{SMT: 0.62, Reclaim: 2 << 30}
}
