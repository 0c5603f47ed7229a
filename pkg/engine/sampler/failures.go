package sampler

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
)

// part is a group of counters that are read together, and whose reads fail together.
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
	containerSwap
	containerIO
	containerThreads
	containerCache
	containerEvents
	parts
)

func (p part) String() string {
	return [parts]string{
		"CPU time of the node", "pressure of the node", "memory of the node", "low watermarks of the node", "load of the node", "waking by pressure",
		"CPU time of containers", "pressure of containers", "memory of containers", "swap of containers", "I/O of containers", "run delay of containers", "cache of containers", "cycles and instructions of containers",
	}[p]
}

// Failure is the number of failed reads of one kind.
type Failure struct {
	What  string // such as "memory of containers"
	Count int64
}

// failures counts the failed reads, and reports each kind once.
type failures struct {
	counts     [parts]atomic.Int64
	reported   [parts]bool
	unreported []error // errors that Sample has yet to return
}

func (f *failures) count(p part) { f.counts[p].Add(1) }

// Failures lists the kinds of failed reads, with their numbers.
func (s *Sampler) Failures() []Failure {
	var all []Failure
	for p := range parts {
		if n := s.failures.counts[p].Load(); n > 0 {
			all = append(all, Failure{p.String(), n})
		}
	}
	return all
}

// node counts a failed read of the node's counters.
func (f *failures) node(p part, err error) {
	next := "what depends on it waits"
	if errors.Is(err, procfs.ErrUnsupported) && p == nodePressure {
		next = "decisions go by usage alone; boot with psi=1 for better ones"
	}
	f.report(p, func() error { return fmt.Errorf("reading the %s: %w; %s", p, err, next) })
}

// container counts a failed read of a container's counters. That a container has ended, or that
// a kernel lacks a counter, is no failure.
func (f *failures) container(p part, t *target, err error) {
	if errors.Is(err, cgroupfs.ErrGone) || errors.Is(err, cgroupfs.ErrUnsupported) {
		return
	}
	f.report(p, func() error {
		return fmt.Errorf("reading the %s, of %s (cgroup %s): %w; what is known of it gets old until it can be read", p, t.ID, t.Path, err)
	})
}

// events counts a failed count of a container's cycles and instructions. A machine that counts none, or does not let
// this process count, is reported once, and is no failure.
func (f *failures) events(t *target, err error) {
	switch {
	case errors.Is(err, cgroupfs.ErrGone):
	case !errors.Is(err, cgroupfs.ErrUnsupported) && !errors.Is(err, fs.ErrPermission):
		f.report(containerEvents, func() error { return fmt.Errorf("%w (container %s); it is tried again in a minute", err, t.ID) })
	case !f.reported[containerEvents]:
		f.reported[containerEvents] = true
		f.unreported = append(f.unreported, fmt.Errorf("%w; nobody knows how many cycles per instruction services need", err))
	}
}

func (f *failures) report(p part, text func() error) {
	f.count(p)
	if !f.reported[p] {
		f.reported[p] = true
		f.unreported = append(f.unreported, text())
	}
}

// takeErrors returns the errors that have not been returned yet.
func (f *failures) takeErrors() error {
	if len(f.unreported) == 0 {
		return nil
	}
	err := errors.Join(f.unreported...)
	f.unreported = nil
	return err
}
