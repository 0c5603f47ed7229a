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
	taken     Taken     // what batch work had given before it
	idle      time.Time // begin of the time in which no memory is wanted
	requested int64     // memory requested in the last step
	before    Held      // memory of batch work at the last step
	swapHeld  int64     // memory that zram occupied then
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
	gave := m.measureTaken()
	m.giving = (m.giving + float64(gave)/max(now.Sub(r.at), m.pace.interval).Seconds()) / 2
	if gave >= r.requested/4 {
		r.misses = 0
	} else {
		r.miss(now)
	}
	r.requested, m.requested = 0, false
}

// miss makes the next step wait for longer.
func (r *releasing) miss(now time.Time) {
	r.misses = min(r.misses+1, mostMisses)
	r.notBefore = now.Add(time.Second << (r.misses - 1))
}

// distribute divides the amount over the containers: BE first, among them the lowest tier, and
// then the largest page cache. Memory other than page cache has to go to swap, and is asked for only
// if no page cache is left. A shortage in which no memory can be asked for counts as a step that
// freed nothing.
func (m *Memory) distribute(v *View, w wanted) {
	r := &m.release
	m.measureRelease(v.Now)
	m.desired.Closely = m.nears(v, &w)
	if w.bytes <= 0 {
		r.requested, m.requested = 0, false
		m.offload.giving = false
		if r.idle.IsZero() {
			r.idle = v.Now
		}
		if r.reported && !waiting(r.idle, v.Now, raiseAfter) {
			r.reported = false
			m.reportTaken()
		}
		return
	}
	r.idle = time.Time{}
	if m.requested || v.Now.Before(r.notBefore) && !w.pressing || w.resting && waiting(r.at, v.Now, restTime) {
		return
	}
	m.gather(v, w.pool)
	step := min(w.bytes, max(leastRelease, bytesPart(m.sum.total, releasePercent)))
	cache, swap := m.takeCache(v, step), int64(0)
	if cache < step && !w.cacheOnly {
		swap = m.takeToSwap(v, step-cache, w.pressing)
	}
	m.requested = cache+swap > 0
	if !m.requested {
		m.offload.giving = false
		if !w.cacheOnly {
			m.giving /= 2
			r.miss(v.Now)
		}
		return
	}
	m.offload.asked = swap
	r.requested, r.before, r.swapHeld, r.at = cache+swap, m.sum.batch, m.sum.swapHeld, v.Now
	if r.reported {
		return
	}
	r.reported, r.taken = true, m.offload.taken
	m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "batch", Action: "reclaim",
		To: MemoryText(cache + swap),
		Why: fmt.Sprintf("%s; %s are to come back, now %s of page cache and %s to swap, from %d containers, the lowest tier and the largest page cache first",
			m.reason(v, w.why), MemoryText(w.bytes), MemoryText(cache), MemoryText(swap), len(m.desired.Reclaim)),
		Facts: m.facts()})
}

// reportTaken reports at the end of a shortage what each step gave.
func (m *Memory) reportTaken() {
	cache, swap := m.offload.taken.PageCache-m.release.taken.PageCache, m.offload.taken.Swap-m.release.taken.Swap
	m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "batch", Action: "reclaimed",
		To:    MemoryText(cache + swap),
		Why:   fmt.Sprintf("no memory had to come back for %s; until then batch gave %s of page cache, and %s went to swap, which holds %s of it now", raiseAfter, MemoryText(cache), MemoryText(swap), MemoryText(m.sum.batch.Swap)),
		Facts: m.facts()})
}

// nears reports whether memory is to be taken back now, or soon if online work goes on growing. A
// container's figures are seconds old otherwise, and say little of one that fills its memory.
func (m *Memory) nears(v *View, w *wanted) bool {
	if w.bytes > 0 {
		return w.pressing || !v.Now.Before(m.release.notBefore)
	}
	return m.growing() && m.sum.batch.Current > m.desired.Goal-2*m.desired.Headroom
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
		return cmp.Or(classOrder(x.Class, y.Class), cmp.Compare(v.Pods[x.Pod].Tier, v.Pods[y.Pod].Tier), cmp.Compare(b.cache, a.cache), cmp.Compare(x.ID, y.ID))
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

// takeCache requests page cache, and returns how much.
func (m *Memory) takeCache(v *View, wanted int64) (requested int64) {
	for _, c := range m.candidates {
		bytes := min(c.cache-leastCache, wanted-requested)
		if bytes < mib {
			continue
		}
		m.reclaimFrom(v, c.container, bytes)
		requested += bytes
	}
	return requested
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
