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
	counted, learned bool // whether the cache of some service that runs is counted, and whether such a service ran alone before
	unknown          bool // whether the cache of no service that may run is counted, or batch work's usage is not known now
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
	complete, sure := true, true
	for i := range v.Containers {
		c := &v.Containers[i]
		batch := c.Class == workload.BE
		if batch && c.Unseen {
			complete = false
		} else if batch {
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
	light := complete && used*100 <= float64(v.Allocatable)*lightPercent
	uncounted := false
	l.pods.begin()
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class == workload.BE || p.Class == workload.System {
			continue
		}
		s := l.pods.at(p.UID)
		use := l.of(v, p)
		reading.counted = reading.counted || use.counted
		uncounted = uncounted || !use.counted && !use.idle
		reading.learned = reading.learned || s.learned >= learnTime
		if !use.counted || !sure {
			s.follow(0, passed)
			continue
		}
		s.enter(&use, held, mark, light, passed)
		if s.rise > reading.rise {
			reading.ref, reading.rise = p.Ref, s.rise
		}
	}
	l.pods.end()
	reading.unknown = !sure || uncounted && !reading.counted
	return reading
}

// llcUse is how a pod uses the cache.
type llcUse struct {
	occupancy, traffic float64   // in bytes, and in bytes per CPU second
	at                 time.Time // of the earliest measurement
	counted, idle      bool      // neither is set if the pod may run and its cache is not counted
}

func (l *llc) of(v *View, p *Pod) (use llcUse) {
	var ran, counted float64
	known := true
	for i := range v.Containers[p.First : p.First+p.Count] {
		c := &v.Containers[p.First+i]
		switch {
		case c.Unseen:
		case !uses(v, c, l.interval):
			known = false
		case !knownSlowly(v.Now, c.Cache.At, l.interval):
			ran += float64(c.CPU.Usage) / 1000
		default:
			counted += float64(c.CPU.Usage) / 1000
			use.occupancy += float64(c.Cache.Occupancy)
			use.traffic += c.Cache.Bandwidth
			if use.at.IsZero() || c.Cache.At.Before(use.at) {
				use.at = c.Cache.At
			}
		}
	}
	use.counted = counted >= leastRunnable
	use.idle = known && ran+counted < leastRunnable
	if use.counted {
		use.traffic /= counted
	}
	return use
}

// enter adds a measurement of a pod that runs, beside batch work that holds so many bytes of the cache.
func (s *llcPod) enter(use *llcUse, held, mark float64, light bool, passed time.Duration) {
	rise := 0.0
	switch share := min(1, passed.Seconds()/learnTime.Seconds()); {
	case light && s.learned == 0:
		s.occupancy, s.traffic, s.learned = use.occupancy, use.traffic, passed
	case light:
		s.occupancy += (use.occupancy - s.occupancy) * share
		s.traffic += (use.traffic - s.traffic) * share
		s.learned = min(s.learned+passed, learnTime)
	case s.learned < learnTime: // the pod has not run alone for long enough
	case use.occupancy < s.occupancy*(1-mark) && held >= s.occupancy-use.occupancy:
		rise = min(mostRise, use.traffic/max(s.traffic, leastTraffic)-1)
	}
	rise = max(0, rise)
	s.follow(rise, passed)
	if !use.at.Equal(s.latest.at) {
		s.latest = Reading{from: s.latest.at, at: use.at, value: rise, above: rise}
	}
}

// follow moves the mean towards the newest rise, which is 0 while the pod does not run.
func (s *llcPod) follow(rise float64, passed time.Duration) {
	s.rise += (rise - s.rise) * min(1, passed.Seconds()/excessTime.Seconds())
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
