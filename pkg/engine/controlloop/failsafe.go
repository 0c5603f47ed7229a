package controlloop

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
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
	ledger   node.LedgerState
	settings uint64
	lives    uint64
}

func (l *Loop) planInputs() planInputs {
	return planInputs{l.LedgerState(), l.Settings.Version(), l.Lives}
}

// afterFailsafe takes note of what the failsafe did, before anything is compared with
// what the loop wrote, and takes it back. It reports whether it did anything.
func (l *Loop) afterFailsafe() bool {
	if l.Failsafe == nil || !l.Authority().Writes {
		return false
	}
	acted, ok := l.Failsafe.Acted()
	if ok {
		l.Decisions.Add(l.View.Now, control.On, []control.Decision{{
			Controller: "failsafe", Object: "node", Action: "act", To: strconv.Itoa(acted.Changes) + " settings", Why: acted.Why + ", at " + acted.Time.Local().Format(time.DateTime) + problemText(acted.Problem),
		}})
		l.undoFailsafe()
	}
	return ok
}

// refreshFailsafePlan keeps the failsafe's plan up to date.
func (l *Loop) refreshFailsafePlan() {
	if l.Failsafe == nil || !l.Authority().Writes {
		return
	}
	if s := &l.safe; !s.kept || s.of != l.planInputs() {
		l.WriteFailsafePlan()
	}
}

// UpdateFailsafePlan rewrites the failsafe's plan after each event that has changed pins, or
// has started, ended or resized a container: a stale plan could hand pinned CPUs to other
// containers. The runtime's answer waits a moment until the plan is written, so that a crash
// right after the answer doesn't leave the plan before.
func (l *Loop) UpdateFailsafePlan() {
	s := &l.safe
	if l.Failsafe == nil || !s.kept || s.of.lives == l.Lives && s.shared == l.Ledger.Shared() || !l.Authority().Writes {
		return
	}
	if written := l.WriteFailsafePlan(); written != nil {
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

// WriteFailsafePlan computes the plan and hands it to the failsafe where it has changed. The
// channel is closed when the plan is written; nil where nothing has to be written.
func (l *Loop) WriteFailsafePlan() (written <-chan struct{}) {
	s := &l.safe
	s.of = l.planInputs()
	if shared := l.Ledger.Shared(); !s.kept || s.shared != shared {
		s.shared, s.floor = shared, l.failsafeFloor(shared)
	}
	changes := l.planFailsafe()
	if s.kept && slices.Equal(changes, s.plan) {
		return nil
	}
	s.plan, s.kept = changes, true
	return l.Failsafe.Keep(slices.Clone(changes))
}

// undoFailsafe takes back what the failsafe did, which is no drift.
func (l *Loop) undoFailsafe() {
	l.CPUSets.Resync()
	for t := range l.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob == knobs.Quota || k.Knob == knobs.Weight && k.Favour > 0 {
				l.Reconciler.Expect(t.Path, k.Knob)
			}
		}
	}
	l.Settings.Pass()
}

func problemText(problem string) string {
	if problem == "" {
		return ""
	}
	return "; not all of it succeeded: " + problem
}

// planFailsafe is what the failsafe does when this process is gone.
func (l *Loop) planFailsafe() []knobs.Change {
	f := colocation.Failsafe{
		Containers: l.Settings.Collect().Containers,
		WriteCPUs:  (l.Ledger.Sizes() != nil || !l.Ledger.Lent().IsEmpty()) && l.Authority().Cpusets,
		SharedCPUs: l.safe.shared, FloorCPUs: l.safe.floor,
		Floor: l.Config.Control.Batch.Floor(&l.View.View), NestedQuotas: l.Settings.NestsQuotas(),
		InForce: l.Settings.InForce(),
	}
	for t := range l.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob == knobs.Quota {
				original, kept := l.Journal.Kept(t.Path, knobs.Quota)
				f.Quotas = append(f.Quotas, colocation.QuotaSetting{Object: t.Object, Pod: t.Pod(), Value: k.Value, Original: original, Kept: kept})
			}
		}
	}
	changes := l.failsafeWeights(f.Plan())
	colocation.SortChanges(changes)
	return changes
}

// failsafeFloor is the CPUs that batch work always has.
func (l *Loop) failsafeFloor(shared cpuset.Set) cpuset.Set {
	m := l.Ledger.Machine()
	n := max(l.Config.Control.Batch.FloorCPUs, m.ThreadsPerCore())
	if law := l.Config.PoolLaw(); law[len(law)-1].Min > 0 {
		n = law[len(law)-1].Min
	}
	return colocation.FloorCPUs(m, shared, n)
}

// failsafeWeights gives back the weights that the kubelet gave, so that what starts while the
// plugin is away competes with the others as it is due.
func (l *Loop) failsafeWeights(changes []knobs.Change) []knobs.Change {
	for t := range l.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob != knobs.Weight || k.Favour == 0 {
				continue
			}
			e, kept := l.Journal.Entry(t.Path, knobs.Weight)
			if !kept || e.Wrote == nil {
				continue
			}
			without := k.Setting
			without.Favour = 100
			to := reconcile.Target(&without, e.Value, l.QoS.Features.Knobs[knobs.Weight].V2)
			changes = append(changes, knobs.Change{Object: t.Object, Knob: knobs.Weight, From: to, To: to, Why: "the loop is gone: the weight without its favour"})
		}
	}
	return changes
}
