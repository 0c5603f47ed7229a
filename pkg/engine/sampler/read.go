package sampler

import (
	"errors"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// node reads the node's CPUs and pressure; with all, also its memory.
func (s *Sampler) node(all bool) {
	r := &s.reading
	var err error
	r.CPU.Mono, r.Pressure.Mono, r.Memory.Mono, r.Load.Mono, r.Disk.Mono = 0, 0, 0, 0, 0
	if r.CPU.CPUs, err = s.host.CPUTimes(r.CPU.CPUs); err != nil {
		s.failures.node(nodeCPU, err)
	} else {
		r.CPU.Mono = s.mono()
	}
	if r.Mono >= s.pressureOff {
		if err := s.host.Pressure(&r.Pressure); err != nil {
			s.failures.node(nodePressure, err)
			if errors.Is(err, procfs.ErrUnsupported) {
				s.pressureOff = r.Mono + seldom
			}
		} else {
			r.Pressure.Mono = s.mono()
		}
	}
	if !all {
		return
	}
	if r.Load.Value, err = s.host.Load(); err != nil {
		s.failures.node(nodeLoad, err)
	} else {
		r.Load.Mono = s.mono()
	}
	if s.discoverAt == 0 || r.Mono-s.discoverAt >= seldom {
		s.discoverAt = r.Mono
		if r.Memory.Low, err = s.host.Discover(); err != nil {
			s.failures.node(nodeZones, err)
		}
	}
	if r.Disk.Value, err = s.host.Disk(); err == nil {
		r.Disk.Mono = s.mono()
	} // without it, no pod has data on this file system
	if err := s.host.Memory(&r.Memory); err != nil {
		s.failures.node(nodeMemory, err)
	} else {
		r.Memory.Mono = s.mono()
	}
}

// containerCPU reads a container's CPU time; with all, also its quota's counters.
func (s *Sampler) containerCPU(t *target, r *observe.ContainerReading, all bool) {
	if s.cgroups == nil {
		return
	}
	now := s.reading.Mono
	if now < t.off[containerCPU] {
		return
	}
	var quota *observe.ThrottlingCounters
	// On cgroup v1, read the quota's counters less often while no period has ended: then the
	// container has no quota.
	unlimited := all && t.allAt != 0 && !t.limited && now-t.quotaAt < s.every.Slow/2
	if all && !unlimited {
		quota = &r.Throttling
		t.quotaAt = now
	}
	t.cpuAt = now
	throttling, err := s.cgroups.CPU(t.Path, &r.CPU, quota)
	if err != nil {
		// Don't try again at each fast sample: the container has ended, or has not started yet.
		t.off[containerCPU], t.allAt = now+s.every.All, now
		s.failures.container(containerCPU, t, err)
		return
	}
	r.CPU.Mono = s.mono()
	if all {
		t.noteUse(now, r.CPU.Usage, s.every.All)
	}
	if quota != nil {
		t.counted, t.limited = throttling, r.Throttling.Periods > 0
	}
	if all && t.counted {
		r.Throttling.Mono = r.CPU.Mono
	}
}

// readRest reads the other counters of the containers that are due. It limits their number per
// sample, such that each is read in time and no sample takes long. With all, it reads every
// container.
func (s *Sampler) readRest(all bool) {
	if s.cgroups == nil || len(s.targets) == 0 {
		return
	}
	now, n := s.reading.Mono, len(s.targets)
	every := s.every.Slow
	if s.tight() {
		every /= 4
	}
	// Allow twice the average number, since a sample may come late.
	room := 1 + int(2*int64(n)*int64(min(now-s.last, s.every.All))/int64(every))
	fresh := atOnce
	if all {
		room, fresh = n, n
	}
	for range n {
		if s.nextTarget >= n {
			s.nextTarget = 0
		}
		t := s.targets[s.nextTarget]
		left := &room
		if t.slowAt == 0 {
			left = &fresh
		}
		if all || t.slowAt == 0 || now-t.slowAt >= every {
			if *left == 0 {
				if room == 0 && fresh == 0 {
					return
				}
				s.nextTarget++
				continue
			}
			*left--
			t.slowAt = now
			s.container(t, s.readingOf(s.nextTarget))
		}
		s.nextTarget++
	}
}

// tight reports whether memory is short by the latest readings; then containers are read more
// often.
func (s *Sampler) tight() bool {
	r := &s.reading
	return r.Pressure.Memory.Avg10 >= 0.05 || r.Memory.Low > 0 && r.Memory.Free < 2*r.Memory.Low && r.Memory.Available < r.Memory.Total/10
}

// container reads all counters of a container except its CPU time.
func (s *Sampler) container(t *target, r *observe.ContainerReading) {
	if t.CPUOnly {
		return
	}
	for p := containerPressure; p <= containerCache; p++ {
		s.part(t, r, p)
	}
}

// part reads one group of a container's counters, unless this sample has read it already.
func (s *Sampler) part(t *target, r *observe.ContainerReading, p part) {
	if s.reading.Mono < t.off[p] {
		return
	}
	var err error
	switch p {
	case containerPressure:
		if r.Pressure.Mono != 0 {
			return
		}
		if err = s.cgroups.Stalls(t.Path, &r.Pressure); err == nil {
			r.Pressure.Mono = s.mono()
		}
	case containerMemory:
		if r.Memory.Mono != 0 {
			return
		}
		if err = s.cgroups.MemoryUse(t.Path, &r.Memory); err == nil {
			r.Memory.Mono = s.mono()
		}
	case containerSwap:
		if s.reading.Memory.SwapTotal == 0 || r.Swap.Mono != 0 {
			return
		}
		if err = s.cgroups.Swap(t.Path, &r.Swap); err == nil {
			r.Swap.Mono = s.mono()
		}
	case containerIO:
		if err = s.cgroups.IOBytes(t.Path, &r.IO); err == nil {
			r.IO.Mono = s.mono()
		}
	case containerThreads:
		if t.LS && r.RunDelay.Mono == 0 {
			err = s.runDelay(t, r)
		}
	case containerCache:
		err = s.cache(t, r)
	}
	if err == nil {
		return
	}
	if errors.Is(err, cgroupfs.ErrGone) || errors.Is(err, cgroupfs.ErrUnsupported) {
		t.off[p] = s.reading.Mono + seldom
	}
	s.failures.container(p, t, err)
}

// runDelay reads a container's run delay. It stays unknown while the container's cgroup has no
// thread: the processes may be in cgroups that the container has made, and wait there.
func (s *Sampler) runDelay(t *target, r *observe.ContainerReading) error {
	s.delays.begin(&t.delays)
	err := s.cgroups.Threads(t.Path, s.delays.addFunc)
	if err == nil {
		err = s.delays.err
	}
	if err != nil || s.delays.threads == 0 || s.delays.threads > mostThreads {
		t.delays.Drop()
		return err
	}
	r.RunDelay = observe.DelayCounter{Mono: s.mono(), Total: t.delays.End()}
	return nil
}

// threadDelays sums the run delays of a container's threads. It is reused for one container
// after another.
type threadDelays struct {
	host    *procfs.FS
	addFunc func(int) // the method add, bound once to save allocations
	into    *observe.Delays
	threads int
	err     error
}

func (d *threadDelays) begin(into *observe.Delays) {
	into.Begin()
	d.into, d.threads, d.err = into, 0, nil
}

func (d *threadDelays) add(thread int) {
	d.threads++
	if d.err != nil || d.threads > mostThreads {
		return
	}
	delay, err := d.host.RunDelay(thread)
	switch {
	case err == nil:
		d.into.Add(thread, delay)
	case !errors.Is(err, procfs.ErrUnsupported): // which RunDelay returns for a thread that has ended
		d.err = err
	}
}

// cache reads a container's counters, and sums what it occupies of all caches.
func (s *Sampler) cache(t *target, r *observe.ContainerReading) error {
	if s.rdt == nil || r.Cache.Mono != 0 {
		return nil
	}
	all, err := s.rdt.Usage(t.ID)
	if err != nil || len(all) == 0 {
		return err
	}
	for _, u := range all {
		r.Cache.Occupancy += max(0, u.OccupancyBytes)
	}
	r.Cache.Mono, r.Cache.L3s = s.mono(), all
	return nil
}

// wait is the time to the next sample. On an idle node without fast targets the interval grows,
// up to Intervals.All.
func (s *Sampler) wait(seen *observe.Snapshot, fast bool) time.Duration {
	const idle = 0.1 // share of the CPUs in use up to which a node is idle
	var online float64
	for _, c := range seen.CPUs {
		if c.Known {
			online++
		}
	}
	n := &seen.Node
	if fast || n.CPU.At.IsZero() || float64(n.CPU.Usage) >= idle*online*1000 || n.Pressure.CPU >= idle || n.Pressure.Memory >= idle/10 {
		s.pace = s.every.Fast
	} else {
		s.pace = min(2*s.pace, max(s.every.All, s.every.Fast))
	}
	return s.pace
}
