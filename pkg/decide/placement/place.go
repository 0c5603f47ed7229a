package placement

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// RefusalError is the refusal of a request that can't be granted now.
type RefusalError struct {
	Why string
	// Shortage is set if the missing CPUs are in use by others, so that the request may succeed
	// once they are free.
	Shortage bool
}

func (e *RefusalError) Error() string { return e.Why }

// IsShortage reports whether err is a refusal for lack of CPUs.
func IsShortage(err error) bool {
	var refusal *RefusalError
	return errors.As(err, &refusal) && refusal.Shortage
}

// Place enters a container and decides what it gets. Pins avoid the CPUs in avoid, which a
// runtime update on its way still names, if other CPUs are as good. A pin that can't be placed
// is refused and not entered.
func (l *Ledger) Place(who Identity, r workload.Request, avoid cpuset.Set, now time.Time) (Assignment, error) {
	h := newHolder(who, r, now)
	if err := l.grant(h, avoid); err != nil {
		return Assignment{}, err
	}
	l.enter(h)
	return l.assignment(h), nil
}

// PlaceShared enters a pin that has no CPUs of its own, for the reason why. It runs with the
// online pools until it can be placed.
func (l *Ledger) PlaceShared(who Identity, r workload.Request, why string, now time.Time) Assignment {
	h := newHolder(who, r, now)
	h.Short = why
	l.enter(h)
	return l.assignment(h)
}

func newHolder(who Identity, r workload.Request, now time.Time) *Holder {
	return &Holder{ID: who.ID, Pod: who.Pod, Container: who.Container, Ref: who.Ref, Request: withDefaults(r), Since: now}
}

// withDefaults returns the request, with whole cores for LSE.
func withDefaults(r workload.Request) workload.Request {
	if r.SMT == workload.SMTDefault {
		r.SMT = workload.SMTAny
		if r.Class == workload.LSE {
			r.SMT = workload.SMTFullCore
		}
	}
	return r
}

func (l *Ledger) enter(h *Holder) {
	old := l.holders[h.ID]
	l.last = entry{id: h.ID, old: old, pools: l.pools, spares: l.spares, separations: l.separations}
	l.put(h)
	if h.owns() || old != nil && old.owns() {
		l.layout()
	} else if l.separate() {
		l.followSeparations()
	}
}

// owns reports whether the holder's CPUs are its own. A container with claims uses those of its claims,
// which are not the pools' before its begin nor after its end.
func (h *Holder) owns() bool { return !h.CPUs.IsEmpty() && len(h.Request.Claims) == 0 }

// entry is the last container that was entered, with the state before.
type entry struct {
	id          string
	old         *Holder // nil if the container was not known
	pools       []cpuset.Set
	spares      []cpuset.Set // CPUs of these pools that were spare
	separations []Separation
	rehomed     []Holder // other containers that got another home, as they were
	whole       *Ledger  // the state before Without freed other grants; nil otherwise
}

// Without frees the grants of the containers in ids and then calls decide, which calls Place or
// Resize. The grants are lost only if decide succeeds. Undo restores them together with what
// decide has changed.
func (l *Ledger) Without(ids []string, decide func() (Assignment, error)) (Assignment, error) {
	before := l.Clone()
	before.last = entry{}
	for _, id := range ids {
		l.Release(id)
	}
	as, err := decide()
	if err != nil {
		*l = *before
		return Assignment{}, err
	}
	l.last.whole = before
	return as, nil
}

// Undo takes back the last Place, Resize or Mend, which could not be carried out. The pools get
// back the CPUs that they had; another division could give them others.
func (l *Ledger) Undo() {
	last := l.last
	if last.id == "" {
		return
	}
	if last.whole != nil {
		version := l.version
		*l = *last.whole
		l.version = version + 1
		return
	}
	if l.last = (entry{}); last.old != nil {
		l.put(last.old)
	} else {
		l.drop(last.id)
	}
	l.shared, l.pools, l.separations = cpuset.Difference(l.allocatable(), l.Pinned()), last.pools, last.separations
	if l.spares = last.spares; l.spares != nil {
		l.lendSpare()
	} else {
		l.lent = l.lendable(l.lent)
	}
	l.moveBack(last.rehomed)
	l.followPools()
	l.version++
}

// grant sets the holder's CPUs and memory nodes, or returns why it can't.
func (l *Ledger) grant(h *Holder, avoid cpuset.Set) error {
	var err error
	switch {
	case len(h.Request.Claims) > 0:
		err = l.useClaims(h)
	case h.Request.Class.Pinned():
		err = l.pin(h, l.freeFor(h), cpuset.Set{}, avoid)
	}
	if err == nil {
		err = l.settle(h, cpuset.Set{})
	}
	if err != nil {
		return err
	}
	h.Mems, err = l.memoryNodes(h)
	return err
}

// pin chooses CPUs for the holder out of free, and includes all of keep.
func (l *Ledger) pin(h *Holder, free, keep, avoid cpuset.Set) error {
	free = cpuset.Union(free, keep)
	if err := l.knownDevice(h.Request.Near.PCI); err != nil {
		return err
	}
	var cpus cpuset.Set
	var err error
	if explicit := h.Request.CPUSet; !explicit.IsEmpty() && keep.IsEmpty() {
		cpus, err = l.explicit(h, free)
	} else {
		cpus, err = l.choose(h, free, keep, avoid)
	}
	if err != nil {
		return err
	}
	if err := l.leavesDue(h, cpus); err != nil {
		return err
	}
	h.CPUs, h.Short = cpus, ""
	return nil
}

// blocked returns the siblings of a one-per-core pin, which no other pin may take.
func (l *Ledger) blocked(h *Holder) cpuset.Set {
	if h.Request.SMT != workload.SMTOnePerCore || len(h.Request.Claims) > 0 {
		return cpuset.Set{}
	}
	return cpuset.Difference(l.machine.Siblings(h.CPUs), h.CPUs)
}

// freeFor returns the CPUs from which the holder may choose: allocatable CPUs that no other pin
// has or blocks, and that no exclusive group forbids.
func (l *Ledger) freeFor(h *Holder) cpuset.Set {
	free := l.allocatable()
	for _, other := range l.holders {
		if other.ID == h.ID || other.CPUs.IsEmpty() || shareClaims(h, other) {
			continue
		}
		free = cpuset.Difference(free, other.CPUs)
		free = cpuset.Difference(free, cpuset.Union(l.blocked(other), other.Leaving))
		free = cpuset.Difference(free, l.forbiddenFor(h, other))
	}
	return free
}

// forbiddenFor returns the domain around other that an exclusive group forbids to h. Either of the
// two may have asked for the distance.
func (l *Ledger) forbiddenFor(h, other *Holder) cpuset.Set {
	if h.Request.ExclusiveGroup != other.Request.ExclusiveGroup {
		return cpuset.Set{}
	}
	switch max(h.Request.Exclusive, other.Request.Exclusive) {
	case workload.ExclusiveCore:
		return l.machine.Siblings(other.CPUs)
	case workload.ExclusiveNode:
		var barred cpuset.Set
		for i := range l.machine.Nodes {
			if node := &l.machine.Nodes[i]; node.CPUs.Overlaps(other.CPUs) {
				barred = cpuset.Union(barred, node.CPUs)
			}
		}
		return barred
	default:
		return cpuset.Set{}
	}
}

// choose lets the allocator decide. It avoids CPUs that a runtime update on its way still
// names, and CPUs of sized pools, unless the result would be worse without them.
func (l *Ledger) choose(h *Holder, free, keep, avoid cpuset.Set) (cpuset.Set, error) {
	p := l.preference(h.Request)
	p.Held = keep
	best, err := l.alloc.Take(free, h.Request.CPUs, p)
	if err != nil {
		return best, l.shortage(h, free, err)
	}
	if best.Overlaps(avoid) {
		elsewhere, err := l.alloc.Take(cpuset.Difference(free, cpuset.Difference(avoid, keep)), h.Request.CPUs, p)
		if err == nil {
			best = elsewhere
		}
	}
	if sized := l.sizedPools(); best.Overlaps(sized) {
		elsewhere, err := l.alloc.Take(cpuset.Difference(free, cpuset.Difference(sized, keep)), h.Request.CPUs, p)
		if err == nil && !elsewhere.Overlaps(avoid) && l.asCompact(elsewhere, best) {
			best = elsewhere
		}
	}
	return best, nil
}

// preference returns how a request's CPUs should lie. If its memory is bound to nodes, its CPUs
// should be on these nodes, unless a device demands others.
func (l *Ledger) preference(r workload.Request) cpualloc.Preference {
	near := l.localCPUs(r.Near)
	if near.IsEmpty() {
		for i := range l.machine.Nodes {
			if node := &l.machine.Nodes[i]; r.MemoryNodes.Policy == workload.MemoryListed && r.MemoryNodes.Nodes.Contains(node.ID) {
				near = cpuset.Union(near, node.CPUs)
			}
		}
	}
	return cpualloc.Preference{NUMA: r.NUMA, SMT: r.SMT, L3: r.L3, Near: near}
}

// asCompact reports whether x touches no more nodes and no more L3 domains than y.
func (l *Ledger) asCompact(x, y cpuset.Set) bool {
	xNodes, yNodes := l.machine.NodesOf(x).Size(), l.machine.NodesOf(y).Size()
	xL3s, yL3s := 0, 0
	for i := range l.machine.L3s {
		if l.machine.L3s[i].CPUs.Overlaps(x) {
			xL3s++
		}
		if l.machine.L3s[i].CPUs.Overlaps(y) {
			yL3s++
		}
	}
	return xNodes <= yNodes && xL3s <= yL3s
}

// shortage returns an error that names the number of CPUs asked for, the free CPUs, and the
// holders of the others.
func (l *Ledger) shortage(h *Holder, free cpuset.Set, cause error) error {
	if _, ok := errors.AsType[*cpualloc.ShortageError](cause); !ok {
		return &RefusalError{Why: fmt.Sprintf("%s asks for CPUs of its own: %v", h.Request.Class, cause)}
	}
	var holders []string
	for _, other := range l.Holders() {
		if other.ID != h.ID && !other.CPUs.IsEmpty() {
			holders = append(holders, fmt.Sprintf("%s (%s)", other.Ref, other.CPUs))
		}
	}
	const shown = 8
	if n := len(holders); n > shown {
		holders = append(holders[:shown], fmt.Sprintf("and %d more", n-shown))
	}
	held := "no pin holds any"
	if len(holders) > 0 {
		held = "pinned by " + strings.Join(holders, ", ")
	}
	return &RefusalError{
		Why:      fmt.Sprintf("%s asks for CPUs of its own: %v (%s); %s", h.Request.Class, cause, orNone(free), held),
		Shortage: true,
	}
}

func orNone(cpus cpuset.Set) string {
	if cpus.IsEmpty() {
		return "none"
	}
	return cpus.String()
}

// explicit checks CPUs that a scheduler chose.
func (l *Ledger) explicit(h *Holder, free cpuset.Set) (cpuset.Set, error) {
	cpus := h.Request.CPUSet
	if missing := cpuset.Difference(cpus, l.machine.Online); !missing.IsEmpty() {
		return cpus, &RefusalError{Why: fmt.Sprintf("cpuset %s: CPUs %s are not online here (online: %s)", cpus, missing, l.machine.Online)}
	}
	if taken := cpuset.Difference(cpus, free); !taken.IsEmpty() {
		return cpus, &RefusalError{Why: fmt.Sprintf("cpuset %s: CPUs %s can't be pinned: %s", cpus, taken, l.whoHas(taken, h)), Shortage: true}
	}
	if split := cpuset.Difference(l.machine.Siblings(cpus), cpus); h.Request.SMT == workload.SMTFullCore && !split.IsEmpty() {
		return cpus, &RefusalError{Why: fmt.Sprintf("cpuset %s splits cores: add their siblings %s, or say smt any", cpus, split)}
	}
	if h.Request.SMT == workload.SMTOnePerCore {
		others := cpuset.Difference(l.Pinned(), cpuset.Union(h.CPUs, h.Leaving))
		if taken := cpuset.Intersect(cpuset.Difference(l.machine.Siblings(cpus), cpus), others); !taken.IsEmpty() {
			return cpus, &RefusalError{Why: fmt.Sprintf("cpuset %s with one-per-core needs the siblings %s without another pin: %s; name CPUs of other cores, or say smt any", cpus, taken, l.whoHas(taken, h)), Shortage: true}
		}
	}
	return cpus, nil
}

func (l *Ledger) whoHas(cpus cpuset.Set, h *Holder) string {
	var who []string
	for _, other := range l.Holders() {
		if has := cpuset.Intersect(cpuset.Union(other.CPUs, l.blocked(other)), cpus); other.ID != h.ID && !has.IsEmpty() {
			who = append(who, other.Ref+" holds "+has.String())
		}
	}
	if outside := cpuset.Difference(cpus, l.allocatable()); !outside.IsEmpty() {
		who = append(who, outside.String()+" are reserved, for the system, or the kubelet's own")
	}
	if len(who) == 0 {
		who = append(who, "an exclusive group keeps this container off them")
	}
	return strings.Join(who, ", ")
}

// leavesDue refuses a pin that would leave the shared pools less than one core, or less than
// their LS containers have requested.
func (l *Ledger) leavesDue(h *Holder, cpus cpuset.Set) error {
	left, due, requested := l.due(h)
	left = cpuset.Difference(left, cpus)
	if left.Size() < due {
		return &RefusalError{
			Why: fmt.Sprintf("%s of its own would leave %d to the shared pools, which need %d (at least one core, and the %s of CPU that LS containers here request)",
				humanize.Count(cpus.Size(), "CPU"), left.Size(), due, requested),
			Shortage: true,
		}
	}
	return nil
}

// due returns the CPUs that the shared pools have without the holder's pin, the number of them
// that the pools need, and the CPU that LS containers in them requested.
func (l *Ledger) due(h *Holder) (left cpuset.Set, due int, requested workload.MilliCPU) {
	left = l.allocatable()
	for _, other := range l.holders {
		switch {
		case other.ID == h.ID, other.Request.Class == workload.System && !l.config.System.IsEmpty():
		case !other.CPUs.IsEmpty():
			left = cpuset.Difference(left, other.CPUs)
		case other.Request.Class != workload.BE:
			requested += other.Request.Milli
		}
	}
	return left, max(l.machine.ThreadsPerCore(), int((requested+999)/1000)), requested
}

// knownDevice refuses a PCI address that this machine does not have.
func (l *Ledger) knownDevice(address string) error {
	if address == "" || slices.ContainsFunc(l.machine.Devices, func(d topology.Device) bool { return d.Address == address }) {
		return nil
	}
	return &RefusalError{Why: "near " + address + ": this machine has no such PCI device (lspci -D lists them)"}
}

// localCPUs returns the CPUs that are local to the devices that a request wants to be near.
func (l *Ledger) localCPUs(near workload.Near) cpuset.Set {
	for i := range l.machine.Devices {
		if d := &l.machine.Devices[i]; d.Address == near.PCI {
			return cpuset.Union(near.CPUs, d.CPUs)
		}
	}
	return near.CPUs
}

// sizedPools returns the CPUs of pools with a configured size that share with no other pool. It
// leaves out a batch pool that overlaps, and pools whose size the control loop sets.
func (l *Ledger) sizedPools() cpuset.Set {
	pools := l.config.Pools
	if l.config.Mode == Overlap || l.follows() {
		pools = pools[:len(pools)-1]
	}
	var sized cpuset.Set
	for i, p := range pools {
		if l.follows() || p.Size.Count != 0 || p.Size.Percent != 0 || !p.Size.Set.IsEmpty() {
			sized = cpuset.Union(sized, l.pools[i])
		}
	}
	return sized
}
