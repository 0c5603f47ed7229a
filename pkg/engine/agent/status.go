package agent

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// shown is the last snapshot.
type shown struct {
	draft *draft
	at    time.Time
	moves uint64
}

// sharedFor is how long readers share one snapshot, if nothing happens meanwhile: what
// a caller has seen happen is in what it reads then.
const sharedFor = 100 * time.Millisecond

// Status is a copy of the state. It must not be changed: other readers may have the
// same one.
func (a *Agent) Status() (*status.Status, error) {
	var d *draft
	err := a.query("status", func() error {
		now := a.Now()
		if age := now.Sub(a.shown.at); a.shown.draft == nil || a.shown.moves != a.moves || age < 0 || age >= sharedFor {
			a.shown = shown{a.draft(), now, a.moves}
		}
		d = a.shown.draft
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d.status(), nil
}

// draft is a status whose containers are still the agent's portraits of them. It is made
// in the loop, for which events wait; what is large is copied outside of it.
type draft struct {
	made  *status.Status
	seen  []sight
	whole sync.Once
}

// sight is a container with what it does.
type sight struct {
	*status.Container
	usage status.Usage
	used  bool // usage is known
	cache observe.Cache
}

func (a *Agent) draft() *draft {
	mode, reason := a.Authority().Mode, a.WhyLess()
	contested := a.contested()
	writeErrors, refused := a.Reconciler.WriteErrors()
	counters := a.Counters
	counters.Drift += a.Reconciler.Drift()
	counters.WriteErrors += refused
	s := &status.Status{
		Schema:     status.Schema,
		Version:    a.options.Build.Version,
		Build:      a.options.Build,
		StartedAt:  a.started,
		Config:     a.options.Configured,
		Time:       a.Now(),
		Mode:       status.Mode(mode),
		Why:        reason,
		Runtime:    a.Runtime,
		Machine:    a.machineStatus(),
		Neighbours: slices.Clone(a.Neighbours),
		Contested:  contested,
		SlowWrites: a.Reconciler.SlowWrites(),
		Grants:     a.Grants.Status(),
		Counters:   counters,
		Features:   a.features,
		Handlers:   a.latencies.status(),
		Errors:     writeErrors,
		Loop:       a.loopStatus(),
	}
	for i, p := range a.Ledger.Pools() {
		s.Pools = append(s.Pools, status.Pool{Name: p.Name, CPUs: p.CPUs, Load: a.poolLoad(i)})
	}
	if len(a.portraits) > len(a.Order) {
		maps.DeleteFunc(a.portraits, func(c *node.Container, _ *portrait) bool { return a.Containers[c.ID] != c })
	}
	seen := make([]sight, 0, len(a.Order))
	knobs := a.Reconciler.Version(len(contested) > 0)
	for _, c := range a.Order {
		if h, placed := a.Ledger.Holder(c.ID); placed {
			seen = append(seen, sight{Container: a.portray(c, h, knobs)})
			a.use(&seen[len(seen)-1])
		}
	}
	return &draft{made: s, seen: seen}
}

// status is the draft as a whole.
func (d *draft) status() *status.Status {
	d.whole.Do(func() {
		slices.SortFunc(d.seen, func(x, y sight) int {
			return cmp.Or(x.PlacedAt.Compare(y.PlacedAt), cmp.Compare(x.ID, y.ID))
		})
		s := d.made
		s.Containers = make([]status.Container, len(d.seen))
		for i := range d.seen {
			seen, c := &d.seen[i], &s.Containers[i]
			*c = *seen.Container
			c.Cache, c.CacheMeasuredAt = seen.cache.L3s, seen.cache.At
			if seen.used {
				c.Usage = &seen.usage
			}
			if at := slices.IndexFunc(s.Pools, func(p status.Pool) bool { return p.Name == c.Pool }); at >= 0 {
				s.Pools[at].Containers++
				s.Pools[at].Requested += c.Requested
			}
		}
		for i := range s.Pools {
			if p := &s.Pools[i]; p.Requested > 0 {
				p.RCFRatio = float64(p.CPUs.Size()) * 1000 / float64(p.Requested)
			}
		}
	})
	return d.made
}

func (a *Agent) machineStatus() status.Machine {
	m := a.Ledger.Machine()
	return status.Machine{
		Online: m.Online, Offline: m.Offline,
		Packages: len(m.Packages), Nodes: len(m.Nodes), L3s: len(m.L3s), Cores: len(m.Cores),
		MemoryBytes: a.Memory(),
		Pinned:      a.Ledger.Pinned(),
		Reserved:    a.Config.Reserved, System: a.Config.System,
		External: cpuset.Union(a.External(), a.Barred()),
		Steering: a.steering.Status(),
	}
}

// Machine is the machine as the agent works with it.
func (a *Agent) Machine() (m *topology.Machine, err error) {
	err = a.query("topology", func() error {
		m = a.Ledger.Machine()
		return nil
	})
	return m, err
}

// WhatIf answers what a pod's containers would get now, one after another, and
// changes nothing.
func (a *Agent) WhatIf(pod *workload.Pod, specs []workload.Container) (answers []status.Answer, err error) {
	err = a.query("plan", func() error {
		ask := func(spec *workload.Container) (workload.Request, []string, error) { return a.ask(pod, spec) }
		answers = status.WhatIf(a.Ledger.Clone(), pod, specs, ask, a.Now())
		return nil
	})
	return answers, err
}

// ask reads what a container that does not exist asks for.
func (a *Agent) ask(pod *workload.Pod, spec *workload.Container) (workload.Request, []string, error) {
	c := &node.Container{Container: *spec, Pod: pod, Ref: workload.Ref(pod, spec), Uncontrolled: a.Config.RunsInVM(pod)}
	r, err := a.Request(a.Config, c)
	if err == nil {
		err = a.MayPin(c, r)
	}
	return r, c.Warnings, err
}
