package daemon

import (
	"context"
	"io"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/engine/controlloop"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/sampler"
	"github.com/sluice-dev/sluice/pkg/kernel/perf"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
	"github.com/sluice-dev/sluice/topology"
)

// addLoop sets the agent's options for the control loop, unless that is off.
func (s *service) addLoop(loop, writing context.Context, at statedir.Dirs, o *agent.Options) error {
	c := &o.Config.Control
	o.StateDir = at.State
	o.FailsafePlan = at.FailsafePlan(procfs.BootID(o.Host))
	if !o.Config.LoopActs() {
		if err := at.ForgetFailsafe(); err != nil {
			return err
		}
	}
	if o.Config.LoopMode() == control.Off && !s.loops { // a part may switch the loop off until it is removed
		return nil
	}
	var cgroups sampler.Cgroups
	if s.host.Cgroups != nil {
		cgroups = s.host.Cgroups
	}
	var cache sampler.RDT
	if s.host.RDT != nil {
		cache = s.host.RDT
	}
	seen, err := sampler.Open(s.HostRoot, cgroups, cache, sampler.Intervals{Fast: c.FastInterval, All: c.Interval, Slow: sampler.DefaultIntervals().Slow})
	if err != nil {
		return err
	}
	s.sampler = seen
	seen.Events = perf.New(s.HostRoot, perf.Instructions())
	s.probeCycles(o.Config, o, o.Log)
	wake := make(chan struct{}, 1)
	if err := seen.Watch(loop, func(procfs.Trigger) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}); err != nil {
		o.Log.WithError(err).Info("Not all pressure wakes the loop at once; it looks each control.fastInterval")
	}
	trail := audit.Open(at.State, o.Log)
	s.writing.running.Go(func() { trail.Run(writing) })
	o.Sampler, o.Wake, o.Audit = reportingSampler{seen}, wake, trail
	s.newFailsafe = func(log logrus.FieldLogger) controlloop.Failsafe {
		start := func() (io.WriteCloser, error) {
			return failsafe.StartWatcher("failsafe", "--state-dir", at.State, "--runtime-dir", at.Runtime, "--host-root", s.HostRoot)
		}
		k := failsafe.NewKeeper(at.Runtime, procfs.BootID(o.Host), start, log)
		s.writing.running.Go(func() { k.Run(writing) })
		return k
	}
	if o.Config.LoopActs() {
		o.Failsafe = s.newFailsafe(o.Log)
	}
	s.addEvictors(o.Config, o, o.Log)
	return nil
}

// probeCycles finds out whether cycles per instruction can be counted, if a configuration asks for them.
func (s *service) probeCycles(c *config.Config, o *agent.Options, log logrus.FieldLogger) {
	o.Cycles, o.NoCycles = false, "control.culprit.cpi or its mode is off"
	if !c.Control.CountsCycles() {
		return
	}
	err := perf.New(s.HostRoot, perf.Instructions()).Probe()
	if o.Cycles, o.NoCycles = err == nil, ""; err != nil {
		o.NoCycles = err.Error()
		log.WithError(err).Warn("No pod's cycles per instruction are counted: what control.culprit.cpi would find stays unknown")
	}
}

// reportingSampler is a sampler that reports its failures as the status does.
type reportingSampler struct{ *sampler.Sampler }

// Failures returns the number of failures of each kind.
func (l reportingSampler) Failures() []status.Failure {
	seen := l.Sampler.Failures()
	all := make([]status.Failure, len(seen))
	for i, f := range seen {
		all[i] = status.Failure{What: f.What, Count: int(f.Count)}
	}
	return all
}

// Check returns warnings about a configuration, and the error that makes it unusable. It checks
// the configuration by itself, on a machine (nil for none), and on the node below hostRoot (""
// for none).
func Check(c *config.Config, machine *topology.Machine, hostRoot string) (warnings []string, err error) {
	warnings = c.Warnings()
	if machine != nil {
		var more []string
		more, err = c.Fit(machine)
		warnings = append(warnings, more...)
	}
	if hostRoot != "" {
		if err := Evicts(c, hostRoot); err != nil {
			warnings = append(warnings, unevictable(c, err))
		}
	}
	return warnings, err
}
