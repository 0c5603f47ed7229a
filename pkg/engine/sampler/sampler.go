// Package sampler looks at a node and its containers: what changes fast at each look,
// the rest now and then, spread so that no look is long. What it reads, the meter of
// pkg/observe makes rates of.
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

// Cgroups is where a container's counters are: cgroupfs.Driver. It tells one that has
// ended by cgroupfs.ErrGone, and what isn't counted by cgroupfs.ErrUnsupported.
type Cgroups interface {
	CPU(dir string, usage *observe.CPUCounters, quota *observe.ThrottlingCounters) (throttling bool, err error)
	Stalls(dir string, into *observe.PressureTotals) error
	MemoryUse(dir string, into *observe.ContainerMemoryCounters) error
	IOBytes(dir string, into *observe.IOCounters) error
	Threads(dir string, take func(thread int)) error
}

// RDT is what resctrl counts: resctrl.Host. A container that isn't watched has none.
type RDT interface {
	Usage(container string) ([]observe.L3, error)
}

// Intervals say how often things are read.
type Intervals struct {
	Fast time.Duration // between two looks: the node's CPUs and pressure, the CPU time of fast targets
	All  time.Duration // the CPU time of all containers, the node's memory
	Slow time.Duration // pressure, memory, I/O, run delay and cache of containers
}

// DefaultIntervals are those that the loop ships with.
func DefaultIntervals() Intervals {
	return Intervals{Fast: 100 * time.Millisecond, All: time.Second, Slow: 10 * time.Second}
}

const (
	// seldom is between two looks at what changes seldom, or wasn't there.
	seldom = time.Minute
	// atOnce is how many new containers are looked at whole in one look (4 ms).
	atOnce = 50
	// idleShare of a CPU and less is nothing: a container that did no more is looked at
	// after twice the time, up to mostRest intervals of all. Doubling keeps its figures
	// from counting as old, as they are good for three of their own intervals.
	idleShare = 100
	mostRest  = 4
	// mostThreads bounds what the run delay of one container costs (4 µs a thread);
	// that of one with more is not known.
	mostThreads = 512
)

// Sampler looks at a node. Sample has one caller at a time; Refresh and Failures may
// be called by others.
type Sampler struct {
	host    *procfs.FS
	cgroups Cgroups // nil: none
	rdt     RDT     // nil: none
	every   Intervals

	start   time.Time // of the clock that nobody sets
	meter   observe.Meter
	reading observe.Reading

	targets []*target // as in reading.Containers
	byID    map[string]*target
	look    uint64
	turn    int // in targets, whose turn it is to be looked at whole

	last, allAt, discoverAt time.Duration // looks: any, at all, at what changes seldom
	pace                    time.Duration // to the next look
	pressureOff             time.Duration // until when the node's pressure is not tried
	refresh                 atomic.Bool
	failures                failures
	delays                  threadDelays

	looking  sync.Mutex     // during a look
	watching sync.WaitGroup // for pressure
}

// target is a container with what is due of it.
type target struct {
	observe.Target
	look         uint64
	cpuAt, allAt time.Duration        // its CPU time was read, with all others'
	used, rest   time.Duration        // its CPU time at allAt, and what it rests from then on
	quotaAt      time.Duration        // what its quota did was read
	counted      bool                 // there is something about a quota
	limited      bool                 // and it has or had one
	slowAt       time.Duration        // the rest; 0 never
	off          [parts]time.Duration // until when a part that isn't there is not tried
	delays       observe.Delays
}

// Open makes a sampler of the machine below a root folder ("/" on the host itself).
// cgroups and rdt may be nil.
func Open(hostRoot string, cgroups Cgroups, rdt RDT, every Intervals) (*Sampler, error) {
	host, err := procfs.Open(hostRoot)
	if err != nil {
		return nil, err
	}
	s := &Sampler{host: host, cgroups: cgroups, rdt: rdt, every: every, start: time.Now(), byID: map[string]*target{}, pace: every.Fast}
	s.delays.take = s.delays.add
	s.delays.host = host
	return s, nil
}

// Close gives the files back. Watch's context must have ended before. While a look hangs
// in the kernel, the files stay open, since it uses them.
func (s *Sampler) Close() error {
	s.watching.Wait()
	if !s.looking.TryLock() {
		return errors.New("a look at the node has not ended, and keeps its files open")
	}
	defer s.looking.Unlock()
	return s.host.Close()
}

// Refresh makes the next look a look at everything.
func (s *Sampler) Refresh() { s.refresh.Store(true) }

// Watch calls wake when the node comes under pressure, so that a look needn't wait for
// its time, until the context ends. The error says what it can't be woken by; it then
// goes on with the rest.
func (s *Sampler) Watch(ctx context.Context, wake func(procfs.Trigger)) error {
	// A tenth of the time, in the shortest window that the kernel has.
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

// mono is the time since the start, never 0.
func (s *Sampler) mono() time.Duration { return time.Since(s.start) + 1 }

// Sample looks at what is due of the node and of the targets, and fills a snapshot,
// whose memory it uses again. Targets that are left out are forgotten. A part that
// can't be read keeps its old values and time. The error tells of each kind of failure
// once; see Failures. Next is how long to wait from the start of this look to the next:
// the fast interval, or longer while no target is fast and the node is nearly idle.
func (s *Sampler) Sample(now time.Time, targets []observe.Target, into *observe.Snapshot) (next time.Duration, err error) {
	s.looking.Lock()
	defer s.looking.Unlock()
	r := &s.reading
	r.Mono, r.Wall = s.mono(), now
	refresh := s.refresh.Swap(false)
	fast := s.follow(targets)
	// A look comes a little early or late.
	all := refresh || s.allAt == 0 || r.Mono-s.allAt >= s.every.All-s.every.Fast/2

	s.node(all)
	for i, t := range s.targets {
		if all && (refresh || t.isDue(r.Mono, s.every.Fast)) || t.Fast || t.cpuAt == 0 {
			s.containerCPU(t, &r.Containers[i], all || t.allAt == 0)
		}
		if all && t.Memory && s.cgroups != nil {
			s.part(t, &r.Containers[i], containerMemory)
		}
	}
	s.whole(refresh)
	if all {
		s.allAt = r.Mono
	}
	s.last = r.Mono
	s.meter.Observe(r, into)
	return s.wait(into, fast), s.failures.take()
}

// isDue reports whether it has rested, if it rests; looks come a little early.
func (t *target) isDue(now, early time.Duration) bool { return now-t.allAt >= t.rest-early/2 }

// took notes what it used until now, and how long it rests.
func (t *target) took(now, used, all time.Duration) {
	idle := t.allAt != 0 && (used-t.used)*idleShare <= now-t.allAt
	t.rest = min(2*max(t.rest, all), mostRest*all)
	if !idle || t.Fast || t.CPUOnly {
		t.rest = 0
	}
	t.used, t.allAt = used, now
}

// follow takes over the targets, and reports whether one is fast.
func (s *Sampler) follow(targets []observe.Target) (fast bool) {
	s.look++
	r := &s.reading
	list, containers := s.targets[:0], r.Containers[:0] // list is never ahead of i
	for i := range targets {
		want := &targets[i]
		var t *target
		if i < len(s.targets) && s.targets[i] != nil && s.targets[i].ID == want.ID {
			t = s.targets[i]
		} else {
			t = s.byID[want.ID]
		}
		if t != nil && t.look == s.look {
			continue // twice
		}
		if t == nil || t.Path != want.Path {
			t = &target{}
			s.byID[want.ID] = t
		}
		t.Target, t.look = *want, s.look
		fast = fast || t.Fast
		list, containers = append(list, t), append(containers, observe.ContainerReading{ID: want.ID})
	}
	if len(s.byID) != len(list) {
		for id, t := range s.byID {
			if t.look != s.look {
				delete(s.byID, id)
			}
		}
	}
	clear(s.targets[min(len(list), len(s.targets)):])
	s.targets, r.Containers = list, containers
	return fast
}
