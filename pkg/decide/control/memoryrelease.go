package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// leastCache is the page cache that a container keeps: about what its programs run from.
const leastCache = 32 * mib

// releasing limits how fast memory is reclaimed, as senpai does. The steps are bounded, and
// after each step that freed little the wait doubles, so that work which needs its cache does
// not have to read it again and again.
type releasing struct {
	reported  bool      // this shortage has been reported
	idle      time.Time // begin of the time in which no memory is wanted
	requested int64     // memory requested in the last step
	held      int64     // memory of batch work at the last step
	at        time.Time
	misses    int // consecutive steps that freed little
	notBefore time.Time
}

const (
	releasePercent = 5 // percent of total, at most in a step
	leastRelease   = 256 * mib
	mostMisses     = 6 // the longest wait is 2^(mostMisses − 1) seconds
	restTime       = 30 * time.Second
)

// donor is a container from which memory can be reclaimed.
type donor struct {
	container   int // index in View.Containers
	cache, rest int64
}

// wanted is an amount of memory to reclaim, and why.
type wanted struct {
	bytes     int64
	pool      int  // pool to reclaim from; -1 for all BE pods
	cacheOnly bool // reclaims only page cache
	pressing  bool // does not wait after misses
	resting   bool // rests after each step
	why       memoryCause
}

// measureRelease computes what the last step freed, once all figures are newer than it.
func (m *Memory) measureRelease(now time.Time) {
	r := &m.release
	if r.requested == 0 || !m.sum.batch.At.After(r.at) {
		return
	}
	gave := max(r.held-m.sum.batch.Current, 0)
	m.giving = (m.giving + float64(gave)/max(now.Sub(r.at), m.pace.interval).Seconds()) / 2
	if gave >= r.requested/4 {
		r.misses = 0
	} else {
		r.misses = min(r.misses+1, mostMisses)
		r.notBefore = now.Add(time.Second << (r.misses - 1))
	}
	r.requested, m.requested = 0, false
}

// distribute divides the amount over the containers: BE first, among them the one with the
// largest page cache first. It asks for memory other than page cache only if no page cache is
// left.
func (m *Memory) distribute(v *View, w wanted) {
	r := &m.release
	m.measureRelease(v.Now)
	if w.bytes <= 0 {
		r.requested, m.requested = 0, false
		if r.idle.IsZero() {
			r.idle = v.Now
		}
		return
	}
	if !r.idle.IsZero() && !waiting(r.idle, v.Now, raiseAfter) {
		r.reported = false
	}
	r.idle = time.Time{}
	if m.requested || v.Now.Before(r.notBefore) && !w.pressing || w.resting && waiting(r.at, v.Now, restTime) {
		return
	}
	m.gather(v, w.pool)
	step := min(w.bytes, max(leastRelease, bytesPart(m.sum.total, releasePercent)))
	left := m.takeCache(v, step)
	if left > 0 && !w.cacheOnly {
		left = m.takeRest(v, left)
	}
	m.requested = step > left
	if !m.requested {
		return
	}
	r.requested, r.held, r.at = step-left, m.sum.batch.Current, v.Now
	if r.reported {
		return
	}
	r.reported = true
	m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "batch", Action: "reclaim",
		To:    MemoryText(step - left),
		Why:   fmt.Sprintf("%s; %s are to come back, %s of them now, from %d containers, the largest page cache first", m.reason(v, w.why), MemoryText(w.bytes), MemoryText(step-left), len(m.desired.Reclaim)),
		Facts: m.facts()})
}

// gather collects the containers from which memory can be reclaimed, in the order of reclaim.
func (m *Memory) gather(v *View, pool int) {
	m.candidates = m.candidates[:0]
	for i := range v.Containers {
		c := &v.Containers[i]
		if pool >= 0 && c.Pool != pool || pool < 0 && c.Class != workload.BE || !permits(v, c, workload.Reclaim) {
			continue
		}
		if !knownSlowly(v.Now, c.Container.Memory.At, m.pace.interval) {
			continue
		}
		cache := min(c.Container.Memory.Cache, c.Container.Memory.Current)
		m.candidates = append(m.candidates, donor{container: i, cache: cache, rest: c.Container.Memory.Current - cache})
	}
	slices.SortFunc(m.candidates, func(a, b donor) int {
		x, y := &v.Containers[a.container], &v.Containers[b.container]
		return cmp.Or(classOrder(x.Class, y.Class), cmp.Compare(b.cache, a.cache), cmp.Compare(x.ID, y.ID))
	})
}

// classOrder orders BE before all other classes.
func classOrder(a, b workload.Class) int {
	switch {
	case a == b || a != workload.BE && b != workload.BE:
		return 0
	case a == workload.BE:
		return -1
	}
	return 1
}

func (m *Memory) takeCache(v *View, left int64) int64 {
	for _, c := range m.candidates {
		bytes := min(c.cache-leastCache, left)
		if bytes < mib {
			continue
		}
		m.reclaimFrom(v, c.container, bytes)
		left -= bytes
	}
	return left
}

// takeRest requests memory that has to be swapped out, at most a tenth of a container's.
// Without swap the kernel frees nothing, and an eviction follows.
func (m *Memory) takeRest(v *View, left int64) int64 {
	for _, c := range m.candidates {
		bytes := min(c.rest/10, left)
		if bytes < mib || v.Containers[c.container].Class != workload.BE {
			continue
		}
		m.reclaimFrom(v, c.container, bytes)
		left -= bytes
	}
	return left
}

// reclaimFrom adds to the memory that is to be reclaimed from the container.
func (m *Memory) reclaimFrom(v *View, container int, bytes int64) {
	c := &v.Containers[container]
	for i := range m.desired.Reclaim {
		if r := &m.desired.Reclaim[i]; r.ID == c.ID {
			r.Bytes += bytes
			r.Until -= bytes
			return
		}
	}
	m.desired.Reclaim = append(m.desired.Reclaim, Reclaim{ID: c.ID, Bytes: bytes, Until: c.Container.Memory.Current - bytes})
}

// permits reports whether the action may be applied to the container. Every action may be for
// BE, and for others those that their pod allows.
func permits(v *View, c *Container, action workload.Actions) bool {
	return c.Class == workload.BE || v.Pods[c.Pod].Allow&action != 0
}
