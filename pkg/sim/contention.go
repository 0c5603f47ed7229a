package sim

import (
	"cmp"
	"slices"
)

// contend computes the slowdown by memory traffic for the next step: none up to 60 % of the
// bandwidth, then growing linearly to twice the time at full bandwidth. This is an assumption:
// published curves of loaded latency bend there and about double before the end.
func (n *simNode) contend() {
	n.divideCache()
	n.slowdown = 1
	traffic := 0.0
	for _, c := range n.containers {
		c.moved = c.got * c.speed * float64(c.Traffic) * (1 + (withoutCache-1)*c.lostCache())
		traffic += c.moved
	}
	if n.hardware.Bandwidth == 0 {
		return
	}
	const knee = 0.6
	n.slowdown += max(0, traffic/float64(n.hardware.Bandwidth)-knee) / (1 - knee)
}

// divideCache divides the last-level cache in proportion to the CPU time that containers use, and
// gives none of them more than it would fill. This is an assumption: what a program holds follows
// how often it touches its data.
func (n *simNode) divideCache() {
	left, used := float64(n.hardware.LLC), 0.0
	n.byCache = n.byCache[:0]
	for _, c := range n.containers {
		if c.cached = 0; c.LLC > 0 && c.got > epsilon {
			n.byCache, used = append(n.byCache, c), used+c.got
		}
	}
	slices.SortStableFunc(n.byCache, func(a, b *container) int { // those that need the least of it for their CPU time come first
		return cmp.Compare(float64(a.LLC)/a.got, float64(b.LLC)/b.got)
	})
	for _, c := range n.byCache {
		c.cached = min(float64(c.LLC), left*c.got/used)
		left, used = left-c.cached, used-c.got
	}
}

// withoutCache is how many times the traffic of work is that has lost all of its cache (an assumption: it
// differs much by program).
const withoutCache = 4

// lostCache returns the fraction of the cache that the container would fill and does not hold.
func (c *container) lostCache() float64 {
	if c.LLC == 0 || c.cached == 0 { // before its first step, or where there is no contention
		return 0
	}
	return 1 - c.cached/float64(c.LLC)
}
