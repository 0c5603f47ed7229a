package kube

import (
	"context"
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

// CoolDown closes the sale until then, and waits until that is published or the context ends.
// Otherwise the scheduler could bind the successor of an evicted pod to this node again.
func (p *Publisher) CoolDown(ctx context.Context, until time.Time, why string) {
	p.mu.Lock()
	if until.After(p.coolDown.until) {
		p.coolDown.until, p.coolDown.why = until, why
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
