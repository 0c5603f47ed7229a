package agent

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// failsafePlan is the failsafe's plan with what it depends on.
type failsafePlan struct {
	plan   []knobs.Change
	kept   bool
	of     planInputs
	shared cpuset.Set // CPUs that services get
	floor  cpuset.Set // and batch work
}

// planInputs are the versions of what the failsafe's plan is made from.
type planInputs struct {
	ledger   *placement.Ledger
	version  uint64
	settings uint64
	lives    uint64
}

func (a *Agent) planInputs() planInputs {
	return planInputs{a.Ledger, a.Ledger.Version(), a.podsettings.Version(), a.Lives}
}

// afterFailsafe takes note of what the failsafe did, before anything is compared with
// what the loop wrote, and takes it back. It reports whether it did anything.
func (a *Agent) afterFailsafe() bool {
	if a.options.Failsafe == nil || !a.Authority().Writes {
		return false
	}
	acted, ok := a.options.Failsafe.Acted()
	if ok {
		a.decisions.Add(a.loop.view.Now, control.On, []control.Decision{{
			Controller: "failsafe", Object: "node", Action: "act", To: strconv.Itoa(acted.Changes) + " settings", Why: acted.Why + ", at " + acted.Time.Local().Format(time.DateTime) + problemText(acted.Problem),
		}})
		a.undoFailsafe()
	}
	return ok
}

// refreshFailsafePlan keeps the failsafe's plan up to date.
func (a *Agent) refreshFailsafePlan() {
	if a.options.Failsafe == nil || !a.Authority().Writes {
		return
	}
	if s := &a.loop.safe; !s.kept || s.of != a.planInputs() {
		a.writeFailsafePlan()
	}
}

// updateFailsafePlan rewrites the failsafe's plan after each event that has changed pins, or
// has started, ended or resized a container: a stale plan could hand pinned CPUs to other
// containers. The runtime's answer waits a moment until the plan is written, so that a crash
// right after the answer doesn't leave the plan before.
func (a *Agent) updateFailsafePlan() {
	s := &a.loop.safe
	if a.options.Failsafe == nil || !s.kept || s.of.lives == a.Lives && s.shared == a.Ledger.Shared() || !a.Authority().Writes {
		return
	}
	if written := a.writeFailsafePlan(); written != nil {
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

// writeFailsafePlan computes the plan and hands it to the failsafe where it has changed. The
// channel is closed when the plan is written; nil where nothing has to be written.
func (a *Agent) writeFailsafePlan() (written <-chan struct{}) {
	s := &a.loop.safe
	s.of = a.planInputs()
	if shared := a.Ledger.Shared(); !s.kept || s.shared != shared {
		s.shared, s.floor = shared, a.failsafeFloor(shared)
	}
	changes := a.planFailsafe()
	if s.kept && slices.Equal(changes, s.plan) {
		return nil
	}
	s.plan, s.kept = changes, true
	return a.options.Failsafe.Keep(slices.Clone(changes))
}

// undoFailsafe takes back what the failsafe did, which is no drift.
func (a *Agent) undoFailsafe() {
	a.cpusets.Resync()
	for t := range a.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob == knobs.Quota || k.Knob == knobs.Weight && k.Favour > 0 {
				a.Reconciler.Expect(t.Path, k.Knob)
			}
		}
	}
	a.podsettings.Pass()
}

func problemText(problem string) string {
	if problem == "" {
		return ""
	}
	return "; not all of it succeeded: " + problem
}

// planFailsafe is what the failsafe does when this process is gone.
func (a *Agent) planFailsafe() []knobs.Change {
	l := &a.loop
	f := colocation.Failsafe{
		Containers: a.podsettings.Collect().Containers,
		WriteCPUs:  (a.Ledger.Sizes() != nil || !a.Ledger.Lent().IsEmpty()) && a.Authority().Cpusets,
		SharedCPUs: l.safe.shared, FloorCPUs: l.safe.floor,
		Floor: a.Config.Control.Batch.Floor(&l.view.View), NestedQuotas: a.podsettings.NestsQuotas(),
		InForce: a.podsettings.InForce(),
	}
	for t := range a.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob == knobs.Quota {
				original, kept := a.Journal.Kept(t.Path, knobs.Quota)
				f.Quotas = append(f.Quotas, colocation.QuotaSetting{Object: t.Object, Pod: t.Pod(), Value: k.Value, Original: original, Kept: kept})
			}
		}
	}
	changes := a.failsafeWeights(f.Plan())
	colocation.SortChanges(changes)
	return changes
}

// failsafeFloor is the CPUs that batch work always has.
func (a *Agent) failsafeFloor(shared cpuset.Set) cpuset.Set {
	m := a.Ledger.Machine()
	n := max(a.Config.Control.Batch.FloorCPUs, m.ThreadsPerCore())
	if law := a.Config.PoolLaw(); law[len(law)-1].Min > 0 {
		n = law[len(law)-1].Min
	}
	return colocation.FloorCPUs(m, shared, n)
}
