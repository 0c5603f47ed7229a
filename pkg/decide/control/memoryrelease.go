package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// leastCache is what a container keeps of its page cache: what its programs run from.
const leastCache = 32 * mib

// releasing is the discipline of taking memory back, senpai's: bounded steps, and after
// one that gave little a wait that doubles, so that work which needs its cache isn't
// made to read it again and again.
type releasing struct {
	told      bool      // of this shortage
	idle      time.Time // since nothing is wanted
	asked     int64     // in the last step
	held      int64     // by batch then
	at        time.Time
	misses    int // in a row
	notBefore time.Time
}

const (
	releasePercent = 5 // of total, at most in a step
	leastRelease   = 256 * mib
	mostMisses     = 6 // the wait is 2^(misses − 1) seconds
	restTime       = 30 * time.Second
)

// giver is a container that may give memory back.
type giver struct {
	container   int // in View.Containers
	cache, rest int64
}

// wanted is memory to take back, and why.
type wanted struct {
	bytes     int64
	pool      int  // -1: from all BE
	cacheOnly bool // whole pages of programs are left alone
	pressing  bool // without waiting after misses
	resting   bool // with a rest after each step
	why       memoryCause
}

// settle sees what the last step gave, once all figures are newer.
func (m *Memory) settle(now time.Time) {
	r := &m.release
	if r.asked == 0 || !m.sum.batch.At.After(r.at) {
		return
	}
	gave := max(r.held-m.sum.batch.Current, 0)
	m.giving = (m.giving + float64(gave)/max(now.Sub(r.at), m.pace.interval).Seconds()) / 2
	if gave >= r.asked/4 {
		r.misses = 0
	} else {
		r.misses = min(r.misses+1, mostMisses)
		r.notBefore = now.Add(time.Second << (r.misses - 1))
	}
	r.asked, m.asked = 0, false
}

// take asks containers for memory: BE first, of these the one with the largest page
// cache first, and what isn't cache only when no cache is left.
func (m *Memory) take(v *View, w wanted) {
	r := &m.release
	m.settle(v.Now)
	if w.bytes <= 0 {
		r.asked, m.asked = 0, false
		if r.idle.IsZero() {
			r.idle = v.Now
		}
		return
	}
	if !r.idle.IsZero() && !waiting(r.idle, v.Now, raiseAfter) {
		r.told = false
	}
	r.idle = time.Time{}
	if m.asked || v.Now.Before(r.notBefore) && !w.pressing || w.resting && waiting(r.at, v.Now, restTime) {
		return
	}
	m.gather(v, w.pool)
	step := min(w.bytes, max(leastRelease, bytesPart(m.sum.total, releasePercent)))
	left := m.takeCache(v, step)
	if left > 0 && !w.cacheOnly {
		left = m.takeRest(v, left)
	}
	m.asked = step > left
	if !m.asked {
		return
	}
	r.asked, r.held, r.at = step-left, m.sum.batch.Current, v.Now
	if r.told {
		return
	}
	r.told = true
	m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "batch", Action: "reclaim",
		To:    MemoryText(step - left),
		Why:   fmt.Sprintf("%s; %s are to come back, %s of them now, from %d containers, the largest page cache first", m.say(v, w.why), MemoryText(w.bytes), MemoryText(step-left), len(m.desired.Reclaim)),
		Facts: m.facts()})
}

// gather finds who may be asked, the first to give first.
func (m *Memory) gather(v *View, pool int) {
	m.candidates = m.candidates[:0]
	for i := range v.Containers {
		c := &v.Containers[i]
		if pool >= 0 && c.Pool != pool || pool < 0 && c.Class != workload.BE || !permits(v, c, workload.Reclaim) {
			continue
		}
		if !known(v.Now, c.Container.Memory.At, containerMemoryPace*m.pace.interval) {
			continue
		}
		cache := min(c.Container.Memory.Cache, c.Container.Memory.Current)
		m.candidates = append(m.candidates, giver{container: i, cache: cache, rest: c.Container.Memory.Current - cache})
	}
	slices.SortFunc(m.candidates, func(a, b giver) int {
		x, y := &v.Containers[a.container], &v.Containers[b.container]
		return cmp.Or(classOrder(x.Class, y.Class), cmp.Compare(b.cache, a.cache), cmp.Compare(x.ID, y.ID))
	})
}

// classOrder orders BE before all others.
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
		m.ask(v, c.container, bytes)
		left -= bytes
	}
	return left
}

// takeRest asks for memory that has to be swapped out, at most a tenth of a
// container's: where there is no swap the kernel gives nothing, and eviction follows.
func (m *Memory) takeRest(v *View, left int64) int64 {
	for _, c := range m.candidates {
		bytes := min(c.rest/10, left)
		if bytes < mib || v.Containers[c.container].Class != workload.BE {
			continue
		}
		m.ask(v, c.container, bytes)
		left -= bytes
	}
	return left
}

// ask adds to what the container is asked for.
func (m *Memory) ask(v *View, container int, bytes int64) {
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

// permits reports whether the action may be taken with the container: any with BE, with
// others what their pod allows.
func permits(v *View, c *Container, action workload.Actions) bool {
	return c.Class == workload.BE || v.Pods[c.Pod].Allow&action != 0
}
