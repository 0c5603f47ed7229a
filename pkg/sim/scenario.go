package sim

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/topology"
)

// Scenario is a node with its pods and what they do over time. docs/simulation.md
// describes the file.
type Scenario struct {
	About    string        `yaml:"about"`
	Machine  string        `yaml:"machine"` // topology/synth's words
	Start    Time          `yaml:"start"`
	Duration time.Duration `yaml:"duration"`
	Seed     int           `yaml:"seed"`
	Budget   Percent       `yaml:"budget"` // of the services' time that may be over their SLO, where policies are compared
	Vary     Vary          `yaml:"vary"`   // whose load is varied for that
	Hardware Hardware      `yaml:"hardware"`
	Pods     []Pod         `yaml:"pods"`

	// Config is the file's piece of sluice.yaml, over the defaults.
	Config *config.Config `yaml:"-"`

	machine *topology.Machine `yaml:"-"` // of a recording, in place of Machine
}

// Vary names the pods whose load is varied.
type Vary string

// What may vary.
const (
	VaryBatch  Vary = "batch"  // BE
	VaryOnline Vary = "online" // all others
)

// Hardware is what the machine's text doesn't tell.
type Hardware struct {
	Bandwidth Bytes   `yaml:"bandwidth"` // of memory, bytes per second; 0: contention for it is left out
	SMT       Percent `yaml:"smt"`       // speed of a thread whose sibling is busy
	Reclaim   Bytes   `yaml:"reclaim"`   // page cache that the kernel frees, bytes per second
}

// Pod is a pod, or several alike, each of one container.
type Pod struct {
	Name        string            `yaml:"name"`
	Count       int               `yaml:"count"` // named NAME-0 and so on; 0: one, named NAME
	Start       time.Duration     `yaml:"start"`
	End         time.Duration     `yaml:"end"`     // 0: never
	Stagger     time.Duration     `yaml:"stagger"` // each starts, ends and moves its load so much later than the one before
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
	Requests    Resources         `yaml:"requests"`
	Limits      Resources         `yaml:"limits"`

	Load    Load    `yaml:"load"`
	Service Service `yaml:"service"`
	Memory  Memory  `yaml:"memory"`

	Traffic     Bytes   `yaml:"traffic"`     // memory traffic of one busy CPU, bytes per second
	Sensitivity Percent `yaml:"sensitivity"` // how much longer its work takes once the memory's bandwidth is used up
}

// Resources are a container's requests or limits.
type Resources struct {
	CPU    Cores `yaml:"cpu"`
	Memory Bytes `yaml:"memory"`
}

// Load is the CPU that a container wants over time, at full speed.
type Load struct {
	Curve   Curve         `yaml:"curve"`
	CPU     Cores         `yaml:"cpu"`     // at the top
	Low     Percent       `yaml:"low"`     // of it, at the bottom of a sine and between bursts
	Peaks   []Hour        `yaml:"peaks"`   // of a sine, by the time of day; none: 14:00
	Width   time.Duration `yaml:"width"`   // of a peak, from bottom to bottom, where there are several
	Steps   []Step        `yaml:"steps"`   // of steps
	Every   time.Duration `yaml:"every"`   // between bursts, on average
	For     time.Duration `yaml:"for"`     // how long one lasts
	Trace   string        `yaml:"trace"`   // lines of seconds and CPUs: "60,2.5"
	Noise   Percent       `yaml:"noise"`   // standard deviation, of the load itself
	Threads int           `yaml:"threads"` // that can run at a time; 0: as many as it wants CPUs

	points []point `yaml:"-"` // of the trace
}

// Curve is the form of a load over time.
type Curve string

// The forms of a load.
const (
	Constant Curve = "constant"
	Sine     Curve = "sine"   // by the time of day
	Steps    Curve = "steps"  // from one level to the next
	Bursts   Curve = "bursts" // at random times, drawn from the seed
	Trace    Curve = "trace"  // straight from one point to the next
)

// Step is a level of load from some time on.
type Step struct {
	At   time.Duration `yaml:"at"`
	Load Percent       `yaml:"load"` // of the load's cpu
}

// Service makes a container one that answers requests: what it can't do now waits.
type Service struct {
	Time time.Duration `yaml:"time"` // CPU time of a request, on average; 0: it is no service
	SLO  time.Duration `yaml:"slo"`  // that 99 % of the requests are to be answered in
}

// Memory is what a container holds over time.
type Memory struct {
	Anon  Bytes   `yaml:"anon"`  // heap, from its start on
	Low   Percent `yaml:"low"`   // of anon, while the load is at nothing; it follows the load
	Leak  Bytes   `yaml:"leak"`  // more of it each hour
	Cache Bytes   `yaml:"cache"` // page cache that it would fill
	Speed Bytes   `yaml:"speed"` // with which it allocates, bytes per second
}

// defaults are what a file leaves out.
func (s *Scenario) defaults() {
	s.Start = Time(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)) // a Monday
	s.Seed = 1
	s.Budget = 0.001
	s.Vary = VaryBatch
	s.Hardware = Hardware{SMT: 0.62, Reclaim: 2 << 30}
}
