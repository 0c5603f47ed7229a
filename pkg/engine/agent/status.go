package agent

import (
	"cmp"
	"slices"
	"sync"
	"time"

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
		now := a.now()
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
	mode, reason := a.authority().Mode, a.whyLess()
	contested := a.contested()
	writeErrors, refused := a.reconciler.WriteErrors()
	counters := a.counters
	counters.Drift += a.reconciler.Drift()
	counters.WriteErrors += refused
	s := &status.Status{
		Schema:     status.Schema,
		Version:    a.Build.Version,
		Build:      a.Build,
		Started:    a.started,
		Config:     a.Configured,
		Time:       a.now(),
		Mode:       string(mode),
		Reason:     reason,
		Runtime:    a.runtime,
		Machine:    a.machineStatus(),
		Neighbours: slices.Clone(a.neighbours),
		Contested:  contested,
		SlowWrites: a.reconciler.SlowWrites(),
		Grants:     a.grants.Status(),
		Counters:   counters,
		Features:   a.features,
		Handlers:   a.latencies.status(),
		Errors:     writeErrors,
		Loop:       a.loopStatus(),
	}
	for i, p := range a.ledger.Pools() {
		s.Pools = append(s.Pools, status.Pool{Name: p.Name, CPUs: p.CPUs, Load: a.poolLoad(i)})
	}
	seen := make([]sight, 0, len(a.order))
	knobs := a.reconciler.Version(len(contested) > 0)
	for _, c := range a.order {
		if h, placed := a.ledger.Holder(c.ID); placed {
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
			return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.ID, y.ID))
		})
		s := d.made
		s.Containers = make([]status.Container, len(d.seen))
		for i := range d.seen {
			seen, c := &d.seen[i], &s.Containers[i]
			*c = *seen.Container
			c.Cache, c.CacheTime = seen.cache.L3s, seen.cache.At
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
				p.RCF = float64(p.CPUs.Size()) * 1000 / float64(p.Requested)
			}
		}
	})
	return d.made
}

func (a *Agent) machineStatus() status.Machine {
	m := a.ledger.Machine()
	return status.Machine{
		Online: m.Online, Offline: m.Offline,
		Packages: len(m.Packages), Nodes: len(m.Nodes), L3s: len(m.L3s), Cores: len(m.Cores),
		Memory:   a.memory(),
		Pinned:   a.ledger.Pinned(),
		Reserved: a.Config.Reserved, System: a.Config.System,
		External: cpuset.Union(a.external(), a.barred),
		Steering: a.steering.Status(),
	}
}

// Machine is the machine as the agent works with it.
func (a *Agent) Machine() (m *topology.Machine, err error) {
	err = a.query("topology", func() error {
		m = a.ledger.Machine()
		return nil
	})
	return m, err
}

// WhatIf answers what a pod's containers would get now, one after another, and
// changes nothing.
func (a *Agent) WhatIf(pod *workload.Pod, specs []workload.Container) (answers []status.Answer, err error) {
	err = a.query("plan", func() error {
		ask := func(spec *workload.Container) (workload.Request, []string, error) { return a.ask(pod, spec) }
		answers = status.WhatIf(a.ledger.Clone(), pod, specs, ask, a.now())
		return nil
	})
	return answers, err
}

// ask reads what a container that does not exist asks for.
func (a *Agent) ask(pod *workload.Pod, spec *workload.Container) (workload.Request, []string, error) {
	c := &container{Container: *spec, pod: pod, ref: workload.Ref(pod, spec), uncontrolled: a.Config.RunsInVM(pod)}
	r, err := a.request(a.Config, c)
	if err == nil {
		err = a.mayPin(c, r)
	}
	return r, c.warnings, err
}
