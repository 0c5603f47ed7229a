package sampler

import (
	"errors"
	"io/fs"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/perf"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// Events counts cycles and instructions by cgroup; perf.Host implements it.
type Events interface {
	Start(dir string) error
	Count(dir string) (perf.Counts, error)
	Stop(dir string)
	Room() bool
	Close()
}

// CPI² counts ten seconds of each minute, because counting costs time at each switch of tasks.
const (
	countTime  = 10 * time.Second
	countEvery = time.Minute
)

// count is the count of a container's cycles and instructions.
type count struct {
	on     bool
	read   time.Duration // when it was read last, or began
	counts perf.Counts   // and the container's CPU time, at that time
	used   time.Duration
	next   time.Duration // when the next one is due
	off    time.Duration // after a failure, none begins before this time
}

// countEvents reads the counts that are due, and begins one: of a target whose events are always counted, else of
// the one that has been due for longest. Where too few files may be open for all, each has its turn, and then less than
// once a minute. More would make a sample long (50 µs for each CPU).
func (s *Sampler) countEvents() {
	if s.Events == nil || s.cgroups == nil {
		return
	}
	var due *target
	for i, t := range s.targets {
		switch {
		case t.count.on:
			s.readCount(t, s.readingOf(i))
		case !t.CPI || s.reading.Mono < t.count.off || s.reading.Mono < t.count.next && !t.CPIAlways:
		case due == nil || t.CPIAlways && !due.CPIAlways || t.CPIAlways == due.CPIAlways && t.count.next < due.count.next:
			due = t
		}
	}
	if due != nil && s.reading.Mono >= s.countsOff && s.Events.Room() {
		s.beginCount(due)
	}
}

// beginCount begins to count a container's events.
func (s *Sampler) beginCount(t *target) {
	now := s.mono()
	t.count.next = now + countEvery
	if err := s.Events.Start(t.Path); err != nil {
		if errors.Is(err, cgroupfs.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
			s.countsOff = now + seldom
		}
		t.count.off = t.count.next
		s.failures.events(t, err)
		return
	}
	t.count.on = true
	if counts, used, ok := s.eventsOf(t); ok {
		t.count.read, t.count.counts, t.count.used = s.mono(), counts, used
	}
}

// readCount reads a count at its end, or each time that CPU time is read if it goes on.
func (s *Sampler) readCount(t *target, r *observe.ContainerReading) {
	c, now := &t.count, s.reading.Mono
	every := countTime
	if t.CPIAlways {
		every = s.every.All
	}
	early := s.every.Fast / 2
	if t.CPI && now-c.read < every-early {
		return
	}
	if !t.CPI {
		s.endCount(t)
		return
	}
	counts, used, ok := s.eventsOf(t)
	if !ok {
		return
	}
	at := s.mono()
	r.CPI = observe.CPICounters{Mono: at, Over: at - c.read, Cycles: counts.First - c.counts.First, Instructions: counts.Second - c.counts.Second, Used: used - c.used}
	c.read, c.counts, c.used = at, counts, used
	if !t.CPIAlways {
		s.endCount(t)
	}
}

// eventsOf returns the events of a container so far, and its CPU time. It ends the count if they can't be read.
func (s *Sampler) eventsOf(t *target) (counts perf.Counts, used time.Duration, ok bool) {
	counts, err := s.Events.Count(t.Path)
	if err != nil {
		t.count.off = t.count.next
		s.failures.events(t, err)
		s.endCount(t)
		return perf.Counts{}, 0, false
	}
	var usage observe.CPUCounters
	if _, err := s.cgroups.CPU(t.Path, &usage, nil); err != nil {
		s.failures.container(containerCPU, t, err)
		s.endCount(t)
		return perf.Counts{}, 0, false
	}
	return counts, usage.Usage, true
}

// endCount ends the count of a container, if there is one.
func (s *Sampler) endCount(t *target) {
	if t != nil && t.count.on {
		s.Events.Stop(t.Path)
		t.count.on = false
	}
}
