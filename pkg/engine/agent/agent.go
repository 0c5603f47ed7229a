package agent

import (
	"context"
	"io/fs"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/controlloop"
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/decisionlog"
	"github.com/sluice-dev/sluice/pkg/engine/eventloop"
	"github.com/sluice-dev/sluice/pkg/engine/grantrecord"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/latency"
	"github.com/sluice-dev/sluice/pkg/engine/memorylimit"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/nodestatus"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/engine/runtimerecord"
	"github.com/sluice-dev/sluice/pkg/engine/steering"
	"github.com/sluice-dev/sluice/pkg/engine/watermarks"
	"github.com/sluice-dev/sluice/pkg/kernel/reclaim"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Options are what an agent works with.
type Options struct {
	Config     *config.Config
	Configured status.Config // where that comes from
	Machine    *topology.Machine
	Host       fs.FS               // the host's root, for /sys, /proc and the kubelet's state
	Kernel     node.Kernel         // nil without cgroups
	Affinities steering.Affinities // nil where IRQs and workqueues can't be steered
	Originals  string              // file that keeps original values; "" keeps them in memory alone
	Formerly   string              // file that kept them before an upgrade; "" none
	Node       qos.Node            // what this kernel has
	Cores      groups.Cores        // nil without core scheduling
	RDT        rdtgroup.Host       // nil without resctrl
	NoRDT      string              // why
	Watermarks watermarks.Host     // nil where the node's watermarks can't be written
	Reclaimer  Reclaimer           // nil where the kernel can't reclaim on request
	Memory     memorylimit.Host
	Confine    func(cpuset.Set) error // keeps the plugin's own threads on these CPUs; nil does not
	Build      status.Build
	Log        logrus.FieldLogger

	// The control loop.
	Sampler      Sampler              // nil: no loop
	Wake         <-chan struct{}      // asks for a look before its time; nil never does
	Audit        decisionlog.Audit    // takes the loop's decisions; nil drops them
	Failsafe     controlloop.Failsafe // nil without one
	FailsafePlan []knobs.Change       // the plan that the failsafe may have carried out before this start
	Evictor      controlloop.Evictor  // nil: evictions are reported alone
	StateDir     string               // of the batch switch; "" without one

	// Clock tells the time; nil is the real one. With one of its own the agent does
	// nothing by itself: Tick and Pass do what tickers would.
	Clock func() time.Time
}

// Agent is the loop and what it owns.
type Agent struct {
	*node.Node // owned by the loop
	options    Options
	events     *eventloop.Loop
	Latencies  latency.Histograms // of the runtime's events

	// Owned by the loop.
	cpusets       *cpusets.Writer
	podsettings   *podsettings.Settings
	record        *runtimerecord.Recorder
	targets       map[string]reclaim.Target // that the reclaimer was given
	loop          *controlloop.Loop
	ticks         ticks
	passing       *time.Ticker // nil with a clock of the agent's own
	steering      *steering.Steerer
	watermarks    *watermarks.Keeper
	decisions     *decisionlog.Log
	groups        *groups.Joiner
	detectProblem error // why neighbours could not be detected; logged
	reporter      *nodestatus.Reporter
	started       time.Time
	shown         shown
	confined      node.LedgerState // which the plugin's own threads follow

	life context.Context //nolint:containedctx // Run's: what the loop begins ends with it
}

// New makes an agent; Run starts it.
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
	a.events = eventloop.New(eventloop.Hooks{
		Before: func() { a.Reconciler.BeginEvent() },
		After:  func() { a.loop.UpdateFailsafePlan() },
		Panicked: func(name string, p any, stack []byte) {
			a.Counters.Panics++
			a.Log.WithField("event", name).Errorf("panic: %v\n%s", p, stack)
		},
	})
	a.Spawn, a.Post = a.events.Spawn, a.events.Post
	a.decisions = decisionlog.New(o.Audit, o.Log)
	a.started = a.Now()
	if a.options.Configured.LoadedAt.IsZero() {
		a.options.Configured.LoadedAt = a.started
	}
	a.prepareTicks()
	return a
}

// Run is the loop; it returns when the context ends and what it has begun has ended.
func (a *Agent) Run(ctx context.Context) {
	a.life = ctx
	a.load()
	a.setNeighbours(peers.Detect(a.Host)) // before anything is written: beside koordlet nothing is
	a.Grants.Follow(grantrecord.Find(a.Host))
	a.Grants.Look(node.GrantWaitAll)
	a.FindMemory()
	a.raiseWatermarks()
	a.groups.SetUp()
	var pass <-chan time.Time
	if a.Clock == nil {
		a.Spawn(func() { a.watchNeighbours(ctx) })
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

// endPatience is how long Run waits, at its end, for what it has begun: less than the
// time after which a service manager kills.
const endPatience = 5 * time.Second

// end waits for what the loop has begun, takes note of how it went, and closes the journal.
func (a *Agent) end() {
	a.Reconciler.Stop()
	if !a.events.Stop(endPatience) {
		a.Log.Warn("Ending while a write to the kernel, or a call to the runtime, is still under way; what was there before the write is in the journal")
	}
	a.decisions.EndAll(a.Now())
	a.leaveWatermarks()
	if err := a.Journal.Close(); err != nil {
		a.Log.WithError(err).Error("Original values not written")
	}
}
