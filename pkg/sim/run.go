package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/memorylimit"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// simulation is one run of a scenario under a policy.
type simulation struct {
	*Scenario
	config  *config.Config
	node    *simNode
	kubelet *kubelet
	sampler *sampler
	options agent.Options
	rival   rival        // nil with a policy of Sluice's
	agent   *agent.Agent // nil with Unmanaged
	leave   func()       // ends the agent
	now     atomic.Int64 // nanoseconds since the scenario's start; the agent's clock reads it
	report  report
}

// trial is one way to run a scenario.
type trial struct {
	policy Policy
	vary   float64 // factor of the load of the pods that vary
	tight  float64 // factor of how full the policy lets the node be; see configure
	budget float64 // maximum fraction of the services' time above their SLO; a run that exceeds it ends without a result

	config *config.Config // in place of what the policy makes of the scenario's; nil for that
}

// always is a budget that no run exceeds.
const always = 1

// Run runs a scenario under a policy, with the load of the pods that s.Vary names
// multiplied by vary.
func Run(ctx context.Context, s *Scenario, p Policy, vary float64) (*Result, error) {
	return run(ctx, s, trial{policy: p, vary: vary, tight: 1, budget: always})
}

// RunConfigured runs a scenario under a configuration in place of its own.
func RunConfigured(ctx context.Context, s *Scenario, c *config.Config) (*Result, error) {
	with := *s
	with.Config = c
	return run(ctx, &with, trial{vary: 1, tight: 1, budget: always, config: c})
}

func run(ctx context.Context, s *Scenario, t trial) (*Result, error) {
	sim, err := prepare(s, t)
	if err != nil {
		return nil, err
	}
	sim.kubelet.setUp()
	if t.policy != Unmanaged {
		err := sim.manage()
		defer sim.leave()
		if err != nil {
			return nil, err
		}
	}
	return sim.run(ctx)
}

// prepare makes the node, on which nothing runs yet.
func prepare(s *Scenario, t trial) (*simulation, error) {
	m, host, err := s.read()
	if err != nil {
		return nil, fmt.Errorf("machine: %w", err)
	}
	all, err := instances(s, m, t.vary)
	if err != nil {
		return nil, err
	}
	cfg := t.config
	if cfg == nil {
		if cfg, err = t.policy.configure(s, m, all, t.tight); err != nil {
			return nil, err
		}
	}
	sim := &simulation{Scenario: s, config: cfg, node: newNode(m, s.Hardware, cfg.Control.FastInterval)}
	sim.kubelet = &kubelet{node: sim.node, scenario: s, instances: all}
	sim.sampler = &sampler{node: sim.node, rdt: cfg.RDT.Monitor}
	sim.report.init(sim, t)
	sim.options = agent.Options{
		Config: cfg, Machine: m, Host: host, Kernel: sim.node.Kernel, Log: silent(), Build: status.Build{Version: "simulated"},
		Node:  qos.Node{Features: features(), Memory: m.Memory(m.MemoryNodes()), Release: "6.12.0"},
		Clock: sim.time, Audit: &sim.report, Memory: memorylimit.Host{Reclaim: sim.node.reclaimFrom},
	}
	sim.rival = t.policy.rival(sim)
	if t.policy == Forecast {
		var pools []string
		for _, p := range cfg.PoolLaw() {
			pools = append(pools, p.Name)
		}
		sim.options.LearnedUsage = history(s, m, pools, all)
	}
	if cfg.Control.Eviction.By != control.EvictReport {
		sim.options.Evictor = &sim.kubelet.evictor
	}
	return sim, nil
}

// manage starts an agent and reports the running containers to it.
func (s *simulation) manage() error {
	s.agent = agent.New(s.options)
	s.kubelet.agent = s.agent
	done := make(chan struct{})
	loop, stop := context.WithCancel(context.Background())
	go func() { defer close(done); s.agent.Run(loop) }()
	s.leave = func() { stop(); <-done }
	pods, containers := s.kubelet.runs()
	_, err := s.agent.Synchronize(context.Background(), pods, containers)
	return err
}

// readMachine parses a machine in the notation of topology/synth.
func readMachine(text string) (*topology.Machine, fs.FS, error) {
	spec, err := synth.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	host := spec.FS()
	m, err := sysfs.Read(host)
	return m, host, err
}

// time returns the scenario's time, for the agent.
func (s *simulation) time() time.Time { return time.Time(s.Start).Add(time.Duration(s.now.Load())) }

func (s *simulation) run(ctx context.Context) (*Result, error) {
	step := s.config.Control.FastInterval
	for now := time.Duration(0); now < s.Duration; now += step {
		if now%time.Minute == 0 && ctx.Err() != nil {
			return nil, errors.Join(errors.New("the simulation was stopped"), ctx.Err())
		}
		changed := s.advance(now)
		if s.report.over() {
			return nil, errLate
		}
		if s.agent != nil {
			s.steer(now+step, changed)
		}
		if s.rival != nil {
			if err := s.rival.step(s, now+step); err != nil {
				return nil, err
			}
		}
	}
	return s.report.result(s), nil
}

// errLate ends a run that exceeds its budget.
var errLate = errors.New("services are late for more than the budget")

// advance runs one step on the node, and reports whether the running containers have changed.
func (s *simulation) advance(now time.Duration) (changed bool) {
	s.now.Store(int64(now))
	changed = s.kubelet.sync(now)
	killed := s.node.advance(now, s.clock(now))
	s.now.Store(int64(now + s.node.step))
	s.report.note(s, now)
	for _, c := range killed {
		s.kubelet.kill(c, now)
	}
	return changed || len(killed) > 0
}

// steer passes the measurements to the agent and lets it act.
func (s *simulation) steer(now time.Duration, changed bool) {
	at, step := s.time(), s.node.step
	s.sampler.note(at)
	if changed || now%usageEvery < step {
		s.sampler.follow(s.agent.Targets())
	}
	s.agent.Tick(s.sampler.measure(at))
	if s.kubelet.evict(now) {
		s.sampler.follow(s.agent.Targets())
	}
	if now%s.config.DriftInterval < step {
		s.agent.Pass()
	}
}

// online reports whether batch work must not slow the pod down.
func (in *instance) online() bool { return in.class != workload.BE }
