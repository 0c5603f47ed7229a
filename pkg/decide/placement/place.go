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

// RefusalError is a request that can't be granted as it stands.
type RefusalError struct {
	Why string
	// Shortage is true where CPUs that others hold are what is missing, so that
	// the request may succeed once they are given back.
	Shortage bool
}

func (e *RefusalError) Error() string { return e.Why }

// IsShortage reports whether err is a refusal for lack of CPUs.
func IsShortage(err error) bool {
	var refusal *RefusalError
	return errors.As(err, &refusal) && refusal.Shortage
}

// Place enters a container and decides what it gets. Pins avoid the CPUs in
// avoid where others serve as well (a runtime update that is still on its way
// names them). A pin that can't be placed is refused and leaves no trace.
func (l *Ledger) Place(who Identity, r workload.Request, avoid cpuset.Set, now time.Time) (Assignment, error) {
	h := newHolder(who, r, now)
	if err := l.grant(h, avoid); err != nil {
		return Assignment{}, err
	}
	l.enter(h)
	return l.assignment(h), nil
}

// PlaceShared enters a pin that has no CPUs of its own for the reason given: it
// runs with the online pools until it can be placed.
func (l *Ledger) PlaceShared(who Identity, r workload.Request, why string, now time.Time) Assignment {
	h := newHolder(who, r, now)
	h.Short = why
	l.enter(h)
	return l.assignment(h)
}

func newHolder(who Identity, r workload.Request, now time.Time) *Holder {
	return &Holder{ID: who.ID, Pod: who.Pod, Container: who.Container, Ref: who.Ref, Request: withDefaults(r), Since: now}
}

// withDefaults gives LSE its whole cores.
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
	l.last = entry{id: h.ID, old: old, pools: l.pools}
	l.holders[h.ID] = h
	if !h.CPUs.IsEmpty() || old != nil && !old.CPUs.IsEmpty() {
		l.layout()
	}
}

// entry is the last container entered, with what was there before.
type entry struct {
	id    string
	old   *Holder // nil: the container was not known
	pools []cpuset.Set
	whole *Ledger // all that was there before, where Without gave other grants back; else nil
}

// Without tries decide, which calls Place or Resize, after it has given back the grants
// of the containers in ids. They are gone only if decide succeeds, and Undo restores
// them together with what decide has changed.
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

// Undo takes back the last Place, Resize or Mend, which could not be carried out.
// The pools have the CPUs again that they had: dividing anew could leave them
// with others.
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
		l.holders[last.id] = last.old
	} else {
		delete(l.holders, last.id)
	}
	l.shared, l.pools = cpuset.Difference(l.allocatable(), l.Pinned()), last.pools
	l.followPools()
	l.version++
}

// grant fills in the holder's CPUs and memory nodes, or says why it can't.
func (l *Ledger) grant(h *Holder, avoid cpuset.Set) error {
	if h.Request.Class.Pinned() {
		if err := l.pin(h, l.freeFor(h), cpuset.Set{}, avoid); err != nil {
			return err
		}
	}
	var err error
	h.Mems, err = l.memoryNodes(h)
	return err
}

// pin chooses CPUs for the holder out of free, with all of keep.
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
	h.CPUs, h.Blocked, h.Short = cpus, cpuset.Set{}, ""
	if h.Request.SMT == workload.SMTOnePerCore {
		h.Blocked = cpuset.Difference(l.machine.Siblings(cpus), cpus)
	}
	return nil
}

// freeFor is what the holder may choose from: allocatable CPUs that no other pin
// has, blocks, or keeps it off by an exclusive group.
func (l *Ledger) freeFor(h *Holder) cpuset.Set {
	free := l.allocatable()
	for _, other := range l.holders {
		if other.ID == h.ID || other.CPUs.IsEmpty() {
			continue
		}
		free = cpuset.Difference(free, other.CPUs)
		free = cpuset.Difference(free, cpuset.Union(other.Blocked, other.Leaving))
		free = cpuset.Difference(free, l.keptOff(h, other))
	}
	return free
}

// keptOff is the domain of other that an exclusive group bars h from; either of
// the two may have asked for the distance.
func (l *Ledger) keptOff(h, other *Holder) cpuset.Set {
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

// choose lets the allocator decide. CPUs that an update on its way still names,
// and CPUs of sized pools, are taken only where the rest is worse.
func (l *Ledger) choose(h *Holder, free, keep, avoid cpuset.Set) (cpuset.Set, error) {
	p := l.preference(h.Request)
	p.Keep = keep
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

// preference is how a request's CPUs should lie. Those whose memory is bound to
// nodes lie there, unless a device says otherwise.
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

// shortage says how many CPUs were asked for, how many are free, and who holds
// the rest.
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
	return cpus, nil
}

func (l *Ledger) whoHas(cpus cpuset.Set, h *Holder) string {
	var who []string
	for _, other := range l.Holders() {
		if other.ID != h.ID && cpuset.Union(other.CPUs, other.Blocked).Overlaps(cpus) {
			who = append(who, other.Ref+" holds "+cpuset.Intersect(cpuset.Union(other.CPUs, other.Blocked), cpus).String())
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

// leavesDue refuses a pin that would leave the shared pools less than one core,
// or less than the LS containers there have requested.
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

// due is what the shared pools have without the holder's pin, how many CPUs of it they
// need, and what LS containers there requested.
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

// Pinnable appends, for each NUMA node, the most CPUs that Place would give to one new LSR
// container on that node alone, which names no exclusive group and takes the hyperthreads
// as they come. What goes to one node is missing on the others, where the shared pools
// need the rest.
func (l *Ledger) Pinnable(into []int) []int {
	h := Holder{Request: workload.Request{Class: workload.LSR}}
	free := l.freeFor(&h)
	left, due, _ := l.due(&h)
	spare := max(0, left.Size()-due)
	for i := range l.machine.Nodes {
		into = append(into, min(spare, cpuset.IntersectSize(free, l.machine.Nodes[i].CPUs)))
	}
	return into
}

// knownDevice refuses a PCI address that this machine does not have.
func (l *Ledger) knownDevice(address string) error {
	if address == "" || slices.ContainsFunc(l.machine.Devices, func(d topology.Device) bool { return d.Address == address }) {
		return nil
	}
	return &RefusalError{Why: "near " + address + ": this machine has no such PCI device (lspci -D lists them)"}
}

// localCPUs is the CPUs local to the devices that a request wants to be near.
func (l *Ledger) localCPUs(near workload.Near) cpuset.Set {
	for i := range l.machine.Devices {
		if d := &l.machine.Devices[i]; d.Address == near.PCI {
			return cpuset.Union(near.CPUs, d.CPUs)
		}
	}
	return near.CPUs
}

// sizedPools is the CPUs of pools that the config gives a size and that share
// with no other pool: not those of a batch pool that overlaps, nor of one that
// gives way since the loop sets the sizes.
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
