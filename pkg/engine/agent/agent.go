package agent

import (
	"context"
	"io/fs"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/claims"
	"github.com/sluice-dev/sluice/pkg/engine/controlloop"
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/decisionlog"
	"github.com/sluice-dev/sluice/pkg/engine/disks"
	"github.com/sluice-dev/sluice/pkg/engine/eventloop"
	"github.com/sluice-dev/sluice/pkg/engine/grantrecord"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/latency"
	"github.com/sluice-dev/sluice/pkg/engine/memorylimit"
	"github.com/sluice-dev/sluice/pkg/engine/newidle"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/nodestatus"
	"github.com/sluice-dev/sluice/pkg/engine/notices"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/engine/runtimerecord"
	"github.com/sluice-dev/sluice/pkg/engine/steering"
	"github.com/sluice-dev/sluice/pkg/engine/watermarks"
	"github.com/sluice-dev/sluice/pkg/kernel/reclaim"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Options are an agent's dependencies and settings.
type Options struct {
	Config     *config.Config
	Configured status.Config // the file that Config was read from, for the status
	Machine    *topology.Machine
	Host       fs.FS               // the host's root, for /sys, /proc and the kubelet's state
	Kernel     node.Kernel         // nil: the node's cgroups can't be written
	Affinities steering.Affinities // nil where IRQs and workqueues can't be steered
	Originals  string              // file of the journal; "" keeps the journal in memory alone
	Formerly   string              // the journal's file before an upgrade moved it; "" for none
	Node       qos.Node            // the knobs and features of this kernel
	Cores      groups.Cores        // nil without core scheduling
	Priorities groups.Priorities   // nil without I/O priorities
	RDT        rdtgroup.Host       // nil without resctrl
	NoRDT      string              // why RDT is nil; shown in the status
	Cycles     bool                // cycles and instructions can be counted by cgroup
	NoCycles   string              // why not; shown in the status
	Watermarks watermarks.Host     // nil where the node's watermarks can't be written
	Newidle    newidle.Host        // nil without a kernel
	Disks      disks.Host          // nil without io.cost
	NoDisks    string              // why Disks is nil; shown in the status
	Reclaimer  Reclaimer           // nil where the kernel can't reclaim on request
	Memory     memorylimit.Host
	Confine    func(cpuset.Set) error // binds the plugin's own threads to these CPUs; nil leaves them unbound
	Build      status.Build
	Log        logrus.FieldLogger

	// These fields are for the control loop.
	Sampler        Sampler                          // nil switches the control loop off
	Wake           <-chan struct{}                  // asks for a sample before the next one is due; may be nil
	Audit          decisionlog.Audit                // records the loop's decisions; nil discards them
	Failsafe       controlloop.Failsafe             // nil without one
	FailsafePlan   []knobs.Change                   // the plan that an earlier failsafe may have carried out before this start
	Evictor        controlloop.Evictor              // nil: evictions are only reported
	LastResort     controlloop.Evictor              // ends pods through the runtime where Evictor asks the API server; nil without
	EvictorProblem func() string                    // why no pod can be evicted now, "" if pods can be; may be nil
	APIPods        func() map[string]evictorder.Pod // what the API knows of the node's pods; nil without sluice-kube
	FleetSwitch    func() status.Switch             // of the fleet; nil without sluice-kube
	CDIDir         string                           // directory of CDI specs, which claims need; "" refuses claims
	ClaimDevices   claim.DomainKind                 // what is offered to claims
	StateDir       string                           // directory of the batch switch's file, of what was learned of the usage, and of claims; "" for none
	Notices        *notices.Folder                  // files with the notices of the pods that ask for them; nil without
	Latencies      controlloop.Latencies            // reads latency objectives; nil reads none
	Shaper         controlloop.Shaper               // measures and limits what pods send; nil does neither
	OnHostNetwork  bool                             // this process is on the host's network
	LearnedUsage   *predict.Set                     // what was learned of the usage before the start; nil for nothing

	// Clock returns the present time; nil uses the system's clock. With a Clock the agent
	// starts no tickers: the caller calls Tick and Pass.
	Clock func() time.Time
}

// Agent owns the node's state and runs all of its events in one goroutine; see the package
// comment.
type Agent struct {
	*node.Node // only the event loop's goroutine may use it
	options    Options
	events     *eventloop.Loop
	Claims     *claims.Book       // reserves CPUs for resource claims; any goroutine may use it after New
	Latencies  latency.Histograms // how long the runtime's events took

	// Only the event loop's goroutine may use these fields.
	cpusets       *cpusets.Writer
	podsettings   *podsettings.Settings
	record        *runtimerecord.Recorder
	targets       map[string]reclaim.Target // the memory targets that the reclaimer got last
	loop          *controlloop.Loop
	ticks         ticks
	passing       *time.Ticker // triggers the periodic pass; nil with Options.Clock
	steering      *steering.Steerer
	watermarks    *watermarks.Keeper
	newidle       *newidle.Keeper
	disks         *disks.Keeper
	decisions     *decisionlog.Log
	groups        *groups.Joiner
	detectProblem error // why neighbours could not be detected; logged
	reporter      *nodestatus.Reporter
	started       time.Time
	shown         statusCache
	confined      node.LedgerState // the ledger's state when the plugin's own threads were bound last

	ctx context.Context //nolint:containedctx // Run's: what the loop begins ends with it
}

// New makes an agent. Its events run once Run is called.
func New(o Options) *Agent {
	a := &Agent{
		Node: &node.Node{
			Inventory: node.NewInventory(0, 0, 0),
			Config:    o.Config, Host: o.Host, Kernel: o.Kernel, QoS: o.Node, HasRDT: o.RDT != nil, Log: o.Log, Clock: o.Clock,
			Ledger: placement.New(o.Config.Policy(), o.Machine),
			Grants: grantrecord.New(o.Host, o.Clock != nil, o.Log),
		},
		options:   o,
		Latencies: latency.New(),
	}
	a.QoS.CPURatio = int(o.Config.CPUNormalization.Ratio)
	a.events = eventloop.New(eventloop.Hooks{
		Before: func() {
			a.Reconciler.BeginEvent()
			a.loop.NoteFailsafe()
		},
		After: func() { a.loop.UpdateFailsafePlan() },
		Panicked: func(name string, p any, stack []byte) {
			a.Counters.Panics++
			a.Log.WithField("event", name).Errorf("panic: %v\n%s", p, stack)
		},
	})
	a.Spawn, a.Post = a.events.Spawn, a.events.Post
	a.Claims = claims.New(a.Node, o.CDIDir, o.StateDir, a.events.Do)
	a.decisions = decisionlog.New(o.Audit, o.Log)
	a.started = a.Now()
	if a.options.Configured.LoadedAt.IsZero() {
		a.options.Configured.LoadedAt = a.started
	}
	a.prepareTicks()
	return a
}

// Run runs the event loop. It returns when the context has ended and the goroutines that the
// agent started have finished.
func (a *Agent) Run(ctx context.Context) {
	a.ctx = ctx
	a.load()
	search := peers.Search{Host: a.Host}
	kubelet, found, err := search.Detect()
	a.setNeighbours(found, err) // before any write: next to koordlet, Sluice writes nothing
	a.Grants.Follow(kubelet.File(grants.File))
	a.Grants.Refresh(node.GrantWaitAll)
	a.FindMemory()
	a.raiseWatermarks()
	a.setNewidle()
	a.setDisks()
	a.groups.SetUp()
	var pass <-chan time.Time
	if a.Clock == nil {
		a.Spawn(func() { a.watchNeighbours(ctx, &search) })
		if a.options.Sampler != nil {
			a.Spawn(func() { a.sample(ctx) })
		}
		a.passing = time.NewTicker(a.Config.DriftInterval)
		defer a.passing.Stop()
		pass = a.passing.C
	}
	a.events.Run(ctx, pass, a.pass)
	a.end()
}

// shutdownTimeout is how long Run waits for the agent's goroutines when the context ends. It is
// less than the time after which a service manager kills the process.
const shutdownTimeout = 5 * time.Second

// disksTimeout is how long the end then waits for a disk that hangs.
const disksTimeout = 2 * time.Second

// end waits for the agent's goroutines, records the results that they post, and closes the
// journal.
func (a *Agent) end() {
	a.Reconciler.Stop()
	if !a.events.Stop(shutdownTimeout) {
		a.Log.Warn("Ending while a write to the kernel, or a call to the runtime, is still under way; what was there before the write is in the journal")
	}
	a.decisions.EndAll(a.Now())
	a.leaveWatermarks()
	a.leaveNewidle()
	if a.Config.Mode == config.On {
		a.disks.Leave(disksTimeout)
	}
	if err := a.Journal.Close(); err != nil {
		a.Log.WithError(err).Error("Original values not written")
	}
}
