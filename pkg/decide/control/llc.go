package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// leastTraffic is the memory traffic per CPU second below which a pod's traffic is noise.
// Without it, any traffic of a pod whose data fits in its cache would look like contention.
const leastTraffic = 10e6 // bytes

// mostRise bounds a rise, so that one odd measurement does not dominate the mean for long.
const mostRise = 2

// llc finds the pods that lost part of the last-level cache to batch work: they hold less of it
// than when they ran alone, fetch more from memory per second of CPU time, and batch work holds
// at least what they lost. Neither PSI nor run delay shows this, since a thread that waits for
// memory counts as running.
type llc struct {
	interval time.Duration
	pods     perID[llcPod]
}

// llcPod is the state of one pod.
type llcPod struct {
	occupancy, traffic float64 // in bytes, and in bytes per CPU second, while the pod ran alone
	learned            time.Duration
	rise               float64 // mean rise of the traffic over excessTime while batch work holds what the pod lost
	latest             Reading // of that rise
}

// llcReading is the result of one step for all pods.
type llcReading struct {
	counted, learned bool // whether some service's cache is counted, and whether such a service ran alone before
	ref              string
	rise             float64 // largest rise of all pods
	all, batch       float64 // memory traffic of all containers and of batch work, in MB/s
	measured         bool
}

// counted reports whether resctrl has counted the cache of some container.
func counted(v *View) bool {
	for i := range v.Containers {
		if !v.Containers[i].Cache.At.IsZero() {
			return true
		}
	}
	return false
}

func (l *llc) measure(v *View, passed time.Duration, mark float64) (reading llcReading) {
	var held, used float64
	sure := true
	for i := range v.Containers {
		c := &v.Containers[i]
		batch := c.Class == workload.BE
		if batch {
			used += float64(c.CPU.Usage)
			sure = sure && uses(v, c, l.interval)
		}
		if !knownSlowly(v.Now, c.Cache.At, l.interval) {
			continue
		}
		reading.measured = true
		reading.all += c.Cache.Bandwidth / 1e6
		if batch {
			reading.batch += c.Cache.Bandwidth / 1e6
			held += float64(c.Cache.Occupancy)
		}
	}
	light := used*100 <= float64(v.Allocatable)*lightPercent
	l.pods.begin()
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class == workload.BE || p.Class == workload.System {
			continue
		}
		s := l.pods.at(p.UID)
		occupancy, traffic, at, runs := l.of(v, p)
		if runs && sure {
			s.enter(occupancy, traffic, held, mark, light, at, passed)
		}
		reading.counted = reading.counted || runs
		reading.learned = reading.learned || s.learned >= learnTime
		if s.rise > reading.rise {
			reading.ref, reading.rise = p.Ref, s.rise
		}
	}
	l.pods.end()
	return reading
}

// of returns the pod's cache occupancy in bytes and its memory traffic in bytes per CPU second, with the
// time of the earliest measurement. It returns false if they are unknown or the pod hardly runs.
func (l *llc) of(v *View, p *Pod) (occupancy, traffic float64, at time.Time, runs bool) {
	ran := 0.0
	for i := range v.Containers[p.First : p.First+p.Count] {
		c := &v.Containers[p.First+i]
		if !uses(v, c, l.interval) || !knownSlowly(v.Now, c.Cache.At, l.interval) {
			continue
		}
		ran += float64(c.CPU.Usage) / 1000
		occupancy += float64(c.Cache.Occupancy)
		traffic += c.Cache.Bandwidth
		if at.IsZero() || c.Cache.At.Before(at) {
			at = c.Cache.At
		}
	}
	if ran < leastRunnable {
		return 0, 0, at, false
	}
	return occupancy, traffic / ran, at, true
}

func (s *llcPod) enter(occupancy, traffic, held, mark float64, light bool, at time.Time, passed time.Duration) {
	rise := 0.0
	switch share := min(1, passed.Seconds()/learnTime.Seconds()); {
	case light && s.learned == 0:
		s.occupancy, s.traffic, s.learned = occupancy, traffic, passed
	case light:
		s.occupancy += (occupancy - s.occupancy) * share
		s.traffic += (traffic - s.traffic) * share
		s.learned = min(s.learned+passed, learnTime)
	case s.learned < learnTime: // the pod has not run alone for long enough
	case occupancy < s.occupancy*(1-mark) && held >= s.occupancy-occupancy:
		rise = min(mostRise, traffic/max(s.traffic, leastTraffic)-1)
	}
	rise = max(0, rise)
	s.rise += (rise - s.rise) * min(1, passed.Seconds()/excessTime.Seconds())
	if !at.Equal(s.latest.at) {
		s.latest = Reading{from: s.latest.at, at: at, value: rise, above: rise}
	}
}

// tell enters how much memory traffic services have gained with cache that they lost, where their cycles per instruction
// do not tell more.
func (l *llc) tell(now time.Time, mark float64, disturbed []Disturbance) {
	for i := range disturbed {
		d := &disturbed[i]
		if s := l.pods.find(d.UID); s != nil && s.learned >= learnTime && !d.Cycles.known(now) {
			d.Latest[lostCache], d.bears[lostCache] = s.latest, mark
		}
	}
}
