package controlloop

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// failsafePlan is the plan that the failsafe got last, with the inputs that it was made from.
type failsafePlan struct {
	plan   []knobs.Change
	kept   bool
	of     planInputs
	shared cpuset.Set // CPUs that services get
	floor  cpuset.Set // CPUs that batch work gets
}

// planInputs are the versions of what the failsafe's plan is made from.
type planInputs struct {
	ledger   node.LedgerState
	settings uint64
	lives    uint64
}

func (l *Loop) planInputs() planInputs {
	return planInputs{l.LedgerState(), l.Settings.Version(), l.LifecycleChanges}
}

// beat sends the failsafe a heartbeat if the last one was long enough ago, by the clock or by the
// number of ticks: a clock that stands still or is set back must not make a running loop look dead.
func (l *Loop) beat() {
	l.ticksSinceBeat++
	now := l.Now()
	byTicks := time.Duration(l.ticksSinceBeat) * l.Config.Control.FastInterval
	if max(now.Sub(l.beatAt), byTicks) >= failsafe.BeatInterval {
		l.Failsafe.Beat()
		l.beatAt, l.ticksSinceBeat = now, 0
	}
}

// NoteFailsafe records in the journal what the failsafe wrote while this process gave no sign of
// life. It must run before each event: an event that restores a setting, such as the end of a
// container, would otherwise take the failsafe's value for another program's and leave it.
func (l *Loop) NoteFailsafe() {
	if l.Failsafe == nil || l.failsafeReport != nil || l.Now().Sub(l.beatAt) < failsafe.Silence || !l.Authority().Writes {
		return
	}
	l.takeFailsafeReport()
}

// Silent reports whether this process has given no sign of life for so long that the failsafe may
// have acted. What the failsafe wrote is then in force until the next tick undoes it.
func (l *Loop) Silent() bool {
	if l.beatAt.IsZero() { // before the first tick
		return l.failsafeReport != nil
	}
	return l.Failsafe != nil && l.Now().Sub(l.beatAt) >= failsafe.Silence
}

// takeFailsafeReport takes the failsafe's report if there is one, and records in the journal
// what the failsafe wrote.
func (l *Loop) takeFailsafeReport() {
	if acted, ok := l.Failsafe.TakeReport(); ok {
		l.failsafeReport = &acted
		reconcile.AfterFailsafe(l.Kernel, l.Journal, l.failsafePlan.plan)
	}
}

// afterFailsafe logs and undoes what the failsafe did. It must run before the loop compares the
// kernel with what it wrote itself. It reports whether the failsafe had done anything.
func (l *Loop) afterFailsafe() bool {
	if l.Failsafe == nil || !l.Authority().Writes {
		return false
	}
	if l.failsafeReport == nil {
		l.takeFailsafeReport()
	}
	acted := l.failsafeReport
	if acted == nil {
		return false
	}
	l.failsafeReport = nil
	l.Decisions.Add(l.View.Now, control.On, []control.Decision{{
		Controller: "failsafe", Object: "node", Action: "act", To: strconv.Itoa(acted.Changes) + " settings", Why: acted.Why + ", at " + acted.Time.Local().Format(time.DateTime) + problemText(acted.Problem),
	}})
	l.undoFailsafe()
	return true
}

// refreshFailsafePlan writes the failsafe's plan again if its inputs have changed.
func (l *Loop) refreshFailsafePlan() {
	if l.Failsafe == nil || !l.Authority().Writes {
		return
	}
	if s := &l.failsafePlan; !s.kept || s.of != l.planInputs() {
		l.WriteFailsafePlan()
	}
}

// UpdateFailsafePlan rewrites the failsafe's plan after each event that has changed pins, or
// has started, ended or resized a container: a stale plan could hand pinned CPUs to other
// containers. The event waits up to planPatience until the plan is written, so that a crash
// right after the reply leaves no stale plan.
func (l *Loop) UpdateFailsafePlan() {
	s := &l.failsafePlan
	if l.Failsafe == nil || !s.kept || s.of.lives == l.LifecycleChanges && s.shared == l.Ledger.Shared() || !l.Authority().Writes {
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

// planPatience is how long an event waits for the failsafe's plan at most. The plan is in
// memory, so writing it takes much less.
const planPatience = 20 * time.Millisecond

// WriteFailsafePlan computes the plan and hands it to the failsafe if it has changed. The
// channel is closed when the plan is written; it is nil if there is nothing to write.
func (l *Loop) WriteFailsafePlan() (written <-chan struct{}) {
	s := &l.failsafePlan
	s.of = l.planInputs()
	if shared := l.Ledger.Shared(); !s.kept || s.shared != shared {
		s.shared, s.floor = shared, l.failsafeFloor(shared)
	}
	changes := l.planFailsafe()
	if s.kept && slices.Equal(changes, s.plan) {
		return nil
	}
	s.plan, s.kept = changes, true
	return l.Failsafe.Replace(slices.Clone(changes))
}

// undoFailsafe writes the loop's settings over those of the failsafe. These repairs don't count
// as drift.
func (l *Loop) undoFailsafe() {
	l.CPUSets.Resync()
	for t := range l.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob == knobs.Quota || k.Knob == knobs.Weight && k.ScalePercent > 0 || isClassIOWeight(t.Level, k.Knob) {
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

// planFailsafe lists the changes that the failsafe makes when this process is gone.
func (l *Loop) planFailsafe() []knobs.Change {
	f := colocation.Failsafe{
		Containers: l.Settings.Collect().Containers,
		WriteCPUs:  (l.Ledger.Sizes() != nil || !l.Ledger.Lent().IsEmpty() || len(l.Ledger.Separations()) > 0) && l.Authority().Cpusets,
		SharedCPUs: l.failsafePlan.shared, FloorCPUs: l.failsafePlan.floor,
		Floor: l.Config.Control.Batch.Floor(&l.View.View), NestedQuotas: l.Settings.NestsQuotas(),
		InForce: l.Settings.InForce(),
	}
	for t := range l.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob == knobs.Quota {
				original, kept := l.Journal.Original(t.Path, knobs.Quota)
				f.Quotas = append(f.Quotas, colocation.QuotaSetting{Object: t.Object, Pod: t.Pod(), Value: k.Value, Original: original, Recorded: kept})
			}
		}
	}
	changes := l.failsafeIOWeights(l.failsafeWeights(f.Plan()))
	colocation.SortChanges(changes)
	return changes
}

// failsafeFloor is the set of CPUs that batch work always has.
func (l *Loop) failsafeFloor(shared cpuset.Set) cpuset.Set {
	m := l.Ledger.Machine()
	n := max(l.Config.Control.Batch.FloorCPUs, m.ThreadsPerCore())
	if law := l.Config.PoolLaw(); law[len(law)-1].Min > 0 {
		n = law[len(law)-1].Min
	}
	return colocation.FloorCPUs(m, shared, n)
}

// failsafeWeights lists the changes that restore the weights that the kubelet gave, so that
// pods that start while the plugin is away compete by their requests.
func (l *Loop) failsafeWeights(changes []knobs.Change) []knobs.Change {
	for t := range l.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob != knobs.Weight || k.ScalePercent == 0 {
				continue
			}
			e, kept := l.Journal.Entry(t.Path, knobs.Weight)
			if !kept || e.Wrote == nil {
				continue
			}
			without := k.Setting
			without.ScalePercent = 100
			to := reconcile.Target(&without, e.Value, l.QoS.Features.Knobs[knobs.Weight].V2)
			changes = append(changes, knobs.Change{Object: t.Object, Knob: knobs.Weight, From: to, To: to, Why: "the loop is gone: the weight that LS pods have without batch work"})
		}
	}
	return changes
}

// failsafeIOWeights lists the changes that restore the I/O weights of QoS classes whose pods are all
// batch work: a service of that class may start while the plugin is away.
func (l *Loop) failsafeIOWeights(changes []knobs.Change) []knobs.Change {
	for t := range l.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if !isClassIOWeight(t.Level, k.Knob) {
				continue
			}
			if e, kept := l.Journal.Entry(t.Path, k.Knob); kept && e.Wrote != nil {
				changes = append(changes, knobs.Change{Object: t.Object, Knob: k.Knob, From: e.Value, To: e.Value, Why: "the loop is gone: a service of this class may start"})
			}
		}
	}
	return changes
}

func isClassIOWeight(level knobs.Level, knob knobs.Knob) bool {
	return level == knobs.ClassLevel && (knob == knobs.IOWeight || knob == knobs.BFQWeight)
}
