package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/agent"
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/tune"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// simulation is one run of a scenario under a policy.
type simulation struct {
	*Scenario
	policy  Policy
	config  *config.Config
	node    *node
	kubelet *kubelet
	sampler *sampler
	agent   *agent.Agent // nil under Unmanaged
	now     atomic.Int64 // since the scenario's start; the agent's clock reads it
	report  report
}

// Run runs a scenario under a policy, with the load of the pods that s.Vary names
// multiplied by vary.
func Run(ctx context.Context, s *Scenario, p Policy, vary float64) (*Result, error) {
	return run(ctx, s, p, vary, 1)
}

func run(ctx context.Context, s *Scenario, p Policy, vary, tight float64) (*Result, error) {
	m, host, err := s.read()
	if err != nil {
		return nil, fmt.Errorf("machine: %w", err)
	}
	all, err := instances(s, m, vary)
	if err != nil {
		return nil, err
	}
	cfg := p.configure(s, m, all, tight)
	sim := &simulation{Scenario: s, policy: p, config: cfg, node: newNode(m, s.Hardware, cfg.Control.FastInterval)}
	sim.kubelet = &kubelet{node: sim.node, scenario: s, instances: all}
	sim.sampler = &sampler{node: sim.node}
	sim.report.init(sim, vary, tight)
	if p != Unmanaged {
		log := logrus.New()
		log.SetOutput(io.Discard)
		log.SetLevel(logrus.PanicLevel)
		options := agent.Options{
			Config: cfg, Machine: m, Host: host, Kernel: sim.node.Kernel, Log: log, Build: status.Build{Version: "simulated"},
			Node:  tune.Node{Features: features(), Memory: m.Memory(m.MemoryNodes()), Release: "6.12.0"},
			Clock: sim.time, Audit: &sim.report, Reclaim: sim.node.reclaimFrom,
		}
		if cfg.Control.Eviction.By == control.EvictCRI {
			options.Evictor = &sim.kubelet.evictor
		}
		sim.agent = agent.New(options)
		sim.kubelet.agent = sim.agent
		done := make(chan struct{})
		loop, stop := context.WithCancel(context.Background())
		go func() { defer close(done); sim.agent.Run(loop) }()
		defer func() { stop(); <-done }()
	}
	return sim.run(ctx)
}

// readMachine reads a machine in topology/synth's words.
func readMachine(text string) (*topology.Machine, fs.FS, error) {
	spec, err := synth.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	host := spec.FS()
	m, err := sysfs.Read(host)
	return m, host, err
}

// time is the scenario's, for the agent.
func (s *simulation) time() time.Time { return time.Time(s.Start).Add(time.Duration(s.now.Load())) }

func (s *simulation) run(ctx context.Context) (*Result, error) {
	s.kubelet.setUp()
	if s.agent != nil {
		if _, err := s.agent.Synchronize(nil, nil); err != nil {
			return nil, err
		}
	}
	step := s.config.Control.FastInterval
	for now := time.Duration(0); now < s.Duration; now += step {
		if now%time.Minute == 0 && ctx.Err() != nil {
			return nil, errors.Join(errors.New("the simulation was stopped"), ctx.Err())
		}
		s.now.Store(int64(now))
		changed := s.kubelet.sync(now)
		killed := s.node.advance(now, s.clock(now))
		s.now.Store(int64(now + step))
		s.report.note(s, now)
		for _, c := range killed {
			s.kubelet.kill(c, now)
		}
		if s.agent != nil {
			s.steer(now+step, step, changed || len(killed) > 0)
		}
	}
	return s.report.result(s), nil
}

// steer lets the agent see what was, and act.
func (s *simulation) steer(now, step time.Duration, changed bool) {
	at := s.time()
	s.sampler.note(at)
	if changed || now%slowly < step {
		s.sampler.follow(s.agent.Targets())
	}
	s.agent.Tick(s.sampler.look(at))
	if s.kubelet.evict(now) {
		s.sampler.follow(s.agent.Targets())
	}
	if now%s.config.DriftInterval < step {
		s.agent.Pass()
	}
}

// Record counts a decision; it is the agent's audit.
func (r *report) Record(_ time.Time, _ control.Mode, d *control.Decision) {
	r.decisions[d.Controller+" "+d.Action]++
}

// online reports whether the pod is one that batch work must not slow down.
func (in *instance) online() bool { return in.class != workload.BE }
