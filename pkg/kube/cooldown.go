package kube

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// coolDown is a time in which nothing is sold because of an eviction. It is known from the
// order, before the plugin's next status has it.
type coolDown struct {
	until   time.Time
	why     string
	settled chan struct{} // closed once the publisher has nothing more to publish; nil if nobody waits
	// evicted has the pods that orders of this cool-down name, by UID, and when they count again:
	// a zero time until the pod is ending.
	evicted map[string]time.Time
}

// These bound for how long an evicted pod does not count in what is published. A kubelet that is
// away does not end it, and fails other pods at its return if there is no room for this one.
const (
	shortGrace  = 30 * time.Second // pods with a longer grace period always count
	overdue     = 15 * time.Second // the kubelet kills a pod after its grace period, and then removes what it had
	evictedMost = 256              // pods that are remembered
)

// mark returns the pods with a mark on those that have been evicted by an order and end soon.
func (c *coolDown) mark(pods []selling.Pod, now time.Time) []selling.Pod {
	if !now.Before(c.until) {
		c.evicted = nil
	}
	if len(c.evicted) == 0 {
		return pods
	}
	marked := slices.Clone(pods) // the others are kept for the next step
	for i := range marked {
		pod := &marked[i]
		counts, ordered := c.evicted[pod.UID]
		if !ordered || !pod.Ending || pod.Grace > shortGrace {
			continue
		}
		if counts.IsZero() {
			counts = now.Add(pod.Grace + overdue)
			c.evicted[pod.UID] = counts
		}
		pod.Evicted = now.Before(counts)
	}
	return marked
}

// apply returns the report as it is to be understood now.
func (c *coolDown) apply(r *selling.Report, now time.Time) *selling.Report {
	if r == nil || r.Closed != nil || !now.Before(c.until) {
		return r
	}
	closed := *r
	closed.Closed = &selling.Reason{Word: selling.CoolDown, Text: "No batch work is wanted during an eviction and for some time after it: " + strings.TrimRight(c.why, ".") + "."}
	return &closed
}

// CoolDown closes the sale for a time because a pod is evicted, and waits until that is published
// or the context ends. Otherwise the scheduler could bind the successor of the pod to this node.
func (p *Publisher) CoolDown(ctx context.Context, uid string, length time.Duration, why string) {
	until := time.Now().Add(length)
	p.mu.Lock()
	if until.After(p.coolDown.until) {
		p.coolDown.until, p.coolDown.why = until, why
	}
	if p.coolDown.evicted == nil {
		p.coolDown.evicted = map[string]time.Time{}
	}
	if _, known := p.coolDown.evicted[uid]; !known && len(p.coolDown.evicted) < evictedMost {
		p.coolDown.evicted[uid] = time.Time{}
	}
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
