package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/coresched"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/kernel/reclaim"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/watermark"
	"github.com/sluice-dev/sluice/pkg/runtime/nri"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// runOptions are the flags of `sluice run`.
type runOptions struct {
	config       string
	socket       string
	index        string
	name         string
	hostRoot     string
	stateDir     string
	runtimeDir   string
	statusSocket string
	logLevel     string
}

func newRun() *cobra.Command {
	o := runOptions{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the plugin: connect to the container runtime and place containers",
		Long: `Connect to containerd's or CRI-O's NRI socket and give every container its CPUs
and memory nodes before its first instruction. If the runtime restarts, sluice
waits for it and reconnects. Stopping sluice changes no container: all keep
their settings, and the next start takes over from there.`,
		Example: `  # with the shipped defaults, on containerd's default socket
  sluice run

  # with a configuration, and a socket elsewhere
  sluice run --config /etc/sluice/sluice.yaml --socket /run/nri/nri.sock

  # change nothing, only log: set mode: preview in the configuration
  sluice run --config preview.yaml --log-level debug`,
		Args: flagsAlone,
		PreRunE: func(*cobra.Command, []string) error {
			return (&nri.Options{Index: o.index, Name: o.name}).Check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.config, "config", "c", "", "configuration file (default: the shipped defaults)")
	f.StringVar(&o.socket, "socket", "", "the runtime's NRI socket (default /var/run/nri/nri.sock)")
	f.StringVar(&o.index, "index", "50", "NRI plugin index, two digits: the runtime calls plugins in ascending order")
	f.StringVar(&o.name, "name", "sluice", "NRI plugin name")
	f.StringVar(&o.hostRoot, "host-root", "/", "folder that holds the host's /sys and /proc")
	f.StringVar(&o.stateDir, "state-dir", "", "folder for the audit trail and the batch switch (default: the configuration's)")
	f.StringVar(&o.runtimeDir, "runtime-dir", "", runtimeDirHelp)
	f.StringVar(&o.statusSocket, "status-socket", "", "unix socket for sluice status, explain and plan (default: the configuration's)")
	f.StringVar(&o.logLevel, "log-level", "", "debug, info, warn or error (default: the configuration's)")
	return cmd
}

func (o *runOptions) run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	collectSeldom()
	s := service{runOptions: o}
	defer s.stop()
	if nri.PreInstalled() && o.config == "" {
		return nri.New(nil, nri.Options{Configure: s.configure, Log: logrus.New()}).Run(ctx)
	}
	cfg, from, err := loadConfigured(o.config)
	if err != nil {
		return err
	}
	a, log, err := s.start(cfg, from)
	if err != nil {
		return err
	}
	if o.config != "" {
		s.watch(ctx, a, log, from)
	}
	return nri.New(a, nri.Options{
		Socket: o.socket, Index: o.index, Name: o.name,
		FailClosed: cfg.FailurePolicy == config.FailClosed,
		Log:        log,
	}).Run(ctx)
}

// service is what runs beside the connection to the runtime.
type service struct {
	*runOptions
	cancel  context.CancelFunc
	unlock  func()
	own     *ownCPUs
	flush   func() // the log
	running sync.WaitGroup

	reclaimer   *reclaim.Runner                         // nil where the kernel can't reclaim on request
	newFailsafe func(logrus.FieldLogger) agent.Failsafe // nil without a loop
}

// configure starts the service with the configuration that the runtime hands to
// a pre-installed plugin.
func (s *service) configure(text string, options *nri.Options) (*agent.Agent, error) {
	cfg, err := config.Parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	a, log, err := s.start(cfg, configured("", []byte(text)))
	if err != nil {
		return nil, err
	}
	options.FailClosed, options.Log = cfg.FailurePolicy == config.FailClosed, log
	return a, nil
}

// start begins the agent's loop, the status socket and the watch for hotplug.
// They outlive the connection: the loop answers until that is closed.
func (s *service) start(cfg *config.Config, from status.Config) (*agent.Agent, *logrus.Logger, error) {
	log, err := newLog(cfg, s.logLevel)
	if err != nil {
		return nil, nil, err
	}
	s.flush = detach(log).flush
	at := folders{cmp.Or(s.stateDir, cfg.StateDir), cmp.Or(s.runtimeDir, s.stateDir, cfg.RuntimeDir)}
	s.own = newOwnCPUs(at.runtime)
	if cfg.Mode == config.On {
		if err := s.own.begin(); err != nil {
			log.WithError(err).Info("Sluice begins on all CPUs, pinned ones too")
		}
	}
	if s.unlock, err = lock(at.state); err != nil {
		return nil, nil, err
	}
	if err := at.prepareRuntime(log); err != nil {
		return nil, nil, err
	}
	machine, err := sysfs.Read(os.DirFS(s.hostRoot))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the machine below %s: %w", s.hostRoot, err)
	}
	fits(cfg, machine, log)
	protect(log)
	loop, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.running.Go(func() { s.own.run(loop, log) })
	a, err := s.newAgent(loop, cfg, from, machine, at, log)
	if err != nil {
		return nil, nil, err
	}
	s.running.Go(func() { a.Run(loop) })
	s.running.Go(func() { tellRuntimes(loop, s.hostRoot, log) })
	if s.reclaimer != nil {
		s.running.Go(func() { s.reclaimer.Run(loop) })
	}
	statusSocket := cmp.Or(s.statusSocket, cfg.StatusSocket)
	if h := newHerald(a, statusSocket, log); h != nil {
		s.running.Go(func() { h.run(loop) })
	}
	s.running.Go(func() {
		routes := []statusapi.Route{s.metrics(loop, &cfg.Metrics, a, log), statusapi.ConfigRoute(a.ConfigDiff), statusapi.LogRoute(os.DirFS(at.state))}
		if err := statusapi.Serve(loop, statusSocket, a, routes...); err != nil {
			log.WithError(err).Error("No status socket: sluice status, explain and plan have no answer")
		}
	})
	if cfg.Web.Listen != "" {
		s.running.Go(func() { serveWeb(loop, &cfg.Web, a, log) })
	}
	s.running.Go(func() {
		sysfs.Watch(loop, s.hostRoot, machine, func(m *topology.Machine, err error) {
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
	if s.cancel != nil {
		s.cancel()
	}
	s.running.Wait()
	if s.unlock != nil {
		s.unlock()
	}
	if s.flush != nil {
		s.flush()
	}
}

func loadConfig(file string) (*config.Config, error) {
	cfg, _, err := loadConfigured(file)
	return cfg, err
}

// loadConfigured also says where the configuration comes from.
func loadConfigured(file string) (*config.Config, status.Config, error) {
	if file == "" {
		return config.Default(), configured("", nil), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, status.Config{}, fmt.Errorf("configuration: %w", err)
	}
	cfg, err := config.Parse(data)
	if err != nil {
		return nil, status.Config{}, fmt.Errorf("configuration %s: %w", file, err)
	}
	return cfg, configured(file, data), nil
}

// watch takes over what the file says from now on.
func (s *service) watch(ctx context.Context, a *agent.Agent, log *logrus.Logger, from status.Config) {
	r := reloader{service: s, agent: a, log: log, file: from.File, seen: from.Hash}
	w := watcher{file: from.File, log: log, hangup: make(chan os.Signal, 1), read: r.reload}
	signal.Notify(w.hangup, syscall.SIGHUP)
	s.running.Go(func() {
		defer signal.Stop(w.hangup)
		w.run(ctx)
	})
}

// fits tells where the configuration and the machine differ. Containers are placed
// all the same: a pool without CPUs of its own shares with the rest.
func fits(cfg *config.Config, machine *topology.Machine, log logrus.FieldLogger) {
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	warnings, err := cfg.Validate(machine)
	for _, w := range warnings {
		log.Warn("The configuration does not fit this machine: " + w)
	}
	if err != nil {
		log.WithError(err).Error("The configuration does not fit this machine")
	}
}

func (s *service) newAgent(ctx context.Context, cfg *config.Config, from status.Config, machine *topology.Machine, at folders, log logrus.FieldLogger) (*agent.Agent, error) {
	running := build()
	running.HostRoot = s.hostRoot
	options := agent.Options{
		Config: cfg, Configured: from, Machine: machine, Host: os.DirFS(s.hostRoot), Build: running, Log: log,
		Originals: filepath.Join(at.runtime, originalsFile), Formerly: filepath.Join(at.state, originalsFile),
		Confine: s.own.confine,
	}
	affinities, err := irq.Open(s.hostRoot)
	if err != nil {
		return nil, err
	}
	options.Affinities = affinities
	driver, err := cgroupfs.Open(s.hostRoot)
	switch {
	case errors.Is(err, cgroupfs.ErrNoCgroups):
		log.WithError(err).Warn("No cgroups here: containers are set through the runtime alone")
	case err != nil:
		return nil, err
	default:
		options.Kernel = driver
		options.Node = node(cfg, driver, machine, options.Host, log)
		options.Cores = coresched.New()
		options.MemoryUse, options.OOMs = driver.MemoryUse, driver.OOMs
		if options.Node.Features.Reclaim {
			s.reclaimer = reclaim.New(reclaimed{driver})
			options.Reclaimer, options.Reclaim = s.reclaimer, driver.Reclaim
		}
	}
	watermarks, err := watermark.Open(s.hostRoot)
	if err != nil {
		log.WithError(err).Warn("The node's memory watermarks can't be set")
	} else {
		options.Watermarks = watermarks
	}
	rdt, err := resctrl.Open(s.hostRoot)
	switch {
	case err == nil:
		options.RDT = rdt
	case cfg.RDT.Mode == config.RDTOn && len(cfg.RDT.Classes) > 0:
		log.WithError(err).Warn("RDT classes have no effect")
		fallthrough
	default:
		options.NoRDT = err.Error()
	}
	if err := s.addLoop(ctx, at, &options, driver, rdt); err != nil {
		return nil, err
	}
	return agent.New(options), nil
}

// reclaimed is the kernel as the reclaimer sees it.
type reclaimed struct{ *cgroupfs.Driver }

func (r reclaimed) Observe(dir string) (reclaim.Observation, error) {
	m, err := r.MemoryStat(dir)
	return reclaim.Observation{Current: m.Current, Max: m.Max, File: m.File, Pressure: m.Pressure}, err
}

func newLog(cfg *config.Config, level string) (*logrus.Logger, error) {
	log := logrus.New()
	if level == "" {
		level = string(cfg.Log.Level)
	}
	parsed, err := logrus.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level %q: it is debug, info, warn or error", level)
	}
	log.SetLevel(parsed)
	if cfg.Log.Format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	}
	if cfg.Log.File != "" {
		file, err := os.OpenFile(cfg.Log.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("log file: %w", err)
		}
		log.SetOutput(file)
	}
	return log, nil
}

// lock makes sure that only one sluice works on this node: two would register
// with the runtime twice and conflict with each other on every field. One that a
// crashed runtime had launched may only be about to end.
func lock(stateDir string) (unlock func(), err error) {
	const patience = 3 * time.Second // less than the runtime's, for registration
	return lockWithin(context.Background(), stateDir, patience)
}

// lockWithin waits so long for another sluice to end.
func lockWithin(ctx context.Context, stateDir string, patience time.Duration) (unlock func(), err error) {
	if err := private(stateDir, "stateDir"); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(stateDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	for deadline := time.Now().Add(patience); unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			file.Close()
			return nil, fmt.Errorf("another sluice works with state folder %s: stop it first, or name another stateDir", stateDir)
		}
	}
	return func() { file.Close() }, nil
}
