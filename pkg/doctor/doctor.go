// Package doctor examines a node: which features of Sluice work, which mechanisms of the kernel
// and of the runtime they use, what prevents the others, and what to do about it. It reads the
// host's files and the facts that it is given, and writes nothing.
package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/runtime/inspect"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Level is the severity of a finding.
type Level uint8

// The levels are in order of severity.
const (
	OK   Level = iota
	Note       // a feature is missing, or uses a mechanism that is not the best
	Warn       // a feature works badly, or will
	Fail       // Sluice can't work
)

var levelNames = [...]string{"ok", "note", "warn", "fail"}

func (l Level) String() string { return levelNames[l] }

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the level's name.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("level %.40q: the levels are ok, note, warn and fail", text)
	}
	*l = Level(i)
	return nil
}

// Finding is the result of one check.
type Finding struct {
	Area  string `json:"area"`
	Name  string `json:"name"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"` // never empty if something is wrong
	// On lists the kinds of cgroups on which Sluice sets the feature: "pod", "container".
	On []string `json:"on,omitempty"`
}

// Knob is the result of probing one kernel setting.
type Knob struct {
	Name knobs.Knob `json:"knob"`
	knobs.Feature
}

// Report holds all results for a node.
type Report struct {
	Level    Level     `json:"level"` // the worst level of the findings
	Findings []Finding `json:"findings"`
	Knobs    []Knob    `json:"knobs,omitempty"` // empty if nothing could be probed
}

// Count returns the number of findings of a level.
func (r *Report) Count(l Level) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Level == l {
			n++
		}
	}
	return n
}

// Verdict returns an error if findings say that Sluice can't work or, with strict, that it
// works badly.
func (r *Report) Verdict(strict bool) error {
	switch fails, warnings := r.Count(Fail), r.Count(Warn); {
	case fails > 0:
		return errors.New(humanize.Count(fails, "finding") + " of level fail: Sluice can't work like this")
	case strict && warnings > 0:
		return errors.New(humanize.Count(warnings, "warning") + ", and --strict")
	}
	return nil
}

// Facts are the input of an examination.
type Facts struct {
	Host    fs.FS  // the host's root folder
	Root    string // its path, "/" on the node itself
	Arch    string // as GOARCH names it
	Version string // Sluice's version

	Features    *knobs.Features // nil if nothing could be probed
	FeaturesErr error

	CoreSched    knobs.Support
	CoreSchedWhy string // the reason if it is not supported or the attempt failed; "" with Inconclusive: not tried

	// Runtimes holds what the runtimes reported about themselves, by the paths of their sockets
	// below the root.
	Runtimes map[string]*inspect.Facts

	Status    *status.Status // nil if no plugin answers
	StatusErr error

	Config     *config.Config // nil if it can't be read
	ConfigErr  error
	ConfigFile string // "" for the built-in defaults
	StateErr   error  // why the state folder can't be written
	EvictErr   error  // why no pod can be evicted, if the configuration has by: cri
	RuntimeErr error  // why the runtime folder can't be written

	Affinities map[irq.File]cpuset.Set // nil if they can't be read

	Disks     []iocost.Disk         // disks with a request queue; nil if they can't be read
	IOCost    map[string]iocost.QoS // parameters of io.cost by the disks' numbers
	IOCostErr error                 // why the kernel has none, or why they can't be read

	Newidle    newidle.Search // when a CPU that has nothing left to run looks for waiting threads
	NewidleErr error          // why that can't be known

	Egress *Egress // nil if the configuration doesn't limit what batch work sends
	Cycles *Cycles // nil if the configuration doesn't count cycles per instruction
}

// node holds the facts and data about the host that several checks use.
type node struct {
	*Facts
	mounts     []mount
	mountsErr  error
	processes  []process
	machine    *topology.Machine // nil if it can't be read
	machineErr error
	kubelet    kubelet
	others     []peers.Neighbour
	othersErr  error
}

// Examine runs all checks.
func Examine(f *Facts) Report {
	n := &node{Facts: f}
	n.mounts, n.mountsErr = n.readMounts()
	n.processes = n.readProcesses()
	n.machine, n.machineErr = sysfs.Read(f.Host)
	n.kubelet = n.readKubelet()
	_, n.others, n.othersErr = peers.Detect(f.Host)
	var r Report
	for _, check := range []struct {
		area string
		run  func(*node) []Finding
	}{
		{"kernel", (*node).kernel},
		{"machine", (*node).cpus},
		{"cgroups", (*node).cgroups},
		{"cpu", (*node).cpuFeatures},
		{"cpu", (*node).newidle},
		{"memory", (*node).memoryFeatures},
		{"io and network", (*node).ioFeatures},
		{"io and network", (*node).disks},
		{"io and network", (*node).idleIO},
		{"io and network", (*node).egress},
		{"cache and bandwidth", (*node).resctrl},
		{"cache and bandwidth", (*node).cycles},
		{"kubelet", (*node).kubeletSettings},
		{"neighbours", (*node).neighbours},
		{"runtime", (*node).runtime},
		{"runtime", (*node).statistics},
		{"sluice", (*node).self},
		{"pinned cpus", (*node).pinned},
	} {
		for _, finding := range check.run(n) {
			finding.Area = check.area
			r.Level = max(r.Level, finding.Level)
			r.Findings = append(r.Findings, finding)
		}
	}
	if f.Features != nil {
		for k := range knobs.Knobs {
			r.Knobs = append(r.Knobs, Knob{k, f.Features.Knobs[k]})
		}
	}
	return r
}

func ok(name, what string) Finding { return Finding{Name: name, What: what} }

func note(name, what, do string) Finding { return Finding{Name: name, Level: Note, What: what, Do: do} }

func warn(name, what, do string) Finding { return Finding{Name: name, Level: Warn, What: what, Do: do} }

func fail(name, what, do string) Finding { return Finding{Name: name, Level: Fail, What: what, Do: do} }
