// Package sampler reads the counters of a node and its containers. It reads fast-changing
// counters in each sample and the others less often, spread over several samples so that none
// takes long. The meter of pkg/observe computes rates from these readings.
package sampler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// Cgroups reads containers' counters; cgroupfs.Driver implements it. It returns
// cgroupfs.ErrGone for a container that has ended and cgroupfs.ErrUnsupported for a counter
// that the kernel lacks.
type Cgroups interface {
	CPU(dir string, usage *observe.CPUCounters, quota *observe.ThrottlingCounters) (throttling bool, err error)
	Stalls(dir string, into *observe.PressureTotals) error
	MemoryUse(dir string, into *observe.ContainerMemoryCounters) error
	Swap(dir string, into *observe.SwapCounters) error
	IOBytes(dir string, into *observe.IOCounters) error
	Threads(dir string, take func(thread int)) error
}

// RDT reads resctrl's counters; resctrl.Host implements it. It has none of a container that
// isn't monitored.
type RDT interface {
	Usage(container string) ([]observe.L3, error)
}

// Intervals are the times between two readings of the same counter.
type Intervals struct {
	Fast time.Duration // time between two samples, which read the node's CPUs and pressure, and the CPU time of fast targets
	All  time.Duration // for the CPU time of all containers and the node's memory
	Slow time.Duration // for containers' pressure, memory, I/O, run delay and cache
}

// DefaultIntervals are the intervals that the control loop uses by default.
func DefaultIntervals() Intervals {
	return Intervals{Fast: 100 * time.Millisecond, All: time.Second, Slow: observe.SlowInterval}
}

const (
	// seldom is the interval for counters that change seldom or did not exist.
	seldom = time.Minute
	// atOnce is the number of new containers of which one sample reads all counters (4 ms).
	atOnce = 50
	// idleShare is the fraction of a CPU (1/idleShare) up to which a container counts as idle.
	// The interval of an idle container doubles each time, up to mostRest times Intervals.All.
	// Doubling keeps its figures from becoming stale, since they are valid for three of their
	// own intervals.
	idleShare = 100
	mostRest  = 4
	// mostThreads limits the cost of a container's run delay (4 µs per thread). The run delay
	// of a container with more threads is unknown.
	mostThreads = 512
)

// Sampler reads the counters of a node. Sample must not be called concurrently with itself;
// other goroutines may call Refresh and Failures.
type Sampler struct {
	Now    func() time.Time // the time by which it decides what is due, set before the first sample; nil: the system's monotonic clock
	Events Events           // counts cycles and instructions, set before the first sample; nil: they are not counted

	host    *procfs.FS
	cgroups Cgroups // nil: containers are not read
	rdt     RDT     // nil: RDT's counters are not read
	every   Intervals

	start   time.Time // zero of the monotonic clock; see mono
	meter   observe.Meter
	reading observe.Reading

	followed   []observe.Target // the list of the last sample
	targets    []*target        // those of the list, in the order of reading.Containers
	fast       bool             // one of them is fast
	byID       map[string]*target
	sample     uint64
	nextTarget int // index in targets of the next container to read all counters of

	last, allAt, discoverAt time.Duration // times of the last sample, the last of all CPU times, and the last of what changes seldom
	pace                    time.Duration // time to the next sample
	pressureOff             time.Duration // the node's pressure is not read before this time
	refresh                 atomic.Bool
	failures                failures
	delays                  threadDelays
	counting                bool          // some target's cycles and instructions are wanted or counted
	countsOff               time.Duration // none begin to be counted before this time

	sampling sync.Mutex     // held during a sample
	watching sync.WaitGroup // the goroutines of Watch
}

// target is a container with the times at which its counters were read.
type target struct {
	observe.Target
	sample       uint64
	cpuAt, allAt time.Duration        // when its CPU time was read: last, and last with all others'
	used, rest   time.Duration        // its CPU time at allAt, and how long it isn't read after that
	quotaAt      time.Duration        // when its quota's counters were read
	counted      bool                 // the kernel has counters of a quota
	limited      bool                 // a period of its quota has ended: it has or had a quota
	slowAt       time.Duration        // when its other counters were read; 0 for never
	off          [parts]time.Duration // a group that doesn't exist is not read before this time
	delays       observe.Delays
	count        count
}

// Open makes a sampler of the machine whose root directory is hostRoot ("/" on the host
// itself). cgroups and rdt may be nil.
func Open(hostRoot string, cgroups Cgroups, rdt RDT, every Intervals) (*Sampler, error) {
	host, err := procfs.Open(hostRoot)
	if err != nil {
		return nil, err
	}
	s := &Sampler{host: host, cgroups: cgroups, rdt: rdt, every: every, start: time.Now(), byID: map[string]*target{}, pace: every.Fast}
	s.delays.addFunc = s.delays.add
	s.delays.host = host
	return s, nil
}

// Close closes the sampler's files. Watch's context must have ended before. If a sample hangs
// in the kernel, Close fails and the files stay open, since the sample uses them.
func (s *Sampler) Close() error {
	s.watching.Wait()
	if !s.sampling.TryLock() {
		return errors.New("a look at the node has not ended, and keeps its files open")
	}
	defer s.sampling.Unlock()
	if s.Events != nil {
		s.Events.Close()
	}
	return s.host.Close()
}

// Refresh makes the next sample read all counters.
func (s *Sampler) Refresh() { s.refresh.Store(true) }

// Watch calls wake when the node comes under pressure, so that a sample can be taken early. It
// returns when the context has ended. The error lists the kinds of pressure that it can't
// watch; it watches the others nevertheless.
func (s *Sampler) Watch(ctx context.Context, wake func(procfs.Trigger)) error {
	// The threshold is a tenth of the time, in the shortest window that the kernel has.
	const window = 500 * time.Millisecond
	w, err := s.host.Arm(
		procfs.Trigger{Resource: "memory", Stall: window / 10, Window: window},
		procfs.Trigger{Resource: "cpu", Stall: window / 10, Window: window},
	)
	if w != nil {
		s.watching.Go(func() {
			if err := w.Run(ctx, wake); err != nil {
				s.failures.count(pressureEvents)
			}
		})
	}
	return err
}

// mono is the time since Open on the monotonic clock. It is never 0.
func (s *Sampler) mono() time.Duration {
	if s.Now != nil {
		return s.Now().Sub(s.start) + 1
	}
	return time.Since(s.start) + 1
}

// Sample reads the counters of the node and of the targets that are due, and fills a snapshot,
// whose memory it reuses. It forgets targets that are no longer in the list, which must not be
// changed later; another list may replace it. Counters that
// can't be read keep their old values and times. The error reports each kind of failure once;
// see Failures. next is how long to wait from the start of this sample to the next one: the
// fast interval, or longer while no target is fast and the node is nearly idle.
func (s *Sampler) Sample(now time.Time, targets []observe.Target, into *observe.Snapshot) (next time.Duration, err error) {
	s.sampling.Lock()
	defer s.sampling.Unlock()
	r := &s.reading
	r.Mono, r.Wall = s.mono(), now
	refresh := s.refresh.Swap(false)
	s.follow(targets)
	// Allow for a sample that comes a little early.
	all := refresh || s.allAt == 0 || r.Mono-s.allAt >= s.every.All-s.every.Fast/2

	s.node(all)
	for i, t := range s.targets {
		if all && (refresh || t.isDue(r.Mono, s.every.Fast)) || t.Fast || t.cpuAt == 0 {
			s.containerCPU(t, s.readingOf(i), all || t.allAt == 0)
		}
		if !all || s.cgroups == nil {
			continue
		}
		if t.Memory {
			s.part(t, s.readingOf(i), containerMemory)
			s.part(t, s.readingOf(i), containerSwap)
		}
		if t.Waiting {
			s.part(t, s.readingOf(i), containerPressure)
			s.part(t, s.readingOf(i), containerThreads)
			s.part(t, s.readingOf(i), containerCache)
		}
	}
	if s.counting {
		s.countEvents()
	}
	s.readRest(refresh)
	if all {
		s.allAt = r.Mono
	}
	s.last = r.Mono
	s.meter.Observe(r, into)
	return s.wait(into, s.fast), s.failures.takeErrors()
}

// isDue reports whether the container's interval has passed. A sample may come a little early.
func (t *target) isDue(now, early time.Duration) bool { return now-t.allAt >= t.rest-early/2 }

// noteUse records the container's CPU time, and decides how long it isn't read.
func (t *target) noteUse(now, used, all time.Duration) {
	idle := t.allAt != 0 && (used-t.used)*idleShare <= now-t.allAt
	t.rest = min(2*max(t.rest, all), mostRest*all)
	if !idle || t.Fast || t.CPUOnly {
		t.rest = 0
	}
	t.used, t.allAt = used, now
}

// readingOf returns the reading of a target, by its index, to be filled.
func (s *Sampler) readingOf(i int) *observe.ContainerReading {
	r := &s.reading
	if n := len(r.Read); n == 0 || r.Read[n-1] != i {
		r.Read = append(r.Read, i)
	}
	return &r.Containers[i]
}

// follow replaces the list of targets, unless it is that of the last sample. It empties the reading.
func (s *Sampler) follow(targets []observe.Target) {
	r := &s.reading
	for _, i := range r.Read {
		r.Containers[i] = observe.ContainerReading{ID: r.Containers[i].ID}
	}
	r.Read = r.Read[:0]
	r.Same = len(targets) > 0 && len(targets) == len(s.followed) && &targets[0] == &s.followed[0]
	if r.Same {
		return
	}
	s.followed, s.fast, s.counting = targets, false, false
	s.sample++
	list, containers := s.targets[:0], r.Containers[:0] // list never gets longer than i
	for i := range targets {
		want := &targets[i]
		var t *target
		if i < len(s.targets) && s.targets[i] != nil && s.targets[i].ID == want.ID {
			t = s.targets[i]
		} else {
			t = s.byID[want.ID]
		}
		if t != nil && t.sample == s.sample {
			continue // the list has this target twice
		}
		if t == nil || t.Path != want.Path {
			s.endCount(t)
			t = &target{}
			s.byID[want.ID] = t
		}
		t.Target, t.sample = *want, s.sample
		s.fast, s.counting = s.fast || t.Fast, s.counting || t.CPI || t.count.on
		list, containers = append(list, t), append(containers, observe.ContainerReading{ID: want.ID})
	}
	if len(s.byID) != len(list) {
		for id, t := range s.byID {
			if t.sample != s.sample {
				s.endCount(t)
				delete(s.byID, id)
			}
		}
	}
	clear(s.targets[min(len(list), len(s.targets)):])
	s.targets, r.Containers = list, containers
}
