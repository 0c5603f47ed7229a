// Package daemon is the plugin's process: what 'sluice run' runs around the agent until it is
// stopped. It opens the host, connects the agent to the runtime, serves the status, handles
// hotplug and changes of the configuration file, and closes everything at the end.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/controlloop"
	"github.com/sluice-dev/sluice/pkg/engine/egress"
	"github.com/sluice-dev/sluice/pkg/engine/notices"
	"github.com/sluice-dev/sluice/pkg/engine/objectives"
	"github.com/sluice-dev/sluice/pkg/engine/sampler"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/coresched"
	"github.com/sluice-dev/sluice/pkg/kernel/ioprio"
	"github.com/sluice-dev/sluice/pkg/kernel/network"
	"github.com/sluice-dev/sluice/pkg/kernel/reclaim"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/runtime/nri"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/host"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Options come from the command line.
type Options struct {
	Config       string           // file; "" for the defaults, or for the configuration that the runtime passes on
	Socket       string           // the runtime's NRI socket, "" for the usual one
	Index, Name  string           // of the NRI plugin
	HostRoot     string           // folder with the host's /sys and /proc
	StateDir     string           // "" for the configuration's
	RuntimeDir   string           // "" for the configuration's
	StatusSocket string           // "" for the configuration's
	KubeSocket   string           // unix socket for sluice-kube; "" for none
	KubeUID      uint32           // user of sluice-kube, who may connect besides root
	FleetKeys    []string         // keys of the configuration that parts of the fleet's policy may set
	CDIDir       string           // folder of CDI specs, for resource claims; "" reserves nothing for claims
	ClaimDevices claim.DomainKind // what a device is for resource claims
	LabelsFile   string           // what the node has, as labels for Node Feature Discovery; "" for none
	LogLevel     string           // "" for the configuration's
	Build        status.Build
}

// Run runs the plugin until the context ends.
func Run(ctx context.Context, o Options) error {
	collectSeldom()
	s := service{Options: &o, link: kubelink.New()}
	defer s.stop()
	if nri.PreInstalled() && o.Config == "" {
		return nri.New(nil, nri.Options{Configure: s.configure, Log: logrus.New()}).Run(ctx)
	}
	cfg, text, err := config.Load(o.Config)
	if err != nil {
		return err
	}
	from := configured(o.Config, text)
	s.text = text
	a, log, err := s.start(cfg, from)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // the connection may end before the parent context
	defer cancel()
	if o.Config != "" {
		s.watch(ctx, log)
	}
	return nri.New(a, nri.Options{
		Socket: o.Socket, Index: o.Index, Name: o.Name,
		FailClosed: cfg.FailurePolicy == config.FailClosed,
		Log:        log,
	}).Run(ctx)
}

// service is everything that runs beside the connection to the runtime.
type service struct {
	*Options
	unlock  func()
	own     *ownCPUs
	host    *host.Host
	sampler *sampler.Sampler // nil if there is no control loop
	notices *notices.Folder  // nil if it can't be opened
	link    *kubelink.Link   // to sluice-kube
	text    []byte           // of the configuration at the start
	reload  *reloader
	loops   bool               // the configuration without the fleet's parts has a control loop
	fleet   *batchswitch.Fleet // the fleet's switch; nil without a socket for sluice-kube
	flush   func()             // writes the pending lines of the log
	acting  group              // the agent and what sends it requests
	writing group              // what writes the agent's records to disk; ends after acting

	features    *knobs.Features                               // of the kernel; nil without cgroups
	reclaimer   *reclaim.Runner                               // nil if the kernel can't reclaim on request
	newFailsafe func(logrus.FieldLogger) controlloop.Failsafe // nil if there is no control loop
}

// group is a set of goroutines that end together.
type group struct {
	cancel  context.CancelFunc // nil before begin
	running sync.WaitGroup
}

// begin returns the context of the group's goroutines.
func (g *group) begin() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	return ctx
}

// end cancels the context and waits for the goroutines.
func (g *group) end() {
	if g.cancel != nil {
		g.cancel()
	}
	g.running.Wait()
}

// configure starts the service with the configuration that the runtime passes to a
// pre-installed plugin.
func (s *service) configure(text string, options *nri.Options) (*agent.Agent, error) {
	cfg, err := config.Parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	s.text = []byte(text)
	a, log, err := s.start(cfg, configured("", s.text))
	if err != nil {
		return nil, err
	}
	options.FailClosed, options.Log = cfg.FailurePolicy == config.FailClosed, log
	return a, nil
}

// start starts the agent's loop, the status socket and the monitoring of hotplug. They outlive
// the connection, because the loop must answer requests until the connection is closed.
func (s *service) start(cfg *config.Config, from status.Config) (*agent.Agent, *logrus.Logger, error) {
	log, err := newLog(cfg, s.LogLevel)
	if err != nil {
		return nil, nil, err
	}
	s.flush = detach(log).flush
	at := statedir.Of(cfg, s.StateDir, s.RuntimeDir)
	s.own = newOwnCPUs(at.Runtime)
	if cfg.Mode == config.On {
		if err := s.own.begin(); err != nil {
			log.WithError(err).Info("Sluice begins on all CPUs, pinned ones too")
		}
	}
	const patience = 3 * time.Second // shorter than the runtime's timeout for a plugin's registration
	if s.unlock, err = statedir.Lock(context.Background(), at.State, patience); err != nil {
		return nil, nil, err
	}
	if err := at.PrepareRuntime(log); err != nil {
		return nil, nil, err
	}
	machine, err := sysfs.Read(os.DirFS(s.HostRoot))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the machine below %s: %w", s.HostRoot, err)
	}
	s.reload = &reloader{service: s, log: log, file: from.File, hash: from.Hash, base: s.text, state: at.State}
	s.loops = cfg.LoopMode() != control.Off
	cfg = s.reload.restoreParts(cfg, machine) // before the agent begins: it takes over what it finds, by its configuration
	from.Parts = s.reload.fleet.Results
	fits(cfg, machine, log)
	protect(log)
	wakeSeldom(log)
	loop, writing := s.acting.begin(), s.writing.begin()
	s.writing.running.Go(func() { s.own.run(writing, log) })
	a, err := s.newAgent(loop, writing, cfg, from, machine, at, log)
	if err != nil {
		return nil, nil, err
	}
	s.acting.running.Go(func() { a.Run(loop) })
	s.reload.agent, s.reload.reconfigure = a, a.Reconfigure
	s.acting.running.Go(func() { s.reload.retryRefused(loop) })
	s.acting.running.Go(func() { trimMemory(loop) })
	s.acting.running.Go(func() { logRuntimes(loop, s.HostRoot, log) })
	if s.LabelsFile != "" {
		s.acting.running.Go(func() { s.keepLabels(loop, log) })
	}
	if s.reclaimer != nil {
		s.acting.running.Go(func() { s.reclaimer.Run(loop) })
	}
	statusSocket := cmp.Or(s.StatusSocket, cfg.StatusSocket)
	if h := newNotifier(a, statusSocket, log); h != nil {
		s.acting.running.Go(func() { h.run(loop) })
	}
	s.acting.running.Go(func() {
		routes := []statusapi.Route{s.metrics(loop, &cfg.Metrics, a, log), statusapi.ConfigRoute(s.reload.diff), statusapi.LogRoute(os.DirFS(at.State))}
		var source interface {
			statusapi.Source
			statusapi.Refuser
		} = struct {
			*agent.Agent
			*statusapi.DenialLog
		}{a, statusapi.NewDenialLog(log)}
		if err := statusapi.Serve(loop, statusSocket, source, routes...); err != nil {
			log.WithError(err).Error("No status socket: sluice status, explain and plan have no answer")
		}
	})
	if s.KubeSocket != "" {
		s.acting.running.Go(func() {
			o := kubesocket.Options{Path: s.KubeSocket, UID: s.KubeUID, Claims: a.Claims, Refuser: statusapi.NewDenialLog(log), Fleet: s.fleet, SetParts: s.reload.setParts, SetKubelet: s.reload.setKubelet, Log: log}
			if err := kubesocket.Serve(loop, o, a, s.link); err != nil {
				log.WithError(err).Error("No socket for sluice-kube: nothing is sold, and no pod is evicted by kubernetes")
			}
		})
	}
	if cfg.Web.Listen != "" {
		s.acting.running.Go(func() { serveWeb(loop, &cfg.Web, a, log) })
	}
	s.acting.running.Go(func() {
		sysfs.Watch(loop, s.HostRoot, machine, func(m *topology.Machine, err error) {
			if err != nil {
				log.WithError(err).Error("The machine changed and can't be read: the last known one stays in use")
				return
			}
			a.SetMachine(m)
		})
	})
	return a, log, nil
}

func (s *service) stop() {
	s.acting.end()
	s.writing.end()
	if s.sampler != nil {
		s.sampler.Close() //nolint:errcheck // the sampler only reads
	}
	if s.notices != nil {
		s.notices.Close() //nolint:errcheck // all notices are written
	}
	if s.host != nil {
		s.host.Close() //nolint:errcheck // all writes have reached the kernel
	}
	if s.unlock != nil {
		s.unlock()
	}
	if s.flush != nil {
		s.flush()
	}
}

// watch applies every later change of the configuration file.
func (s *service) watch(ctx context.Context, log *logrus.Logger) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	w := config.Watcher{File: s.Config, Asks: hangup, Read: s.reload.read, Log: log}
	s.acting.running.Go(func() {
		defer signal.Stop(hangup)
		w.Run(ctx)
	})
}

// fits warns of differences between the configuration and the machine. Containers are placed
// nevertheless: a pool without its own CPUs shares the rest.
func fits(cfg *config.Config, machine *topology.Machine, log logrus.FieldLogger) {
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	warnings, err := cfg.Fit(machine)
	for _, w := range warnings {
		log.Warn("The configuration does not fit this machine: " + w)
	}
	if err != nil {
		log.WithError(err).Error("The configuration does not fit this machine")
	}
}

func (s *service) newAgent(loop, writing context.Context, cfg *config.Config, from status.Config, machine *topology.Machine, at statedir.Dirs, log logrus.FieldLogger) (*agent.Agent, error) {
	running := s.Build
	running.HostRoot = s.HostRoot
	h := host.Open(s.HostRoot)
	s.host = h
	options := agent.Options{
		Config: cfg, Configured: from, Machine: machine, Host: os.DirFS(s.HostRoot), Build: running, Log: log,
		Originals: at.JournalFile(), Formerly: at.FormerJournalFile(),
		Confine: s.own.confine, CDIDir: s.CDIDir, ClaimDevices: s.ClaimDevices,
	}
	var err error
	if s.notices, err = notices.Open(at.Runtime); err != nil {
		log.WithError(err).Warn("Pods that ask for notices get none")
	}
	options.Notices = s.notices
	if h.NetworkErr == nil {
		options.Shaper = egress.New(nodeNetwork{h.Network}, at.EgressMark())
	} else if cfg.Control.Egress.Mode != control.Off {
		log.WithError(h.NetworkErr).Warn("What batch work sends is not limited")
	}
	options.Latencies, options.OnHostNetwork = objectives.New(), s.HostRoot == "/"
	if h.AffinitiesErr != nil {
		return nil, h.AffinitiesErr
	}
	options.Affinities = h.Affinities
	switch {
	case errors.Is(h.CgroupsErr, cgroupfs.ErrNoCgroups):
		log.WithError(h.CgroupsErr).Warn("No cgroups here: containers are set through the runtime alone")
	case h.CgroupsErr != nil:
		return nil, h.CgroupsErr
	default:
		options.Kernel = h.Cgroups
		options.Node = node(cfg, h.Cgroups, machine, options.Host, log)
		options.Cores, options.Priorities, s.features = coresched.New(), ioprio.New(h.Cgroups.AllThreads), &options.Node.Features
		options.Memory.GiveWay, options.Memory.Use, options.Memory.OOMs = reclaim.GiveWay, h.Cgroups.MemoryUse, h.Cgroups.OOMs
		if options.Node.Features.Reclaim {
			s.reclaimer = reclaim.New(reclaimed{h.Cgroups})
			options.Reclaimer, options.Memory.Reclaim = s.reclaimer, h.Cgroups.Reclaim
		}
	}
	if h.WatermarksErr != nil {
		log.WithError(h.WatermarksErr).Warn("The node's memory watermarks can't be set")
	} else {
		options.Watermarks = h.Watermarks
	}
	if h.NewidleErr == nil { // a nil *newidle.Host would be a host
		options.Newidle = h.Newidle
	}
	if h.IOCostErr != nil {
		options.NoDisks = h.IOCostErr.Error()
	} else {
		options.Disks = h.IOCost
	}
	switch {
	case h.RDTErr == nil:
		options.RDT = h.RDT
	case cfg.RDT.Mode == config.RDTOn && len(cfg.RDT.Classes) > 0:
		log.WithError(h.RDTErr).Warn("RDT classes have no effect")
		fallthrough
	default:
		options.NoRDT = h.RDTErr.Error()
	}
	if s.KubeSocket != "" {
		if s.fleet, err = batchswitch.OpenFleet(at.State); err != nil {
			log.WithError(err).Error("The fleet's switch can't be read")
		}
		options.FleetSwitch = s.fleet.Switch
	}
	if err := s.addLoop(loop, writing, at, &options); err != nil {
		return nil, err
	}
	return agent.New(options), nil
}

// nodeNetwork is the node's network as the shaper wants it.
type nodeNetwork struct{ *network.Host }

func (n nodeNetwork) Pod(pid int, path string) (egress.Pod, error) {
	p, err := n.Host.Pod(pid, path)
	if err != nil {
		return nil, err // a nil *network.Pod would be an egress.Pod that is not nil
	}
	return p, nil
}

// reclaimed adapts the driver to the interface of the reclaimer.
type reclaimed struct{ *cgroupfs.Driver }

func (r reclaimed) Observe(dir string) (reclaim.Observation, error) {
	m, err := r.MemoryStat(dir)
	return reclaim.Observation{Current: m.Current, Max: m.Max, File: m.File, Pressure: m.Pressure}, err
}
