package main

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/engine/sampler"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/status"
)

// addLoop gives the agent what its control loop needs, unless that is off.
func (s *service) addLoop(ctx context.Context, at folders, o *agent.Options, driver *cgroupfs.Driver, rdt *resctrl.Host) error {
	c := &o.Config.Control
	o.StateDir = at.state
	o.FailsafePlan = at.failsafePlan(agent.BootID(o.Host))
	if !acts(o.Config) {
		if err := at.forgetFailsafe(); err != nil {
			return err
		}
	}
	if o.Config.LoopMode() == control.Off {
		return nil
	}
	var cgroups sampler.Cgroups
	if driver != nil {
		cgroups = driver
	}
	var cache sampler.RDT
	if rdt != nil {
		cache = rdt
	}
	seen, err := sampler.Open(s.hostRoot, cgroups, cache, sampler.Intervals{Fast: c.FastInterval, All: c.Interval, Slow: sampler.DefaultIntervals().Slow})
	if err != nil {
		return err
	}
	s.running.Go(func() {
		<-ctx.Done()
		seen.Close() //nolint:errcheck // it was only read
	})
	wake := make(chan struct{}, 1)
	if err := seen.Watch(ctx, func(procfs.Trigger) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}); err != nil {
		o.Log.WithError(err).Info("Not all pressure wakes the loop at once; it looks each control.fastInterval")
	}
	trail := audit.Open(at.state, o.Log)
	s.running.Go(func() { trail.Run(ctx) })
	o.Sampler, o.Wake, o.Audit = looking{seen}, wake, trail
	s.newFailsafe = func(log logrus.FieldLogger) agent.Failsafe {
		k := newKeeper(at, s.hostRoot, log)
		s.running.Go(func() { k.run(ctx) })
		return k
	}
	if acts(o.Config) {
		o.Failsafe = s.newFailsafe(o.Log)
	}
	o.Evictor = s.evictor(o.Config, o.Log)
	return nil
}

// acts reports whether the loop may change anything.
func acts(c *config.Config) bool { return c.Mode == config.On && c.LoopMode() == control.On }

// evictor is who ends pods by a configuration. That it can't is told now, not when a pod
// has to go.
func (s *service) evictor(c *config.Config, log logrus.FieldLogger) agent.Evictor {
	if c.Control.Eviction.By != control.EvictCRI {
		return evict.Report{}
	}
	if err := evicts(c, s.hostRoot); err != nil {
		log.WithError(err).Warn("control.eviction is by: cri, which does not work here now; the socket is looked for again when a pod has to go")
	}
	return criEvictor{c.Control.Eviction.Socket, s.hostRoot}
}

// evicts tells why no pod can be evicted on a node by a configuration that says so.
func evicts(c *config.Config, root string) error {
	by := &c.Control.Eviction
	if by.By != control.EvictCRI || by.Mode == control.Off || c.LoopMode() == control.Off {
		return nil
	}
	_, err := evict.Socket(root, by.Socket)
	return err
}

// looking is a sampler whose failures the status tells.
type looking struct{ *sampler.Sampler }

// Failures are the kinds of failure that there were.
func (l looking) Failures() []status.Failure {
	seen := l.Sampler.Failures()
	all := make([]status.Failure, len(seen))
	for i, f := range seen {
		all[i] = status.Failure{What: f.What, Count: f.Count}
	}
	return all
}

// criEvictor stops pods through the runtime, whose socket it looks for each time: the
// runtime may start after the plugin.
type criEvictor struct{ socket, root string }

// Evict ends a pod.
func (e criEvictor) Evict(ctx context.Context, pod evict.Pod) error {
	socket, err := evict.Socket(e.root, e.socket)
	if err != nil {
		return err
	}
	return evict.CRI{Socket: socket}.Evict(ctx, pod)
}
