package control

import (
	"fmt"
	"slices"
	"time"
)

// budgetWindow is the time over which evictions are bounded.
const budgetWindow = time.Hour

// evictionBudget holds the evictions of the last hour that count towards the configured bounds.
type evictionBudget struct{ evictions []pastEviction }

type pastEviction struct {
	at    time.Time
	owner string
}

func (b *evictionBudget) add(now time.Time, owner string) {
	b.evictions = append(b.evictions, pastEviction{now, owner})
}

// prune drops evictions older than an hour. Evictions that a clock which went back places in the
// future count as of now, so that they neither vanish nor count for longer.
func (b *evictionBudget) prune(now time.Time) {
	b.evictions = slices.DeleteFunc(b.evictions, func(p pastEviction) bool { return now.Sub(p.at) >= budgetWindow })
	for i := range b.evictions {
		if p := &b.evictions[i]; p.at.After(now) {
			p.at = now
		}
	}
}

// isUnbound reports whether the bounds per hour leave the request out: where the kernel is about
// to kill, and where the operator wants all batch work to end.
func (r *EvictRequest) isUnbound() bool { return r.Urgent || r.All }

// spent returns how many evictions count towards the bounds: those of the last hour, and those
// under way. It counts those of one owner's pods, or of all pods if the owner is "".
func (e *Eviction) spent(owner string) int {
	n := 0
	for i := range e.budget.evictions {
		if p := &e.budget.evictions[i]; owner == "" || p.owner == owner {
			n++
		}
	}
	for i := range e.leaving {
		if l := &e.leaving[i]; !l.unbound && !l.done && !l.failed && (owner == "" || l.owner == owner) {
			n++
		}
	}
	return n
}

// overBudget returns why the node's bound forbids an eviction for the request; "" if it doesn't.
func (e *Eviction) overBudget(r *EvictRequest) string {
	if most := e.cfg.MaxPerHour; most > 0 && !r.isUnbound() && e.spent("") >= most {
		return fmt.Sprintf("%d pods were evicted within the last hour or are being evicted, the most that control.eviction.maxPerHour allows", e.spent(""))
	}
	return ""
}

// ownerOverBudget returns why the bound of the pod's owner forbids the pod's eviction for the
// request; "" if it doesn't.
func (e *Eviction) ownerOverBudget(owner string, r *EvictRequest) string {
	if most := e.cfg.MaxPerOwnerPerHour; most > 0 && owner != "" && !r.isUnbound() && e.spent(owner) >= most {
		return fmt.Sprintf("control.eviction.maxPerOwnerPerHour is %d, and as many pods of %s were evicted within the last hour or are being evicted", most, owner)
	}
	return ""
}
