// Package controlloop runs the node's control loop. At each step it updates the controllers'
// view of the node (pkg/decide/control, pkg/decide/colocation), steps the controllers, and
// carries out what they want, in this order: sizes of pools and lent CPUs, quotas and weights,
// memory, cache, an eviction. It also decides which batch work may start, keeps the failsafe's
// plan up to date, and gives back the settings that a reload no longer wants.
package controlloop

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/decisionlog"
	"github.com/sluice-dev/sluice/pkg/engine/egress"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/memorylimit"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/notices"
	"github.com/sluice-dev/sluice/pkg/engine/objectives"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/engine/runtimerecord"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// Failsafe gives services back what they request when this process is gone; see
// pkg/engine/failsafe. None of its methods waits.
type Failsafe interface {
	// Replace replaces the plan: the changes to make when this process is gone. The channel is
	// closed when the plan was written or could not be; a nil channel means that it is written
	// already.
	Replace(changes []knobs.Change) (written <-chan struct{})
	// Beat reports that this process is alive.
	Beat()
	// TakeReport reports, once, what the failsafe did.
	TakeReport() (failsafe.Report, bool)
}

// Latencies are the response times of the pods that have a latency objective; see pkg/engine/objectives. Its
// methods do not wait.
type Latencies interface {
	// Follow reads these pods until the context ends or it is called again, and no others.
	Follow(ctx context.Context, targets []objectives.Target)
	// Latest returns the latest latencies, by the pods' UIDs.
	Latest() map[string]observe.Latency
}

// Shaper measures and limits what pods of batch work send; see pkg/engine/egress. Its methods do not wait.
type Shaper interface {
	// Follow measures the link and these pods until the context ends or it is called again, and no others; nothing if
	// link is nil.
	Follow(ctx context.Context, link *egress.Link, targets []egress.Target)
	// Limit sets the limits of pods, by UID. A pod without one is not limited.
	Limit(limits map[string]observe.BitRate)
	// Latest returns the latest reading.
	Latest() observe.Egress
}

// Options are the host's facilities that the loop needs.
type Options struct {
	Failsafe Failsafe // nil: there is no failsafe
	Evictor  Evictor  // nil: evictions are only reported
	// LastResort ends pods through the runtime where Evictor asks the API server; nil without.
	LastResort Evictor
	// EvictorProblem tells why no pod can be evicted now; "" if pods can be. It may be nil.
	EvictorProblem func() string
	// APIPods returns what the API knows of the node's pods, by UID; nil without sluice-kube.
	APIPods func() map[string]evictorder.Pod
	// StateDir is the directory of the batch switch's file, and of what was learned of the usage;
	// "" switches the batch switch off, and saves nothing.
	StateDir     string
	LearnedUsage *predict.Set // what was learned of the usage before the start; nil for nothing
	// Notices are the files with the notices of the pods that ask for them; nil without.
	Notices *notices.Folder
	// FleetSwitch returns the switch of the fleet; nil without sluice-kube.
	FleetSwitch func() status.Switch
	// Latencies reads latency objectives; nil reads none.
	Latencies Latencies
	// OnHostNetwork reports that this process is on the host's network, and so reaches the pods there.
	OnHostNetwork bool
	// Shaper measures and limits what pods send; nil does neither.
	Shaper Shaper
	// Failures counts the failed samples, by kind; nil if nothing is sampled.
	Failures func() []status.Failure
}

// Parts are the parts of the engine that carry out what the controllers want.
type Parts struct {
	CPUSets   *cpusets.Writer
	Settings  *podsettings.Settings
	Groups    *groups.Joiner
	Record    *runtimerecord.Recorder
	Decisions *decisionlog.Log
}

// Loop steps the controllers and carries out what they want. The goroutine of the agent's event
// loop owns it.
type Loop struct {
	*node.Node
	Parts
	Options // a reload may replace them between two steps
	Memory  *memorylimit.Limiter
	ctx     context.Context //nolint:containedctx // of the agent; its end cancels an eviction

	Controllers colocation.Controllers
	begun       bool // the controllers exist
	failed      string
	lastPanic   string // the panic that was logged last

	// View is the controllers' view of the node.
	View        colocation.NodeView
	poolsOf     node.LedgerState // when the view's pools were updated
	viewOf      node.LedgerState // when the view was made
	viewChanges uint64           // node.Node.Changes when the view was made
	dueAt       time.Time        // when the controllers of control.interval step next

	// Inherited reports whether the loop has taken over an earlier run's settings.
	Inherited      bool
	failsafePlan   failsafePlan
	failsafeReport *failsafe.Report // what the failsafe did and the loop has yet to undo; nil for nothing
	beatAt         time.Time        // when the failsafe was sent the last heartbeat
	ticksSinceBeat int

	allPodsLimit knobs.Bytes // the most memory that all pods together may hold; 0 for no limit

	divider         colocation.BudgetDivider
	dividedBudget   workload.MilliCPU // the budget that was divided last
	dividedReleased uint64            // podsettings.Settings.Released at that time
	sizes           []int             // the pool sizes that the ledger got last

	poolSizes   control.PoolSizes
	short       []control.Shortage
	budget      control.Budget
	refusal     control.Refusal
	stuck       stuckPods
	ruleRefuses string

	switchReader  *batchswitch.Reader // nil without a state folder
	batchSwitch   control.Switch      // the node's own, by the last read that succeeded
	switchProblem string              // why batchSwitch may be out of date; "" if it is what the file says

	disturbed     []control.Disturbance
	advice        []control.Advice
	offer         control.Offer
	free          []int
	givenBefore   workload.MilliCPU
	evictedBefore int
	savedAt       time.Time

	notice      control.Notice // that holds
	noticeFiles noticeFiles
	objectives  []objectives.Target // that are read
	senders     senders
	hostFiles   hostFiles

	usageLoaded  bool // the usage that an earlier run has learned was read, or can't be
	savesUsage   bool
	usageSavedAt time.Time
	usageProblem string // why the last save failed; it was logged
}

// New makes a loop that has made no step. The end of the context cancels an eviction.
func New(ctx context.Context, n *node.Node, parts Parts, memory memorylimit.Host, o Options) *Loop {
	l := &Loop{Node: n, Parts: parts, Options: o, ctx: ctx, dividedBudget: notDivided}
	if o.StateDir != "" {
		spawn := n.Spawn
		if n.Clock != nil {
			spawn = nil // in virtual time nothing blocks
		}
		l.switchReader = batchswitch.NewReader(func() (batchswitch.Setting, error) { return batchswitch.Read(o.StateDir) }, spawn)
	}
	l.Memory = memorylimit.New(n, memory, &l.View, parts.Settings.IsResizing)
	return l
}

// Tick steps the controllers with a snapshot: the fast ones at each call, all of them when
// control.interval has passed.
func (l *Loop) Tick(s *observe.Snapshot) {
	defer func() {
		if p := recover(); p != nil {
			l.Panicked("the control loop", p)
		}
	}()
	if l.Failsafe != nil {
		l.NoteFailsafe()
		l.beat()
	}
	if !l.Synced || !l.begin() {
		return
	}
	interval := l.Config.Control.Interval
	all := !s.Now.Before(l.dueAt) || s.Now.Before(l.dueAt.Add(-2*interval)) // the second case: the clock was set back
	if all {
		// Subtract half a tick, so that a tick that comes a little early still counts.
		l.dueAt = s.Now.Add(interval - l.Config.Control.FastInterval/2)
	}
	carried := (all || l.failsafeReport != nil || s.Now.Sub(l.View.Now) > interval) && l.afterFailsafe() // the failsafe may have acted while this process was stalled
	if l.IsStale() || l.viewOf != l.LedgerState() {
		l.Refresh()
	}
	if all {
		l.followHosts()
		l.allPodsLimit = l.limitOfAllPods()
	}
	l.View.Observe(s, l.allPodsLimit)
	l.MachineMemory = cmp.Or(l.View.MachineMemory, l.MachineMemory)
	if carried { // the failsafe let containers of other pools use the CPUs
		l.View.ForgetPoolLoad()
	}
	if all {
		l.followObjectives()
		l.View.Stays = l.notYielding()
		l.View.Isolated = l.View.Stays == ""
	}
	if all || l.senders.view != l.viewChanges { // what a pod sends before it is followed counts as others'
		l.followEgress()
	}
	l.stepEgress()
	l.step(all)
	l.Decisions.EndResting(s.Now)
	if all {
		l.refreshFailsafePlan()
	}
}

// begin makes the controllers at the first tick.
func (l *Loop) begin() bool {
	if l.begun {
		return true
	}
	made, err := colocation.NewControllers(l.loopSettings(l.Config), l.learned())
	if err != nil {
		if err.Error() != l.failed {
			l.failed = err.Error()
			l.Log.WithError(err).Error("No control loop")
		}
		return false
	}
	l.Controllers, l.begun = made, true
	l.loadUsage()
	l.Changed()
	return true
}

// IsStale reports whether containers have changed since the controllers' view was made.
func (l *Loop) IsStale() bool { return l.viewChanges != l.Changes }

// Update makes a new view for the controllers if containers have changed and the controllers
// exist.
func (l *Loop) Update() {
	if l.begun && l.IsStale() {
		l.Refresh()
	}
}

// Refresh makes a new view of the node's containers for the controllers.
func (l *Loop) Refresh() {
	l.viewChanges, l.viewOf, l.poolsOf, l.dividedBudget = l.Changes, l.LedgerState(), l.LedgerState(), notDivided
	l.View.SetInventory(l.Settings.Collect())
}

// measurePools updates the view's pools to the CPUs that they have now.
func (l *Loop) measurePools() {
	l.poolsOf = l.LedgerState()
	l.View.SetPoolCPUs(l.Ledger.Pools())
}

// limitOfAllPods is the most memory that all pods together may hold; 0 for no limit.
func (l *Loop) limitOfAllPods() knobs.Bytes {
	dir := l.AllPods()
	if dir == "" || l.Kernel == nil {
		return 0
	}
	limit, err := l.Kernel.Read(dir, knobs.MemoryMax)
	if err != nil {
		return 0
	}
	return max(0, limit.(knobs.Bytes))
}

// Panicked counts a panic, and logs it unless it is the one that was logged last.
func (l *Loop) Panicked(where string, p any) {
	l.Counters.Panics++
	if text := fmt.Sprint(where, p); text != l.lastPanic {
		l.lastPanic = text
		l.Log.Errorf("panic in %s, logged once: %v\n%s", where, p, debug.Stack())
	}
}
