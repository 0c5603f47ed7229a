package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// backoff spaces out what has to be done again and again: at once until it has been
// too often, then after a wait that grows with each time, so that it never ends in a
// loop.
type backoff struct {
	times int       // in a row
	until time.Time // not before
}

// pace is how a backoff waits.
type pace struct {
	patience       int           // times in a row before the first wait
	first, longest time.Duration // wait, doubled with each further time
}

// calm without another time, beyond the wait, ends the row. It is less than the minute
// in which the kubelet sets its QoS classes' weights, whereupon systemd writes all of
// their files: that is no fight.
const calm = 30 * time.Second

// fights is the pace of repairs of what somebody else may be changing as well.
func fights() pace { return pace{patience: 5, first: 10 * time.Second, longest: 10 * time.Minute} }

// waits reports whether it is too early.
func (b *backoff) waits(now time.Time) bool { return now.Before(b.until) }

// again notes a time.
func (b *backoff) again(now time.Time, p pace) {
	if now.After(b.until.Add(calm)) {
		b.times = 0
	}
	b.times++
	b.until = now
	if over := b.times - p.patience; over >= 0 {
		b.until = now.Add(min(p.first<<min(over, 10), p.longest))
	}
}

// often reports whether it has become too often, and not been calm since.
func (b *backoff) often(now time.Time, p pace) bool {
	return b.times >= p.patience && now.Before(b.until.Add(calm))
}

// fight notes a repair of what somebody else may be changing as well.
func (a *Agent) fight(b *backoff) {
	b.again(a.now(), fights())
	if end := b.until.Add(calm); end.After(a.fought) {
		a.fought = end
	}
}

// refusal is a setting that the kernel does not take.
type refusal struct {
	want knobs.Value
	said string // with the value
	wait backoff
}

// refuse notes that the kernel has refused a change, and reports whether it had not,
// or for another reason. The passes try again after one of them, two, four, and at last
// each five minutes; events at once.
func (a *Agent) refuse(c *knobs.Change, said string) (news bool) {
	at, now, pass := reconcile.KeyOf(c), a.now(), a.Config.DriftInterval
	r := a.refused[at]
	if news = r == nil || r.said != said; news {
		r = &refusal{want: c.To, said: said}
		a.refused[at] = r
	}
	if !r.wait.waits(now) {
		// Half a pass less: a tick counts from the one before, this from a write.
		r.wait.again(now.Add(-pass/2), pace{patience: 1, first: pass, longest: 5 * time.Minute})
	}
	return news
}

// held reports whether the kernel has refused the value a short time ago.
func (a *Agent) held(at reconcile.Key, want knobs.Value) bool {
	r := a.refused[at]
	return r != nil && r.want == want && r.wait.waits(a.now())
}

// heldOf lists the changes of a container that a pass is not to try yet; none where
// the container is on another's own CPUs.
func (a *Agent) heldOf(c *container, changes []knobs.Change) map[knobs.Knob]bool {
	var held map[knobs.Knob]bool
	for i := range changes {
		if a.held(reconcile.KeyOf(&changes[i]), changes[i].To) {
			if held == nil {
				held = map[knobs.Knob]bool{}
			}
			held[changes[i].Knob] = true
		}
	}
	if held != nil && a.onPinned(c) {
		return nil
	}
	return held
}
