// Package agent is the plugin's loop. One goroutine owns the ledger and all that
// is known of pods and containers; the runtime's events, hotplug and the clock
// post to it, and what it decides leaves as kernel writes and as replies.
package agent

import (
	"context"
	"fmt"
	"io/fs"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/grantrecord"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/engine/steering"
	"github.com/sluice-dev/sluice/pkg/engine/watermarks"
	"github.com/sluice-dev/sluice/pkg/kernel/reclaim"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Kernel reads and writes cgroups; see pkg/kernel/cgroupfs. Nil where the host has
// none: everything then goes through the runtime.
type Kernel interface {
	Apply(changes []knobs.Change) error
	Read(path string, knob knobs.Knob) (knobs.Value, error)
	Populated(path string) (bool, error)
	GiveBack(path string, cpus cpuset.Set) error
	Processes(path string) ([]int, error)
	// Nest looks for a cgroup that the runtime has made for the processes below the
	// container's own, which Apply and Read then know of.
	Nest(path string)
	// Rejoin puts a cgroup's processes back into its cpuset where hotplug has moved
	// them out of it, and tells how many.
	Rejoin(path string) (int, error)
	// Same reports whether the kernel shows have where want was written, which it
	// may round.
	Same(knob knobs.Knob, want, have knobs.Value) bool
	// Forget lets go what is held open of a cgroup.
	Forget(path string)
}

// Runtime sends updates to the container runtime outside any request; see
// pkg/runtime/nri. It blocks until the runtime has applied them.
type Runtime interface {
	Update(Update) error
}

// Update is what the runtime is told about one container.
type Update struct {
	ContainerID string
	Settings
}

// Settings are the values that the runtime can carry. An empty set is left as it is.
type Settings struct {
	CPUs, Mems cpuset.Set
	Unlimited  bool // no CFS quota
	Carried
}

// Carried is what the runtime can carry of what a container asks for beside its
// place; zero leaves a value as it is.
type Carried struct {
	Shares                           knobs.Shares
	Quota                            knobs.CPUQuota
	Memory                           knobs.Bytes // limit
	MemoryMin, MemoryLow, MemoryHigh knobs.Bytes // on cgroup v2
}

// Adjustment is what a new container gets.
type Adjustment struct {
	Settings
	OOMScoreAdj workload.Optional[int]
	RDTGroup    string // a resctrl group; "" none
}

// Options are what an agent works with.
type Options struct {
	Config     *config.Config
	Configured status.Config // where that comes from
	Machine    *topology.Machine
	Host       fs.FS                                      // the host's root, for /sys, /proc and the kubelet's state
	Kernel     Kernel                                     // nil without cgroups
	Affinities steering.Affinities                        // nil where IRQs and workqueues can't be steered
	Originals  string                                     // file that keeps original values; "" keeps them in memory alone
	Formerly   string                                     // file that kept them before an upgrade; "" none
	Node       qos.Node                                   // what this kernel has
	Cores      Cores                                      // nil without core scheduling
	RDT        rdtgroup.Host                              // nil without resctrl
	NoRDT      string                                     // why
	Watermarks watermarks.Host                            // nil where the node's watermarks can't be written
	Reclaimer  Reclaimer                                  // nil where the kernel can't reclaim on request
	Reclaim    func(path string, bytes knobs.Bytes) error // takes memory from a cgroup, and blocks; nil where the kernel can't reclaim on request
	// MemoryUse reads what a cgroup holds; nil where it isn't known.
	MemoryUse func(path string, into *observe.ContainerMemoryCounters) error
	// OOMs counts how often the kernel killed at a cgroup's limit (v1: or at one above it);
	// nil where it can't be known.
	OOMs    func(path string) (int64, error)
	Confine func(cpuset.Set) error // keeps the plugin's own threads on these CPUs; nil does not
	Build   status.Build
	Log     logrus.FieldLogger

	// The control loop.
	Sampler      Sampler         // nil: no loop
	Wake         <-chan struct{} // asks for a look before its time; nil never does
	Audit        Audit           // takes the loop's decisions; nil drops them
	Failsafe     Failsafe        // nil without one
	FailsafePlan []knobs.Change  // the plan that the failsafe may have carried out before this start
	Evictor      Evictor         // nil: evictions are told of alone
	StateDir     string          // of the batch switch; "" without one

	// Clock tells the time; nil is the real one. With one of its own the agent does
	// nothing by itself: Tick and Pass do what tickers would.
	Clock func() time.Time
}

// Agent is the loop and what it owns.
type Agent struct {
	Options
	events    chan func()
	inbox     inbox
	closed    chan struct{}
	children  sync.WaitGroup // goroutines that Run waits for
	latencies latencies
	denials   denials

	// Owned by the loop.
	ledger     *placement.Ledger
	containers map[string]*container
	byPath     map[string]*container   // of those, with a cgroup
	order      []*container            // by age
	sandboxes  map[string]*sandbox     // by id
	settled    uint64                  // ledger version that the containers with a cgroup have
	told       uint64                  // ledger version that the runtime was told for the others
	synced     bool                    // a Synchronize has told what runs here
	lifted     map[string]knobs.Object // pods' own cgroups whose quota Sluice has lifted
	book       *journal.Book
	reconciler *reconcile.Reconciler // of cgroups' settings
	lane       slowLane
	stopping   bool                      // nothing is begun any more
	targets    map[string]reclaim.Target // that the reclaimer was given
	awaited    map[string]time.Time      // pods by their cgroups, and until when the kubelet may write them for a resize
	loop       loop
	ticks      ticks
	passes     int
	passing    *time.Ticker // nil with a clock of the agent's own
	steering   *steering.Steerer
	watermarks *watermarks.Keeper
	rdt        *rdtgroup.Groups
	runtime    status.Runtime
	neighbours []peers.Neighbour
	grants     *grantrecord.Watcher
	barred     cpuset.Set // CPUs that the cgroup of all pods lacks, as with systemd's AllowedCPUs=
	barredIn   string     // that cgroup; "" before it is known
	unseen     error      // why neighbours could not be looked for, as far as it was told
	counters   status.Counters
	features   []status.Feature
	started    time.Time
	moves      uint64 // events that may have changed something
	shown      shown
	kernels    []status.Kernel // used again for each container
	returned   cpuset.Set      // CPUs that went offline and came back in this run
	unplugged  time.Time       // until then, processes may be outside their cpusets
	confined   uint64          // ledger version that the plugin's own threads follow

	factsOf      *topology.Machine
	machineFacts annotation.Facts
	life         context.Context //nolint:containedctx // Run's: what the loop begins ends with it
}

// container is a container with what was last asserted for it.
type container struct {
	workload.Container
	pod            *workload.Pod
	ref            string
	podRef         string // "namespace/pod"
	path           string // cgroup; "" where it can't be told
	podPath, above string // cgroup of the pod, and what holds it; "" where they can't be told
	uncontrolled   bool   // accounted only: a VM runtime's
	made           bool   // the runtime has said so, or it was found
	started        bool
	refused        refusedStart
	ran            bool                 // its first process may have begun
	has            placement.Assignment // in the kernel, as far as Sluice knows
	touched        bool                 // Sluice has given it a cpuset: "all" must be written, not left out
	recorded       Settings             // what the runtime's own record holds
	quota          knobs.CPUQuota       // CFS quota that Sluice lifted or may lift; zero where there is none
	unresized      refusedResize
	attempts       int // failed slow-lane updates to the present desire
	carried        Carried
	unadjusted     map[knobs.Knob]knobs.Value // what the runtime would have set without Sluice
	scored         bool                       // its OOM score may be Sluice's: it was found
	rdt            string                     // resctrl group that it was put into; "" none
	processes      []int                      // when it was last joined to its groups
	reclaim        qos.Reclaim
	notes          []qos.Note // what this node lacks of what is asked for
	warnings       []string
	granted        workload.Granted // by the kubelet's record, when the request was read last
	cut            bool             // it was told of that it claims more
	drift          int
	contest        reconcile.Backoff
	foreign        *cpuset.Set // its CPUs in the kernel, where the kubelet sets them; nil where it doesn't, or they aren't known
	shown          portrait
}

// New makes an agent; Run starts it.
func New(o Options) *Agent {
	a := &Agent{
		Options:    o,
		events:     make(chan func()),
		closed:     make(chan struct{}),
		ledger:     placement.New(o.Config.Policy(), o.Machine),
		containers: map[string]*container{}, byPath: map[string]*container{}, sandboxes: map[string]*sandbox{},
		lifted:    map[string]knobs.Object{},
		inbox:     inbox{news: make(chan struct{}, 1)},
		awaited:   map[string]time.Time{},
		loop:      newLoop(),
		latencies: newLatencies(),
		grants:    grantrecord.New(o.Host, o.Clock != nil, o.Log),
		features:  o.features(),
	}
	a.started = a.now()
	if a.Configured.Loaded.IsZero() {
		a.Configured.Loaded = a.started
	}
	a.prepareTicks()
	return a
}

// Run is the loop; it returns when the context ends and what it has begun has ended.
func (a *Agent) Run(ctx context.Context) {
	a.life = ctx
	a.load()
	a.meet(peers.Detect(a.Host)) // before anything is written: beside koordlet nothing is
	a.grants.Follow(grantrecord.Find(a.Host))
	a.grants.Look(allocatedStart)
	a.findMemory()
	a.raiseWatermarks()
	a.setUpRDT()
	var pass <-chan time.Time
	if a.Clock == nil {
		a.spawn(func() { a.lookAround(ctx) })
		if a.Sampler != nil {
			a.spawn(func() { a.sample(ctx) })
		}
		a.passing = time.NewTicker(a.Config.DriftInterval)
		defer a.passing.Stop()
		pass = a.passing.C
	}
	for {
		select {
		case <-ctx.Done():
			a.end()
			return
		case event := <-a.events:
			event()
		case <-a.inbox.news:
			a.runPosted()
		case <-pass:
			a.pass()
		}
	}
}

// endPatience is how long Run waits, at its end, for what it has begun: less than the
// time after which a service manager kills.
const endPatience = 5 * time.Second

// end takes no more events, waits for what the loop has begun, takes note of how it
// went, and closes the journal.
func (a *Agent) end() {
	a.stopping = true
	a.reconciler.Stop()
	close(a.closed)
	ended := make(chan struct{})
	go func() { a.children.Wait(); close(ended) }()
	timeout := time.NewTimer(endPatience)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
		a.Log.Warn("Ending while a write to the kernel, or a call to the runtime, is still under way; what was there before the write is in the journal")
	}
	a.runPosted()
	a.tellEnded(a.loop.movements.Rest(a.now(), true))
	a.leaveWatermarks()
	if err := a.book.Close(); err != nil {
		a.Log.WithError(err).Error("Original values not written")
	}
}

// spawn runs what may take long in a goroutine that Run waits for.
func (a *Agent) spawn(work func()) {
	if !a.stopping {
		a.children.Go(work)
	}
}

// now is the time by the agent's clock.
func (a *Agent) now() time.Time {
	if a.Clock != nil {
		return a.Clock()
	}
	return time.Now()
}

// errClosed answers events that come while the agent shuts down.
var errClosed = fmt.Errorf("sluice is shutting down")

// do runs one event in the loop and waits for it. A panic fails that event alone.
func (a *Agent) do(name string, event func() error) error {
	return a.query(name, func() error {
		a.moves++
		return event()
	})
}

// query is do for an event that changes nothing.
func (a *Agent) query(name string, event func() error) (err error) {
	done := make(chan struct{})
	run := func() {
		defer close(done)
		err = a.run(name, event)
	}
	select {
	case a.events <- run:
		<-done
		return err
	case <-a.closed:
		return errClosed
	}
}

// run is one event, in the loop.
func (a *Agent) run(name string, event func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			a.counters.Panics++
			a.Log.WithField("event", name).Errorf("panic: %v\n%s", p, debug.Stack())
			err = fmt.Errorf("sluice failed on %s (a bug; the stack is in its log): %v", name, p)
		}
	}()
	a.reconciler.BeginEvent()
	err = event()
	a.updateFailsafePlan()
	return err
}

// inbox holds events that nobody waits for, in the order in which they came.
type inbox struct {
	mu     sync.Mutex
	events []posted
	news   chan struct{} // has room for one
}

type posted struct {
	name  string
	event func()
}

// post runs an event in the loop without waiting for it. Events that are posted one
// after the other run in that order.
func (a *Agent) post(name string, event func()) {
	b := &a.inbox
	b.mu.Lock()
	b.events = append(b.events, posted{name, event})
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// runPosted runs the events that were posted.
func (a *Agent) runPosted() {
	b := &a.inbox
	b.mu.Lock()
	events := b.events
	b.events = nil
	b.mu.Unlock()
	for _, p := range events {
		a.moves++
		a.run(p.name, func() error { p.event(); return nil }) //nolint:errcheck // the event has no result
	}
}

// aside does work that may block outside the loop, and what follows from it in the
// loop. With a clock of the agent's own, where nothing blocks, both are done at once:
// so the order of things does not depend on the machine.
func (a *Agent) aside(name string, work, then func()) {
	if a.Clock != nil {
		work()
		then()
		return
	}
	a.spawn(func() {
		work()
		a.post(name, then)
	})
}
