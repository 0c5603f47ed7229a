package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Synchronize makes the ledger anew from what the runtime and the kernel show.
// Pins stay on the CPUs that the kernel shows them on while those are right; pins
// that were created while the plugin was away are placed now, and everyone else
// leaves their CPUs first.
func (a *Agent) Synchronize(pods []*workload.Pod, specs []workload.Container) (updates []Update, err error) {
	err = a.do("Synchronize", func() error {
		before, done := a.inventory(), false
		defer func() {
			if !done {
				a.restore(before)
			}
		}()
		a.grants.Look(allocatedStart)
		ledger, known := a.ledger, a.containers
		a.ledger = ledger.Anew()
		a.containers, a.order = make(map[string]*container, len(specs)), make([]*container, 0, len(specs))
		a.byPath, a.sandboxes = make(map[string]*container, len(specs)), make(map[string]*sandbox, len(pods))
		a.lane.reset()
		a.lane.told = true
		byID := make(map[string]*workload.Pod, len(pods))
		for _, p := range pods {
			byID[p.ID] = p
		}
		slices.SortStableFunc(specs, func(x, y workload.Container) int {
			return cmp.Or(cmp.Compare(x.CreatedNanos, y.CreatedNanos), cmp.Compare(x.ID, y.ID))
		})
		for i := range specs {
			if pod := byID[specs[i].PodID]; pod != nil && specs[i].State != workload.Stopped {
				c := a.found(pod, specs[i], known[specs[i].ID])
				if h, ok := ledger.Holder(c.ID); ok && !c.started && !h.CPUs.IsEmpty() {
					c.has.CPUs = h.CPUs // granted since its spec was written
				}
			}
		}
		a.ledger.Together(func() {
			a.ledger.SetExternal(a.external())
			a.barredIn = "" // the ledger is another one
			a.lookAtParent()
			a.adopt(a.order)
		})
		a.claim(a.order)
		a.forgetGone()
		a.inherit()
		a.post("tune", func() {
			a.reconcileAll()
			if a.Failsafe != nil && a.authority().Writes {
				a.writeFailsafePlan() // an earlier run's plan has limits that a resize may change before the loop steps
			}
			a.pruneRDT()
			a.passes = -1 // all are joined with the next pass
		})
		a.settled, a.told, a.confined, a.synced = 0, 0, 0, true
		a.mend()
		a.settle("")                                          //nolint:errcheck // what failed is in the log and is tried again
		a.unplugged = a.now().Add(2 * a.Config.DriftInterval) // CPUs may have gone while nobody looked
		done = true
		updates = a.updates("")
		a.liftAll()
		a.quiet()
		a.Log.WithField("containers", len(a.order)).WithField("pinned", a.ledger.Pinned().String()).Info("Plugin synchronized with the runtime")
		return nil
	})
	return updates, err
}

// inventory is what Synchronize makes anew. Where that fails, all of it is as before.
type inventory struct {
	ledger          *placement.Ledger
	containers      map[string]*container
	byPath          map[string]*container
	order           []*container
	sandboxes       map[string]*sandbox
	pending         *Update
	laneTold        bool
	settled, told   uint64
	confined        uint64
	synced          bool
	inherited       bool
	inForce, wanted colocation.CPUDesired
}

func (a *Agent) inventory() inventory {
	return inventory{
		a.ledger, a.containers, a.byPath, a.order, a.sandboxes, a.lane.pending, a.lane.told,
		a.settled, a.told, a.confined, a.synced, a.loop.inherited, a.loop.inForce, a.loop.want.Clone(),
	}
}

func (a *Agent) restore(i inventory) {
	a.ledger, a.containers, a.byPath, a.order, a.sandboxes = i.ledger, i.containers, i.byPath, i.order, i.sandboxes
	a.lane.pending, a.lane.told = i.pending, i.laneTold
	a.settled, a.told, a.confined, a.synced = i.settled, i.told, i.confined, i.synced
	a.loop.inherited, a.loop.inForce, a.loop.want = i.inherited, i.inForce, i.wanted
	a.loop.stale = true
}

// found tracks a container that was there before this connection, with what the
// runtime's record says of it.
func (a *Agent) found(pod *workload.Pod, spec workload.Container, before *container) *container {
	spec.Unified = nil // what was Sluice's and what the kubelet's can't be told apart
	c := a.track(pod, spec)
	c.made = true
	if c.started && a.reaches(c) {
		a.Kernel.Nest(c.path)
	}
	if cpus, err := cpuset.Parse(spec.Resources.CPUs); err == nil {
		c.recorded.CPUs = cpus
	}
	if mems, err := cpuset.Parse(spec.Resources.Mems); err == nil {
		c.recorded.Mems = mems
	}
	c.recorded.Unlimited = spec.Resources.Quota < 0
	c.has = placement.Assignment{CPUs: a.notAll(c.recorded.CPUs), Mems: c.recorded.Mems, Unlimited: c.recorded.Unlimited}
	a.recall(c, before)
	if before != nil {
		c.OOMScoreAdj, c.scored = before.OOMScoreAdj, before.scored
	} else {
		c.scored = true
	}
	return c
}

// observe replaces what a container is believed to have by what the kernel shows
// of the given knobs; a container without a cgroup has its spec alone.
func (a *Agent) observe(c *container, of ...knobs.Knob) {
	for _, knob := range of {
		v, err := a.Kernel.Read(c.path, knob)
		if err != nil {
			continue
		}
		switch knob {
		case knobs.CPUs:
			c.has.CPUs = a.notAll(cpuset.Set(v.(knobs.CPUSet)))
		case knobs.Mems:
			c.has.Mems = cpuset.Set(v.(knobs.CPUSet))
			if c.has.Mems == a.ledger.Machine().MemoryNodes() {
				c.has.Mems = cpuset.Set{}
			}
		case knobs.Quota:
			c.has.Unlimited = v.(knobs.CPUQuota).Unlimited()
		}
	}
}

// notAll is the empty set for every CPU there is: cgroup v1 shows a container
// that was given none as having all.
func (a *Agent) notAll(cpus cpuset.Set) cpuset.Set {
	if m := a.ledger.Machine(); cpus == m.Online || cpus == cpuset.Union(m.Online, m.Offline) {
		return cpuset.Set{}
	}
	return cpus
}

// finding is a container that was there before this connection.
type finding struct {
	*container
	request workload.Request
	refused error // why it has no CPUs of its own though it should
}

// adopt enters found containers: pins that run and are right where they are, then
// all that share, then the pins that need a place. One that has not started has
// only what its spec says, which may be another's by now: it comes last, and where
// nothing can be given its start asks again, or fails.
func (a *Agent) adopt(found []*container) {
	now := a.now()
	all := a.findings(found)
	var homeless []*finding
	for _, f := range all {
		// A lifted quota tells CPUs of its own from a shared set of the same size.
		stays := f.started && f.has.Unlimited && a.mayPin(f.container, f.request) == nil
		if !f.request.Class.Pinned() || stays && a.ledger.Adopt(f.identity(), f.request, f.has.CPUs, f.has.Mems, now) {
			continue
		}
		homeless = append(homeless, f)
	}
	for _, f := range all {
		if !f.request.Class.Pinned() {
			a.ledger.Adopt(f.identity(), f.request, f.has.CPUs, cpuset.Set{}, now)
		}
	}
	for _, f := range homeless {
		if f.refused = a.house(f, now); f.refused != nil {
			a.Log.WithField("container", f.ref).WithError(f.refused).Warn("Pin found without CPUs of its own, and none can be given: it shares if it runs")
		}
	}
	for _, f := range homeless {
		if f.refused != nil && f.started {
			a.ledger.PlaceShared(f.identity(), f.request, f.refused.Error(), now)
		}
	}
	for _, f := range all {
		if f.started {
			a.ledger.Hold(f.ID, now)
			a.ledger.KeepMemory(f.ID, f.has.Mems)
		}
	}
}

// claim notes which found containers have settings of Sluice's: those that are to
// have less than all.
func (a *Agent) claim(found []*container) {
	for _, c := range found {
		if want, _ := a.ledger.Assignment(c.ID); a.authority().Cpusets && !c.uncontrolled && (!want.CPUs.IsEmpty() || !want.Mems.IsEmpty()) {
			a.touch(c)
		}
	}
}

// house finds CPUs for a pin that has none of its own, the ones it is on if they
// are free.
func (a *Agent) house(f *finding, now time.Time) error {
	if err := a.mayPin(f.container, f.request); err != nil {
		return err
	}
	if f.has.CPUs.Size() == f.request.CPUs && a.ledger.Adopt(f.identity(), f.request, f.has.CPUs, f.has.Mems, now) {
		return nil
	}
	_, err := a.ledger.Place(f.identity(), f.request, a.inFlight(f.ID), now)
	return err
}

// findings reads what found containers ask for and what the kernel has for them,
// those that run first. On a node without pins and sized pools there is nothing to
// compare with the kernel, and there may be thousands.
func (a *Agent) findings(found []*container) []*finding {
	all := make([]*finding, len(found))
	divided := a.ledger.Divided()
	for i, c := range found {
		r, err := a.request(a.Config, c)
		if err != nil {
			a.Log.WithField("container", c.ref).WithError(err).Warn("Container runs already with a request that would be refused: it shares")
			c.warnings = append(c.warnings, err.Error())
			r = a.sharing(c)
		}
		all[i] = &finding{container: c, request: r}
		divided = divided || r.Class.Pinned()
	}
	for _, f := range all {
		switch {
		case !a.reaches(f.container):
		case f.request.Class.Pinned(), f.request.MemoryNodes.Policy != workload.MemoryDefault:
			a.observe(f.container, knobs.CPUs, knobs.Mems, knobs.Quota)
		case divided, f.touched, !f.recorded.CPUs.IsEmpty():
			a.observe(f.container, knobs.CPUs)
		}
	}
	running := slices.DeleteFunc(slices.Clone(all), func(f *finding) bool { return !f.started })
	return append(running, slices.DeleteFunc(all, func(f *finding) bool { return f.started })...)
}

// sharing is the request of a container whose own can't be honoured.
func (a *Agent) sharing(c *container) workload.Request {
	requests := workload.Requested(c.pod, &c.Container, &c.granted, a.facts().Memory)
	return workload.Request{Class: workload.LS, Milli: requests.CPU, Memory: requests.Memory, From: requests.From}
}
