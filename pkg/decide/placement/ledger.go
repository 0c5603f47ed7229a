// Package placement decides which container has which CPUs and memory nodes: LSE and LSR
// containers have CPUs of their own (pins), LS and BE containers share the CPUs of a pool. The
// ledger records every container's CPUs. It is a state machine without clock, I/O or logger:
// the caller reports what happened and carries out the assignments.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Ledger records which container has which CPUs. It must be used by one goroutine only. A call
// that returns an error has changed nothing.
type Ledger struct {
	config      Config
	machine     *topology.Machine
	alloc       *cpualloc.Allocator
	external    cpuset.Set // exclusive CPUs of the kubelet's static CPU manager
	barred      cpuset.Set // CPUs that no container can have, because the cgroup of all pods lacks them
	holders     map[string]*Holder
	shared      cpuset.Set   // allocatable CPUs without a pin
	lent        cpuset.Set   // CPUs of LSR pins, or of other pools, on which batch work may run too
	spareCounts []int        // exclusive mode: number of CPUs of each pool on which batch work may run too
	spares      []cpuset.Set // these CPUs, by pool; nil if the control loop's sizes do not partition the shared CPUs
	pools       []cpuset.Set // CPUs of config.Pools[i]
	sizes       []int        // sizes set by the control loop, by pool; 0 is the configured size, nil that no sizes are set
	separations []Separation // pods that are kept apart; the slice is replaced, never changed
	version     uint64       // number of layouts so far
	found       cpuset.Set   // exclusive mode: CPUs on which containers of other pools than the last were found
	foundBatch  cpuset.Set   // exclusive mode: CPUs on which containers of the last pool were found
	foundPools  []foundPool  // exclusive mode: where the containers of each pool but the last were found
	entering    bool         // layouts are postponed until the end of DivideOnce
	last        entry        // what Undo takes back

	promised []int64 // memory that holders are guaranteed on machine.Nodes[i], in bytes: put, drop and setMems count
}

// Holder is one container in the ledger.
type Holder struct {
	ID        string // container ID
	Pod       string // pod UID
	Container string // container name within the pod
	Ref       string // "namespace/pod/container", for messages
	Request   workload.Request
	State     State
	Since     time.Time // begin of the present State

	CPUs    cpuset.Set // pinned CPUs; empty for LS, BE, SYSTEM and a pin that could not be placed
	Leaving cpuset.Set // CPUs from which a pin moves away; nobody else gets them before EndMove is called
	Mems    cpuset.Set // memory nodes; empty for all
	Home    cpuset.Set // the NUMA node on whose CPUs of its pool a container without CPUs of its own runs; empty for all nodes
	Short   string     // why a pin has fewer CPUs than it asked for; "" if it has all

	Domain   claim.Domain // of a claim: where its CPUs are
	claim    bool         // it is a claim, whose CPUs its containers use, and no container
	homeless bool         // Short says why it has no home
}

// State is the stage of a grant.
type State uint8

// A grant is reserved when the container is created, and held once it has started.
const (
	Reserved State = iota
	Held
)

var stateNames = [...]string{"reserved", "held"}

func (s State) String() string { return stateNames[s] }

// MarshalText returns the name of the stage.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name of a stage.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("state %.40q: it is reserved or held", text)
}

// Identity identifies a container to the ledger.
type Identity struct {
	ID, Pod, Container, Ref string
}

// Assignment is what a container should have, or has.
type Assignment struct {
	CPUs      cpuset.Set // empty for all that the parent has
	None      bool       // of what it has: no CPU at all, which cgroup v1 leaves when all of its CPUs go offline
	Mems      cpuset.Set // empty for all that the parent has
	Unlimited bool       // no CFS quota, because nobody else may use the CPUs
	Why       string
}

// New returns an empty ledger.
func New(config Config, machine *topology.Machine) *Ledger {
	l := &Ledger{config: config, holders: map[string]*Holder{}}
	l.use(machine)
	l.layout()
	return l
}

// WithoutContainers returns a ledger with the claims and without containers. Its pools keep their
// present CPUs.
func (l *Ledger) WithoutContainers() *Ledger {
	n := New(l.config, l.machine)
	for _, h := range l.Claims() {
		copied := *h
		n.put(&copied)
	}
	n.pools, n.sizes = slices.Clone(l.pools), l.sizes
	n.spareCounts, n.spares, n.lent, n.separations = l.spareCounts, l.spares, l.lent, l.separations
	n.shared = cpuset.Difference(n.allocatable(), n.Pinned())
	return n
}

// DivideOnce calls enter and divides the pools once afterwards. If they were divided after each
// pin, they would grow into CPUs that the next pin has, and lose their place.
func (l *Ledger) DivideOnce(enter func()) {
	l.entering, l.found, l.foundBatch, l.foundPools = true, cpuset.Set{}, cpuset.Set{}, make([]foundPool, len(l.config.Pools))
	defer func() {
		l.entering = false
		l.layout()
		l.keepSpare()
	}()
	enter()
}

func (l *Ledger) use(machine *topology.Machine) {
	l.machine, l.alloc = machine, cpualloc.New(machine)
	l.promised = make([]int64, len(machine.Nodes))
}

// Clone returns an independent copy of the ledger, for trying out changes.
func (l *Ledger) Clone() *Ledger {
	twin := *l
	twin.holders = make(map[string]*Holder, len(l.holders))
	for id, h := range l.holders {
		copied := *h
		twin.holders[id] = &copied
	}
	twin.pools, twin.promised = slices.Clone(l.pools), slices.Clone(l.promised)
	twin.spareCounts, twin.spares = slices.Clone(l.spareCounts), slices.Clone(l.spares)
	return &twin
}

// Machine returns the machine that the ledger divides.
func (l *Ledger) Machine() *topology.Machine { return l.machine }

// Holder returns the container with that ID; it must not be changed.
func (l *Ledger) Holder(id string) (*Holder, bool) {
	h, ok := l.holders[id]
	return h, ok
}

// Holders lists all containers, the oldest first; they must not be changed.
func (l *Ledger) Holders() []*Holder {
	all := make([]*Holder, 0, len(l.holders))
	for _, h := range l.holders {
		all = append(all, h)
	}
	return byAge(all)
}

func byAge(holders []*Holder) []*Holder {
	slices.SortFunc(holders, func(a, b *Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return holders
}

func ids(holders []*Holder) []string {
	var all []string
	for _, h := range holders {
		all = append(all, h.ID)
	}
	return all
}

// Pools returns each pool's name with its CPUs, in order of priority.
func (l *Ledger) Pools() []PoolCPUs {
	pools := make([]PoolCPUs, len(l.pools))
	for i, set := range l.pools {
		pools[i] = PoolCPUs{Name: l.config.Pools[i].Name, CPUs: set, Spare: l.spareOf(i)}
	}
	return pools
}

// PoolCPUs is a pool with its CPUs.
type PoolCPUs struct {
	Name  string
	CPUs  cpuset.Set
	Spare cpuset.Set // those of CPUs on which batch work may run too
}

// Pinned returns the CPUs of all pins, including those of the kubelet's static CPU manager.
func (l *Ledger) Pinned() cpuset.Set {
	pinned := l.external
	for _, h := range l.holders {
		if !h.CPUs.IsEmpty() || !h.Leaving.IsEmpty() { // most containers share CPUs
			pinned = cpuset.Union(pinned, cpuset.Union(h.CPUs, h.Leaving))
		}
	}
	return pinned
}

// Shared returns the CPUs that the pools divide: the allocatable CPUs without a pin.
func (l *Ledger) Shared() cpuset.Set { return l.shared }

// Divided reports whether any container may have less than all CPUs.
func (l *Ledger) Divided() bool {
	return slices.ContainsFunc(l.pools, func(pool cpuset.Set) bool { return !l.unrestricted(pool) }) ||
		slices.ContainsFunc(l.separations, func(s Separation) bool { return !s.CPUs.IsEmpty() })
}

// Version returns a number that changes whenever a call may have changed the assignment of a
// container other than the one that it was about.
func (l *Ledger) Version() uint64 { return l.version }

// allocatable returns the CPUs that pools and pins may use together. It is never empty.
func (l *Ledger) allocatable() cpuset.Set {
	outside := cpuset.Union(l.config.Reserved, l.config.System)
	left := cpuset.Difference(l.machine.Online, cpuset.Union(outside, cpuset.Union(l.external, l.barred)))
	if left.IsEmpty() { // all others are offline, but containers must run somewhere
		return l.machine.Online
	}
	return left
}

// SetExternal sets the exclusive CPUs of another manager, the kubelet's static policy. No pool
// and no pin uses them.
func (l *Ledger) SetExternal(cpus cpuset.Set) {
	if cpus == l.external {
		return
	}
	l.external, l.last = cpus, entry{}
	l.layout()
}

// Bar sets the CPUs that no container can have because the cgroup of all pods lacks them. No
// pool and no pin uses them, and a container with all other CPUs needs no cpuset of its own.
func (l *Ledger) Bar(cpus cpuset.Set) {
	if cpus == l.barred {
		return
	}
	l.barred, l.last = cpus, entry{}
	l.layout()
}

// Hold marks the container as started.
func (l *Ledger) Hold(id string, now time.Time) {
	if h, ok := l.holders[id]; ok && h.State != Held {
		h.State, h.Since = Held, now
	}
}

// Release removes the container, which is identified by its ID alone, and frees its CPUs.
func (l *Ledger) Release(id string) bool {
	h, ok := l.holders[id]
	if !ok {
		return false
	}
	l.drop(id)
	l.last = entry{}
	if h.owns() {
		l.layout()
	} else if l.separate() {
		l.followSeparations()
	}
	return true
}

// TakesRoom reports whether the holder can be a reason to refuse others: it has CPUs of its own, or a home.
func (h *Holder) TakesRoom() bool { return !h.CPUs.IsEmpty() || !h.Home.IsEmpty() }

// Stale lists reserved pins, and reserved containers at home on a NUMA node, whose container never started,
// because its runtime failed after the grant without an event. Such a grant is older than timeout, or a younger container of the same
// name in the same pod replaces it: next, which is about to be placed, or one in the ledger.
func (l *Ledger) Stale(next Identity, now time.Time, timeout time.Duration) []string {
	var stale []*Holder
	for _, h := range l.holders {
		if h.State != Reserved || !h.Request.Class.Pinned() && h.Home.IsEmpty() || h.ID == next.ID {
			continue
		}
		if now.Sub(h.Since) > timeout || h.Pod == next.Pod && h.Container == next.Container || l.replaced(h) {
			stale = append(stale, h)
		}
	}
	return ids(byAge(stale))
}

func (l *Ledger) replaced(old *Holder) bool {
	for _, h := range l.holders {
		if h.Pod == old.Pod && h.Container == old.Container && h.ID != old.ID && h.Since.After(old.Since) {
			return true
		}
	}
	return false
}

// Assignment returns what the container with that ID should have now.
func (l *Ledger) Assignment(id string) (Assignment, bool) {
	h, ok := l.holders[id]
	if !ok {
		return Assignment{}, false
	}
	return l.assignment(h), true
}

func (l *Ledger) assignment(h *Holder) Assignment {
	a := l.decided(h)
	if a.Mems == l.machine.MemoryNodes() {
		a.Mems = cpuset.Set{}
	}
	return a
}

func (l *Ledger) decided(h *Holder) Assignment {
	if h.Request.Class.Pinned() && !h.CPUs.IsEmpty() {
		why := h.Request.Class.String() + " with CPUs of its own"
		if h.Short != "" {
			why += "; " + h.Short
		}
		return Assignment{CPUs: h.CPUs, Mems: h.Mems, Unlimited: true, Why: why}
	}
	cpus, why := l.sharedCPUs(h)
	if h.Short != "" {
		why += "; " + h.Short
	}
	if h.Request.Class == workload.BE && !l.lent.IsEmpty() {
		if lent := l.lentTo(h); !lent.IsEmpty() {
			cpus, why = cpuset.Union(cpus, lent), why+" and on "+l.lenders()
		}
	}
	a := Assignment{CPUs: cpus, Mems: h.Mems, Why: why}
	if l.unrestricted(cpus) {
		a.CPUs = cpuset.Set{}
	}
	return a
}

// sharedCPUs returns the CPUs of a container without CPUs of its own.
func (l *Ledger) sharedCPUs(h *Holder) (cpuset.Set, string) {
	if h.Request.Class == workload.System {
		if system := cpuset.Intersect(l.config.System, l.machine.Online); !system.IsEmpty() {
			return system, "SYSTEM in the system set"
		}
		return l.shared, "SYSTEM on all shared CPUs"
	}
	i := l.pool(&h.Request)
	cpus, besides := l.besides(h, i)
	cpus, where := l.atHome(h, cpus)
	return cpus, h.Request.Class.String() + " in pool " + l.config.Pools[i].Name + besides + where
}

// PoolOf returns the name of the pool in which a holder without CPUs of its own runs. It is
// empty for a pin and for the system set.
func (l *Ledger) PoolOf(h *Holder) string {
	if !h.CPUs.IsEmpty() || h.Request.Class == workload.System {
		return ""
	}
	return l.config.Pools[l.pool(&h.Request)].Name
}

// pool returns the index of the pool of the request.
func (l *Ledger) pool(r *workload.Request) int {
	name := r.Pool
	if name == "" {
		name = l.config.DefaultPool()
		if r.Class == workload.BE {
			name = l.config.BatchPool()
		}
	}
	for i, p := range l.config.Pools {
		if p.Name == name {
			return i
		}
	}
	return len(l.pools) - 1
}

// unrestricted reports whether cpus contains every CPU, so that the container needs no cpuset
// of its own and follows its parent's through hotplug.
func (l *Ledger) unrestricted(cpus cpuset.Set) bool {
	return cpus == l.machine.Online || cpus == cpuset.Difference(l.machine.Online, l.barred)
}

func (l *Ledger) orOnline(cpus cpuset.Set) cpuset.Set {
	if cpus.IsEmpty() {
		return l.machine.Online
	}
	return cpus
}
