package placement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Claim is what a resource claim of Kubernetes reserves in one domain: CPUs on whole cores. It
// keeps them from Reserve to Unreserve, whether or not a container uses them. A sibling of them that was
// offline at first is its own as well, beyond the number.
type Claim struct {
	ID    string // unique among the claims and the containers of this node
	Ref   string // "claim namespace/name", for messages
	Class workload.Class
	// Domain is where the CPUs are.
	Domain claim.Domain
	CPUs   int // number of CPUs; of a core it does not count
}

// Reserve reserves CPUs for a claim. No pin and no pool uses them from then on, and the containers
// that name the claim in their request run on them. A claim that is known keeps its CPUs, and is
// refused if it asks for something else.
func (l *Ledger) Reserve(c Claim, now time.Time) (cpuset.Set, error) {
	if known, ok := l.Claim(c.ID); ok {
		return known.Request.CPUSet, known.unchanged(c)
	}
	h := newHolder(Identity{ID: c.ID, Ref: c.Ref}, workload.Request{Class: c.Class, CPUs: c.CPUs, SMT: workload.SMTFullCore}, now)
	h.State, h.Domain = Held, c.Domain
	cpus := l.domain(c.Domain)
	free := cpuset.Intersect(l.freeFor(h), cpus)
	if free.IsEmpty() || c.Domain.Kind == claim.Core && free != cpus {
		return cpuset.Set{}, &RefusalError{Why: fmt.Sprintf("%s asks for CPUs of %s, which has none that are free", c.Ref, c.Domain.Place()), Shortage: true}
	}
	if c.Domain.Kind == claim.Core {
		h.Request.CPUs = cpus.Size()
	}
	if err := l.pin(h, free, cpuset.Set{}, cpuset.Set{}); err != nil {
		return cpuset.Set{}, err
	}
	h.Request.CPUSet, h.claim = h.CPUs, true
	l.put(h)
	l.followClaims()
	l.last = entry{}
	l.layout()
	return h.CPUs, nil
}

// unchanged returns an error if a claim asks for something else than what it has reserved.
func (h *Holder) unchanged(c Claim) error {
	if h.Domain == c.Domain && h.Request.Class == c.Class && (h.Request.CPUs == c.CPUs || c.Domain.Kind == claim.Core) {
		return nil
	}
	asks := c.Domain.Place()
	if c.Domain.Kind != claim.Core {
		asks = fmt.Sprintf("%s of %s", humanize.Count(c.CPUs, "CPU"), asks)
	}
	return &RefusalError{Why: fmt.Sprintf("%s still has %s (%s) of %s with class %s from an earlier allocation, and now asks for %s with class %s: end the pods with this claim, so that the kubelet frees it",
		c.Ref, humanize.Count(h.Request.CPUs, "CPU"), h.Request.CPUSet, h.Domain.Place(), h.Request.Class, asks, c.Class)}
}

// Restore enters a claim that an earlier process reserved, with the CPUs that it had. It gets those of
// them that exist, are allocatable and that nobody else has.
func (l *Ledger) Restore(c Claim, cpus cpuset.Set, now time.Time) {
	h := newHolder(Identity{ID: c.ID, Ref: c.Ref}, workload.Request{Class: c.Class, CPUs: c.CPUs, CPUSet: cpus, SMT: workload.SMTFullCore}, now)
	h.State, h.claim, h.Domain = Held, true, c.Domain
	l.regain(h)
	l.enter(h)
}

// Unreserve frees a claim's CPUs. A container that still runs on them shares CPUs from then on.
func (l *Ledger) Unreserve(id string) {
	h, ok := l.holders[id]
	if !ok || !h.claim {
		return
	}
	l.drop(id)
	l.followClaims()
	l.last = entry{}
	l.layout()
}

// Claims lists the claims, the oldest first; they must not be changed.
func (l *Ledger) Claims() []*Holder {
	var claims []*Holder
	for _, h := range l.holders {
		if h.claim {
			claims = append(claims, h)
		}
	}
	return byAge(claims)
}

// Claim returns the claim with that ID; it must not be changed.
func (l *Ledger) Claim(id string) (h *Holder, ok bool) {
	h, ok = l.holders[id]
	return h, ok && h.claim
}

// Common returns the CPUs that two containers both have by a claim that both name.
func (l *Ledger) Common(x, y string) cpuset.Set {
	a, b := l.holders[x], l.holders[y]
	if a == nil || b == nil || !shareClaims(a, b) {
		return cpuset.Set{}
	}
	return cpuset.Intersect(a.CPUs, b.CPUs)
}

// claimed returns the CPUs of the claims of a request and which of them are missing, or why the
// request cannot have them.
func (l *Ledger) claimed(r *workload.Request) (cpus cpuset.Set, short string, err error) {
	var shorts []string
	for _, id := range r.Claims {
		h, ok := l.Claim(id)
		if !ok {
			return cpuset.Set{}, "", &RefusalError{Why: "the CPUs of its claim " + id + " are not reserved here: the kubelet has not prepared the claim, or has ended it"}
		}
		cpus = cpuset.Union(cpus, h.CPUs)
		if h.Short != "" {
			shorts = append(shorts, h.Ref+" "+h.Short)
		}
	}
	short = strings.Join(shorts, "; ")
	if cpus.IsEmpty() {
		return cpus, short, &RefusalError{Why: short}
	}
	return cpus, short, nil
}

// useClaims gives a container the CPUs of its claims.
func (l *Ledger) useClaims(h *Holder) error {
	cpus, short, err := l.claimed(&h.Request)
	if err != nil {
		return err
	}
	h.CPUs, h.Short = cpus, short
	return nil
}

// followClaims gives containers the CPUs that their claims have now.
func (l *Ledger) followClaims() {
	for _, h := range l.holders {
		if len(h.Request.Claims) == 0 {
			continue
		}
		if err := l.useClaims(h); err != nil {
			h.CPUs, h.Short = cpuset.Set{}, err.Error()
		}
	}
}

// regain gives a claim those of its CPUs that it can have now. A sibling of them is the claim's too, also
// one that was offline when the claim was reserved: the kernel tells the siblings of online CPUs alone.
func (l *Ledger) regain(h *Holder) {
	h.Request.CPUSet = cpuset.Union(h.Request.CPUSet, l.machine.Siblings(h.Request.CPUSet))
	h.CPUs, h.Short = cpuset.Intersect(h.Request.CPUSet, l.freeFor(h)), ""
	if h.CPUs.Size() < h.Request.CPUs {
		h.Short = fmt.Sprintf("has %d of %d CPUs, since the others are offline or not allocatable", h.CPUs.Size(), h.Request.CPUs)
	}
}

// shareClaims reports whether two holders may have the same CPUs: a claim and a container of it, or
// two containers of one claim.
func shareClaims(x, y *Holder) bool {
	return slices.Contains(x.Request.Claims, y.ID) || slices.Contains(y.Request.Claims, x.ID) ||
		slices.ContainsFunc(x.Request.Claims, func(id string) bool { return slices.Contains(y.Request.Claims, id) })
}
