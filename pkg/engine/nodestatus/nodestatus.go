// Package nodestatus makes the node's status from the state of the parts of the engine. A
// status is a copy that readers share. Parts that have not changed are reused in the next
// status, and large parts are copied outside of the event loop, so that events needn't wait for
// it.
package nodestatus

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Reporter makes statuses. The goroutine of the agent's event loop owns it.
type Reporter struct {
	*node.Node
	from     Sources
	statuses map[*node.Container]*containerStatus
	kernels  []status.Setting // a buffer that is reused for each container
}

// Sources are the parts of the status that the node's state does not contain.
type Sources struct {
	Build    status.Build
	Started  time.Time
	Features []status.Feature
	Config   *status.Config // the agent keeps it up to date
	Handlers func() []status.Handler
	Steering func() status.Steering
	Loop     Loop
	// ClaimDevices says what the devices are in which the plugin reserves CPUs for resource claims; 0 if
	// it reserves none.
	ClaimDevices claim.DomainKind
}

// Loop is the control loop's part of the status.
type Loop interface {
	// Status is nil if there is no loop.
	Status() *status.Loop
	// Room is how much CPU new containers can request; nil, with the reason, if it is not known.
	Room() (room *workload.MilliCPU, why string)
	// PoolLoad is the load of the pool with that index; nil until it is measured.
	PoolLoad(at int) *status.PoolLoad
	// Usage is a container's resource usage, with its part of the caches; known is false until
	// it is measured.
	Usage(id string) (u status.Usage, cache observe.Cache, known bool)
	// Tier is the tier of a BE container's pod, which may depend on its priority in Kubernetes; nil
	// until the loop knows the container.
	Tier(id string) *workload.Tier
}

// New makes a reporter.
func New(n *node.Node, from Sources) *Reporter {
	return &Reporter{Node: n, from: from, statuses: map[*node.Container]*containerStatus{}}
}

// SetFeatures replaces what the node was found to have.
func (r *Reporter) SetFeatures(all []status.Feature) { r.from.Features = all }

// Draft is a status whose containers have yet to be copied; see Status.
type Draft struct {
	made  *status.Status
	seen  []containerUsage
	whole sync.Once
}

// containerUsage is a container's cached status with its resource usage.
type containerUsage struct {
	*status.Container
	usage status.Usage
	used  bool // usage has been measured
	cache observe.Cache
	tier  *workload.Tier
}

// Draft makes a status of the present state.
func (r *Reporter) Draft() *Draft {
	mode, reason := r.Authority().Mode, r.WhyLess()
	contested := r.contested()
	writeErrors, refused := r.Reconciler.WriteErrors()
	counters := r.Counters
	counters.Drift += r.Reconciler.Drift()
	counters.WriteErrors += refused
	s := &status.Status{
		Schema:     status.Schema,
		Version:    r.from.Build.Version,
		Build:      r.from.Build,
		StartedAt:  r.from.Started,
		Config:     *r.from.Config,
		Time:       r.Now(),
		Mode:       status.Mode(mode),
		Why:        reason,
		Runtime:    r.Runtime,
		Machine:    r.machine(),
		Neighbours: slices.Clone(r.Neighbours),
		Contested:  contested,
		SlowWrites: r.Reconciler.SlowWrites(),
		Grants:     r.Grants.Status(),
		Claims:     r.claims(),
		Counters:   counters,
		Features:   r.from.Features,
		Handlers:   r.from.Handlers(),
		Errors:     writeErrors,
		Loop:       r.from.Loop.Status(),
	}
	s.Config.KeepWeights = r.Config.KeepWeights
	s.Scheduling.Allocatable = node.Milli(r.Allocatable())
	s.Scheduling.Room, s.Scheduling.RoomWhy = r.from.Loop.Room()
	for i, p := range r.Ledger.Pools() {
		s.Pools = append(s.Pools, status.Pool{Name: p.Name, CPUs: p.CPUs, Spare: p.Spare, Load: r.from.Loop.PoolLoad(i)})
	}
	if len(r.statuses) > len(r.Order) {
		maps.DeleteFunc(r.statuses, func(c *node.Container, _ *containerStatus) bool { return r.Containers[c.ID] != c })
	}
	seen := make([]containerUsage, 0, len(r.Order))
	knobs := r.Reconciler.Version(len(contested) > 0)
	for _, c := range r.Order {
		if h, placed := r.Ledger.Holder(c.ID); placed {
			one := containerUsage{Container: r.updateContainer(c, h, knobs)}
			one.usage, one.cache, one.used = r.from.Loop.Usage(c.ID)
			one.tier = cmp.Or(r.from.Loop.Tier(c.ID), one.Tier)
			seen = append(seen, one)
			if c.Cut != "" {
				s.Grants.Cut = append(s.Grants.Cut, status.CutGrant{Container: h.Ref, PodUID: h.Pod, Why: c.Cut})
			}
		}
	}
	return &Draft{made: s, seen: seen}
}

// Status copies the draft's containers and completes the status. The caller must not change it,
// since readers share it. Any goroutine may call it.
func (d *Draft) Status() *status.Status {
	d.whole.Do(func() {
		slices.SortFunc(d.seen, func(x, y containerUsage) int {
			return cmp.Or(x.PlacedAt.Compare(y.PlacedAt), cmp.Compare(x.ID, y.ID))
		})
		s := d.made
		s.Containers = make([]status.Container, len(d.seen))
		for i := range d.seen {
			seen, c := &d.seen[i], &s.Containers[i]
			*c = *seen.Container
			c.Tier = seen.tier
			c.Cache, c.CacheMeasuredAt = seen.cache.L3s, seen.cache.At
			if seen.used {
				c.Usage = &seen.usage
			}
			s.Scheduling.Requested += c.Requested
			if at := slices.IndexFunc(s.Pools, func(p status.Pool) bool { return p.Name == c.Pool }); at >= 0 {
				s.Pools[at].Containers++
				s.Pools[at].Requested += c.Requested
			}
		}
		s.Scheduling.OvercommitRatio = float64(s.Scheduling.Requested) / float64(max(s.Scheduling.Allocatable, 1))
		for i := range s.Pools {
			if p := &s.Pools[i]; p.Requested > 0 {
				p.RCFRatio = float64(p.CPUs.Size()) * 1000 / float64(p.Requested)
			}
		}
	})
	return d.made
}

func (r *Reporter) machine() status.Machine {
	m := r.Ledger.Machine()
	pinnable := 0
	if r.Authority().Cpusets {
		pinnable = r.Ledger.PinnableTogether()
	}
	return status.Machine{
		Online: m.Online, Offline: m.Offline,
		Packages: len(m.Packages), Nodes: len(m.Nodes), L3s: len(m.L3s), Cores: len(m.Cores),
		MemoryBytes: r.Memory(),
		Pinned:      r.Ledger.Pinned(), PinnableCPUs: pinnable, NUMANodes: r.numaNodes(),
		Reserved: r.Config.Reserved, System: r.Config.System,
		External: cpuset.Union(r.External(), r.Barred()),
		Steering: r.from.Steering(),
	}
}

// numaNodes is nil if the plugin does not know the containers yet.
func (r *Reporter) numaNodes() []status.NUMANode {
	if !r.Synced {
		return nil
	}
	m := r.Ledger.Machine()
	pinnable := make([]int, 0, len(m.Nodes))
	if r.Authority().Cpusets {
		pinnable = r.Ledger.Pinnable(pinnable)
	}
	nodes := make([]status.NUMANode, len(m.Nodes))
	for i := range m.Nodes {
		nodes[i] = status.NUMANode{ID: m.Nodes[i].ID, CPUs: m.Nodes[i].CPUs, Distances: m.Nodes[i].Distances}
		if len(pinnable) > 0 {
			nodes[i].PinnableCPUs = pinnable[i]
		}
	}
	return nodes
}

// contested lists what other programs keep changing, in alphabetical order.
func (r *Reporter) contested() []string {
	all := r.Reconciler.Contested()
	if r.Reconciler.Quiet() {
		return all
	}
	for _, c := range r.Order {
		if c.Contest.Contested(r.Now()) {
			all = append(all, knobs.CPUs.String()+" of "+c.Ref)
		}
	}
	slices.Sort(all)
	return all
}
