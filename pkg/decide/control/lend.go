package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Lend decides which LSR pins are idle, so that batch work may run on their CPUs until they
// are not. It steps with each fast look: a pin that begins to run has its CPUs back with the
// next, and meanwhile goes before batch work by its weight.
type Lend struct {
	stale time.Duration // age from which a measurement says nothing
	pins  map[string]*lentPin
	idle  []string
}

// lentPin is what is known of one pin.
type lentPin struct {
	patience
	since time.Time // it is quiet since then; zero: it is not
	lent  bool
	seen  bool // in this step
}

const (
	quietBefore  = 10 * time.Second // a pin has been quiet before it is lent, the first time
	quietPercent = 2                // of its CPUs, at most, while it is quiet
	backPercent  = 5                // of its CPUs, above which it has them back
	leastBack    = workload.MilliCPU(50)
)

// NewLend makes the decider. Interval is the longest from one measurement of a pin to the
// next.
func NewLend(interval time.Duration) *Lend {
	return &Lend{stale: staleAfter * interval, pins: map[string]*lentPin{}}
}

// Step returns the ids of the containers whose CPUs are lent now; the slice is used again.
// Without the batch work's yielding at once, or without any, none is.
func (l *Lend) Step(v *View, allowed bool) (lent []string, decided []Decision) {
	l.idle = l.idle[:0]
	batch := false
	for i := range v.Pods {
		batch = batch || v.Pods[i].Class == workload.BE
	}
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Class != workload.LSR || c.Pool >= 0 {
			continue
		}
		p := l.pins[c.ID]
		if p == nil {
			p = &lentPin{}
			l.pins[c.ID] = p
		}
		p.seen = true
		had := p.lent
		why := p.step(v.Now, c, l.stale, allowed && batch)
		if p.lent {
			l.idle = append(l.idle, c.ID)
		}
		if had == p.lent {
			continue
		}
		d := Decision{
			Controller: "batch", Object: c.Ref, Action: "lend", From: "its own", To: "lent", Why: why,
			Facts: []Fact{cpuFact("usage_cpus", c.CPU.Usage), cpuFact("pinned_cpus", c.Request)},
		}
		if had {
			d.Action, d.From, d.To = "return", d.To, d.From
		}
		decided = append(decided, d)
	}
	for id, p := range l.pins {
		if !p.seen {
			delete(l.pins, id)
		}
		p.seen = false
	}
	return l.idle, decided
}

// step decides about one pin, and says why.
func (p *lentPin) step(now time.Time, c *Container, stale time.Duration, allowed bool) (why string) {
	known := recent(now, c.CPU.At, stale)
	switch {
	case !allowed:
		p.lent, p.since = false, time.Time{}
		return "there is no batch work that yields at once"
	case !known:
		p.lent, p.since = false, time.Time{}
		return "its usage is not known"
	case p.lent && c.CPU.Usage > max(perCent(c.Request, backPercent), leastBack):
		p.lent, p.since = false, time.Time{}
		p.trouble()
		return fmt.Sprintf("it uses %s of its %s CPUs", cpus(c.CPU.Usage), cpus(c.Request))
	case p.lent:
		return ""
	case c.CPU.Usage > perCent(c.Request, quietPercent):
		p.since = time.Time{}
		return ""
	case p.since.IsZero() || now.Before(p.since):
		p.since = now
		return ""
	}
	if quiet := quietBefore * time.Duration(p.factor()); now.Sub(p.since) >= quiet {
		p.lent, p.tried = true, true
		return fmt.Sprintf("it used less than %d%% of its %s CPUs for %s", quietPercent, cpus(c.Request), quiet)
	}
	return ""
}
