package agent

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// safety is the failsafe's plan with what it depends on.
type safety struct {
	plan    []knobs.Change
	kept    bool
	news    bool       // a container has started, ended or been resized since
	version uint64     // of the ledger
	shared  cpuset.Set // CPUs that services get
	floor   cpuset.Set // and batch work
}

// afterFailsafe takes note of what the failsafe did, before anything is compared with
// what the loop wrote, and takes it back. It reports whether it did anything.
func (a *Agent) afterFailsafe() bool {
	if a.Failsafe == nil || !a.authority().Writes {
		return false
	}
	acted, ok := a.Failsafe.Acted()
	if ok {
		a.decide(control.On, []control.Decision{{
			Controller: "failsafe", Object: "node", Action: "act", To: strconv.Itoa(acted.Changes) + " settings", Why: acted.Why + ", at " + acted.Time.Local().Format(time.DateTime) + problemText(acted.Error),
		}})
		a.takeBack()
	}
	return ok
}

// guard keeps the failsafe's plan up to date.
func (a *Agent) guard() {
	if a.Failsafe == nil || !a.authority().Writes {
		return
	}
	if s := &a.loop.safe; a.loop.unsafe || !s.kept || s.version != a.ledger.Version() {
		a.keepSafe()
	}
}

// guardNews brings the failsafe's plan after the pins at once: what it gives to
// services must be nobody's own. And after containers that start,
// whose quotas v1 minds, or end, whose pods are left alone. The runtime's answer waits a
// moment for the plan: a crash right after it must not find the one before.
func (a *Agent) guardNews() {
	s := &a.loop.safe
	if a.Failsafe == nil || !s.kept || !s.news && s.shared == a.ledger.Shared() || !a.authority().Writes {
		return
	}
	if written := a.keepSafe(); written != nil {
		timeout := time.NewTimer(planPatience)
		defer timeout.Stop()
		select {
		case <-written:
		case <-timeout.C:
		}
	}
}

// planPatience is how long an event waits at most for the failsafe's plan, which is in
// memory: much longer than writing it takes, and short for who waits.
const planPatience = 20 * time.Millisecond

// keepSafe makes the plan anew. What it returns is closed when the plan is written; nil
// where nothing is.
func (a *Agent) keepSafe() (written <-chan struct{}) {
	s := &a.loop.safe
	a.loop.unsafe, s.news = false, false
	if shared := a.ledger.Shared(); !s.kept || s.shared != shared {
		s.shared, s.floor = shared, a.batchFloor(shared)
	}
	s.version = a.ledger.Version()
	changes := a.safePlan()
	if s.kept && slices.Equal(changes, s.plan) {
		return nil
	}
	s.plan, s.kept = changes, true
	return a.Failsafe.Keep(slices.Clone(changes))
}

// takeBack brings the kernel back from what the failsafe did, which is no drift.
func (a *Agent) takeBack() {
	for _, c := range a.order {
		if c.touched && c.started && a.reaches(c) && a.authority().Cpusets {
			a.observe(c, knobs.CPUs)
		}
	}
	a.settled = 0
	a.settle("") //nolint:errcheck // what failed is in the log and is tried again
	for t := range a.reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob == knobs.Quota || k.Knob == knobs.Weight && k.Favour > 0 {
				a.reconciler.Expect(t.Path, k.Knob)
			}
		}
	}
	a.compareAll()
}

func problemText(problem string) string {
	if problem == "" {
		return ""
	}
	return "; not all of it succeeded: " + problem
}

const (
	serviceWhy = "the loop is gone: what it requests"
	floorWhy   = "the loop is gone: batch work's floor"
)

// safePlan is what the failsafe does when this process is gone: containers that share
// get all shared CPUs and their own limits, batch work its floor. Pins stay.
func (a *Agent) safePlan() []knobs.Change {
	var changes []knobs.Change
	if (a.ledger.Sizes() != nil || !a.ledger.Lent().IsEmpty()) && a.authority().Cpusets {
		changes = a.safeSets(changes)
	}
	changes = a.safeWeights(a.safeQuotas(changes))
	slices.SortStableFunc(changes, func(x, y knobs.Change) int {
		if x.Object.Path < y.Object.Path {
			return -1
		} else if x.Object.Path > y.Object.Path {
			return 1
		}
		return int(x.Knob) - int(y.Knob)
	})
	return changes
}

// safeSets gives services all shared CPUs, and batch work its floor of them.
func (a *Agent) safeSets(changes []knobs.Change) []knobs.Change {
	s := &a.loop.safe
	for _, c := range a.order {
		h, placed := a.ledger.Holder(c.ID)
		if !placed || !h.CPUs.IsEmpty() || !c.started || !c.touched || !a.reaches(c) || h.Request.Class == workload.System {
			continue
		}
		change := knobs.Change{Object: c.object(), Knob: knobs.CPUs, To: knobs.CPUSet(s.shared), Why: serviceWhy}
		if h.Request.Class == workload.BE {
			change.To, change.Why = knobs.CPUSet(s.floor), floorWhy
		}
		changes = append(changes, change)
	}
	return changes
}

// safeQuotas gives services their own quotas back, and batch work its floor.
func (a *Agent) safeQuotas(changes []knobs.Change) []knobs.Change {
	l := &a.loop
	claims := workload.MilliCPU(len(l.intents.boxes) + len(l.intents.pods))
	least := colocation.Quota(a.floorOf(claims))
	raised := map[string]bool{} // by cgroup: services' containers and pods with quotas of the loop
	for _, c := range a.order {
		h, placed := a.ledger.Holder(c.ID)
		if _, ours := l.intents.containers[c.ID]; ours && placed && h.Request.Class != workload.BE {
			raised[c.path], raised[c.podPath] = true, true
		}
	}
	for t := range a.reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob != knobs.Quota {
				continue
			}
			original, kept := a.book.Kept(t.Path, knobs.Quota)
			change := knobs.Change{Object: t.Object, Knob: knobs.Quota, From: original}
			switch {
			case a.squeezed(t) && (kept || !a.bounded(t)):
				// Also where it has no more now: it may when the plan is carried out.
				to := least
				if has, ok := k.Value.(knobs.CPUQuota); ok && has.Finite() && has.Compare(least) <= 0 && !a.bounded(t) {
					to = has
				}
				change.To, change.Why = to, floorWhy
			case raised[t.Path] && kept:
				change.To, change.Why = original, serviceWhy
			default:
				continue
			}
			changes = append(changes, change)
		}
	}
	return changes
}

// bounded reports whether a cgroup is one that batch work's budget bounds.
func (a *Agent) bounded(t *reconcile.Cgroup) bool {
	_, box := a.loop.intents.boxes[t.Path]
	_, alone := a.loop.intents.pods[t.Pod()]
	return box || alone && t.Level == knobs.PodLevel
}

// squeezed reports whether a cgroup is one of these or, where v1 lets none have more
// than what holds it, is below one.
func (a *Agent) squeezed(t *reconcile.Cgroup) bool {
	l := &a.loop
	if a.bounded(t) {
		return true
	}
	_, alone := l.intents.pods[t.Pod()]
	if a.Node.Features.Knobs[knobs.Quota].V2 || t.Pod() == "" {
		return false
	}
	holder := colocation.Above(t.Path)
	if t.Level == knobs.ContainerLevel {
		holder = colocation.Above(holder)
	}
	_, boxed := l.intents.boxes[holder]
	return alone || boxed
}

// batchFloor is the CPUs that batch work always has.
func (a *Agent) batchFloor(shared cpuset.Set) cpuset.Set {
	m := a.ledger.Machine()
	n := max(a.Config.Control.Batch.FloorCPUs, m.ThreadsPerCore())
	if law := a.Config.PoolLaw(); law[len(law)-1].Min > 0 {
		n = law[len(law)-1].Min
	}
	if n >= shared.Size() {
		return shared
	}
	least, err := cpualloc.New(m).Shrink(shared, n, cpualloc.Preference{})
	if err != nil {
		return shared
	}
	return least
}
