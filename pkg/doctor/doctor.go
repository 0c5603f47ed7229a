// Package doctor examines a node: what of Sluice works here, by which of the
// kernel's and the runtime's mechanisms, what stands in the way, and what to do
// about it. It reads the host's files and what it is given, and writes nothing.
package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/runtime/inspect"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Level is how much a finding matters.
type Level uint8

// The levels, the worst last.
const (
	OK   Level = iota
	Note       // something is not there, or done in another way than the best
	Warn       // something works badly, or will
	Fail       // it keeps Sluice from working
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

// Finding is one thing that was looked at.
type Finding struct {
	Area  string `json:"area"`
	Name  string `json:"name"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"` // never empty where something is wrong
	// On are the cgroups on which Sluice sets it: "pod", "container".
	On []string `json:"on,omitempty"`
}

// Knob is what probing found out about one kernel setting.
type Knob struct {
	Name knobs.Knob `json:"knob"`
	knobs.Feature
}

// Report is what was found out about a node.
type Report struct {
	Level    Level     `json:"level"` // the worst of the findings'
	Findings []Finding `json:"findings"`
	Knobs    []Knob    `json:"knobs,omitempty"` // empty where nothing could be probed
}

// Count is how many findings have the level.
func (r *Report) Count(l Level) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Level == l {
			n++
		}
	}
	return n
}

// Verdict is an error where findings say that Sluice can't work, or strictly, that it works
// badly.
func (r *Report) Verdict(strict bool) error {
	switch fails, warnings := r.Count(Fail), r.Count(Warn); {
	case fails > 0:
		return errors.New(humanize.Count(fails, "finding") + " of level fail: Sluice can't work like this")
	case strict && warnings > 0:
		return errors.New(humanize.Count(warnings, "warning") + ", and --strict")
	}
	return nil
}

// Facts are what an examination goes by.
type Facts struct {
	Host    fs.FS  // the host's root folder
	Root    string // its path, "/" on the node itself
	Arch    string // as GOARCH names it
	Version string // Sluice's own

	Features    *knobs.Features // nil where nothing could be probed
	FeaturesErr error

	CoreSched    knobs.Support
	CoreSchedWhy string // where it is not supported, or trying failed; "" beside Inconclusive: not tried

	// Runtimes are what runtimes have told of themselves, by their sockets below the root.
	Runtimes map[string]*inspect.Facts

	Status    *status.Status // nil where no plugin answers
	StatusErr error

	Config     *config.Config // nil where it can't be read
	ConfigErr  error
	ConfigFile string // "" for the shipped defaults
	StateErr   error  // why the state folder can't be written
	EvictErr   error  // why no pod can be evicted, where the configuration says by: cri
	RuntimeErr error  // why the runtime folder can't be

	Affinities map[irq.File]cpuset.Set // nil where they can't be read
}

// node is the facts with what several checks need of the host.
type node struct {
	*Facts
	mounts     []mount
	mountsErr  error
	processes  []process
	machine    *topology.Machine // nil where it can't be read
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
	n.others, n.othersErr = peers.Detect(f.Host)
	var r Report
	for _, check := range []struct {
		area string
		run  func(*node) []Finding
	}{
		{"kernel", (*node).kernel},
		{"machine", (*node).cpus},
		{"cgroups", (*node).cgroups},
		{"cpu", (*node).cpuFeatures},
		{"memory", (*node).memoryFeatures},
		{"io and network", (*node).ioFeatures},
		{"cache and bandwidth", (*node).resctrl},
		{"kubelet", (*node).kubeletSettings},
		{"neighbours", (*node).neighbours},
		{"runtime", (*node).runtime},
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
