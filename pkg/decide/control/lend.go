package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Lend decides which LSR pins are idle, so that batch work may run on their CPUs. It steps with
// each fast measurement: a pin that begins to run has its CPUs back at the next step, and until
// then its weight gives it precedence over batch work.
type Lend struct {
	stale time.Duration // age from which a measurement is not used
	pins  map[string]*lentPin
	idle  []string
}

// lentPin is the state of one pin.
type lentPin struct {
	patience
	since   time.Time // begin of the time in which the pin has been quiet; zero if it is not
	lent    bool
	present bool // whether the pin exists at this step
}

const (
	quietBefore  = 10 * time.Second // time that a pin must be quiet before it is lent for the first time
	quietPercent = 2                // usage in percent of its CPUs up to which a pin counts as quiet
	backPercent  = 5                // usage in percent of its CPUs above which a lent pin gets them back
	leastBack    = workload.MilliCPU(50)
)

// NewLend returns the controller. The interval is the longest time between two measurements of
// a pin.
func NewLend(interval time.Duration) *Lend {
	return &Lend{stale: staleAfter * interval, pins: map[string]*lentPin{}}
}

// Step returns the IDs of the containers whose CPUs are lent now, in a slice that the next step
// reuses. It lends none unless allowed is set, which requires that all batch work yields at
// once and that there is some.
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
		p.present = true
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
		if !p.present {
			delete(l.pins, id)
		}
		p.present = false
	}
	return l.idle, decided
}

// step decides about one pin and returns the reason.
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
