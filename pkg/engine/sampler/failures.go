package sampler

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
)

// part is what is read at one go, and fails at one go.
type part int

const (
	nodeCPU part = iota
	nodePressure
	nodeMemory
	nodeZones
	nodeLoad
	pressureEvents
	containerCPU
	containerPressure
	containerMemory
	containerIO
	containerThreads
	containerCache
	parts
)

func (p part) String() string {
	return [parts]string{
		"CPU time of the node", "pressure of the node", "memory of the node", "low watermarks of the node", "load of the node", "waking by pressure",
		"CPU time of containers", "pressure of containers", "memory of containers", "I/O of containers", "run delay of containers", "cache of containers",
	}[p]
}

// Failure is how often something could not be read.
type Failure struct {
	What  string // "memory of containers"
	Count int64
}

// failures counts what could not be read, and tells of each kind once.
type failures struct {
	counts [parts]atomic.Int64
	told   [parts]bool
	errs   []error // to be told
}

func (f *failures) count(p part) { f.counts[p].Add(1) }

// Failures are the kinds of failure that there were.
func (s *Sampler) Failures() []Failure {
	var all []Failure
	for p := range parts {
		if n := s.failures.counts[p].Load(); n > 0 {
			all = append(all, Failure{p.String(), n})
		}
	}
	return all
}

// node counts a failure to read something of the node.
func (f *failures) node(p part, err error) {
	next := "what depends on it waits"
	if errors.Is(err, procfs.ErrUnsupported) && p == nodePressure {
		next = "decisions go by usage alone; boot with psi=1 for better ones"
	}
	f.tell(p, func() error { return fmt.Errorf("reading the %s: %w; %s", p, err, next) })
}

// container counts a failure to read something of a container. One that has ended, or
// a kernel that doesn't count something, is none.
func (f *failures) container(p part, t *target, err error) {
	if errors.Is(err, cgroupfs.ErrGone) || errors.Is(err, cgroupfs.ErrUnsupported) {
		return
	}
	f.tell(p, func() error {
		return fmt.Errorf("reading the %s, of %s (cgroup %s): %w; what is known of it gets old until it can be read", p, t.ID, t.Path, err)
	})
}

func (f *failures) tell(p part, text func() error) {
	f.count(p)
	if !f.told[p] {
		f.told[p] = true
		f.errs = append(f.errs, text())
	}
}

// take returns what was not told yet.
func (f *failures) take() error {
	if len(f.errs) == 0 {
		return nil
	}
	err := errors.Join(f.errs...)
	f.errs = nil
	return err
}
