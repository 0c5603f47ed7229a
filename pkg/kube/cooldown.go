package kube

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// coolDown is a time in which nothing is sold because of evictions. It is known from their
// orders, before the plugin's next status has it.
type coolDown struct {
	holds   []*hold       // of the orders, the latest order last
	settled chan struct{} // closed once the publisher has nothing more to publish; nil if nobody waits
}

// hold is the cool-down of one order.
type hold struct {
	pod    string // UID of the pod that the order names
	until  time.Time
	why    string
	counts time.Time // from then on the pod counts again; zero until the pod is ending
}

// These bound for how long an evicted pod does not count in what is published. A kubelet that is
// away does not end it, and fails other pods at its return if there is no room for this one.
const (
	shortGrace = 30 * time.Second // pods with a longer grace period always count
	overdue    = 15 * time.Second // the kubelet kills a pod after its grace period, and then removes what it had
	mostHolds  = 256              // orders that are remembered
)

// end is the hold that ends last, of those that have not ended; nil if there is none.
func (c *coolDown) end(now time.Time) *hold {
	var last *hold
	for _, h := range c.holds {
		if now.Before(h.until) && (last == nil || h.until.After(last.until)) {
			last = h
		}
	}
	return last
}

// mark returns the pods with a mark on those that have been evicted by an order and end soon.
func (c *coolDown) mark(pods []selling.Pod, now time.Time) []selling.Pod {
	if c.end(now) == nil {
		c.holds = nil
		return pods
	}
	marked := slices.Clone(pods) // the others are kept for the next step
	for i := range marked {
		pod := &marked[i]
		ordered := slices.IndexFunc(c.holds, func(h *hold) bool { return h.pod == pod.UID })
		if ordered < 0 || !pod.Ending || pod.Grace > shortGrace {
			continue
		}
		h := c.holds[ordered]
		if h.counts.IsZero() {
			h.counts = now.Add(pod.Grace + overdue)
		}
		pod.Evicted = now.Before(h.counts)
	}
	return marked
}

// apply returns the report as it is to be understood now.
func (c *coolDown) apply(r *selling.Report, now time.Time) *selling.Report {
	last := c.end(now)
	if r == nil || r.Closed != nil || last == nil {
		return r
	}
	closed := *r
	closed.Closed = &selling.Reason{Word: selling.CoolDown, Text: "No batch work is wanted during an eviction and for some time after it: " + strings.TrimRight(last.why, ".") + "."}
	return &closed
}

// CoolDown closes the sale for a time because a pod is evicted, and waits until that is published
// or the context ends. Otherwise the scheduler could bind the successor of the pod to this node.
// undo ends this cool-down because the pod is not evicted. Those of other orders go on.
func (p *Publisher) CoolDown(ctx context.Context, uid string, length time.Duration, why string) (undo func()) {
	h := &hold{pod: uid, until: time.Now().Add(length), why: why}
	p.mu.Lock()
	if len(p.coolDown.holds) == mostHolds {
		p.coolDown.holds = slices.Delete(p.coolDown.holds, 0, 1)
	}
	p.coolDown.holds = append(p.coolDown.holds, h)
	if p.coolDown.settled == nil {
		p.coolDown.settled = make(chan struct{})
	}
	settled := p.coolDown.settled
	p.mu.Unlock()
	p.awake()
	select {
	case <-settled:
	case <-ctx.Done():
	}
	return func() {
		p.mu.Lock()
		p.coolDown.holds = slices.DeleteFunc(p.coolDown.holds, func(other *hold) bool { return other == h })
		p.mu.Unlock()
		p.awake()
	}
}

// settle tells those who wait in CoolDown that nothing is left to publish.
func (p *Publisher) settle(waits chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waits != nil && p.coolDown.settled == waits {
		close(waits)
		p.coolDown.settled = nil
	}
}
