package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/nodestatus"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// statusCache is the last snapshot of the status, which readers share for a short time.
type statusCache struct {
	draft *nodestatus.Draft
	at    time.Time
	moves uint64
}

// statusCacheTime is how long readers share one snapshot. Every event invalidates it, so that a
// reader always finds what it has seen happen.
const statusCacheTime = 100 * time.Millisecond

// sources lists the parts of the status that the node's state does not contain.
func (a *Agent) sources() nodestatus.Sources {
	o := &a.options
	probed := nodestatus.Probed{Kernel: &o.Node.Features, Cgroups: o.Kernel != nil, RDT: o.RDT != nil, NoRDT: o.NoRDT, Cycles: o.Cycles, NoCycles: o.NoCycles, Watermarks: o.Watermarks != nil, IOCost: o.Disks != nil, NoIOCost: o.NoDisks}
	probed.Newidle, probed.NoNewidle = a.newidle.Supported()
	if o.Cores != nil {
		probed.Cores = o.Cores.Supported
	}
	devices := o.ClaimDevices
	if o.CDIDir == "" {
		devices = 0
	}
	return nodestatus.Sources{
		Build: a.options.Build, Started: a.started, Features: probed.Features(), Config: &a.options.Configured,
		Handlers: a.Latencies.Status, Steering: a.steering.Status, Loop: a.loop, ClaimDevices: devices,
	}
}

// Status is a snapshot of the agent's state. The caller must not change it: other readers may
// share it.
func (a *Agent) Status() (*status.Status, error) {
	var d *nodestatus.Draft
	err := a.events.Query("status", func() error {
		now := a.Now()
		if age := now.Sub(a.shown.at); a.shown.draft == nil || a.shown.moves != a.events.Moves() || age < 0 || age >= statusCacheTime {
			a.shown = statusCache{a.reporter.Draft(), now, a.events.Moves()}
		}
		d = a.shown.draft
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d.Status(), nil
}

// Machine is the machine's topology that the agent places containers on.
func (a *Agent) Machine() (m *topology.Machine, err error) {
	err = a.events.Query("topology", func() error {
		m = a.Ledger.Machine()
		return nil
	})
	return m, err
}

// WhatIf reports what the containers of a pod would get if they were created now, one after
// another. It changes nothing.
func (a *Agent) WhatIf(pod *workload.Pod, specs []workload.Container) (answers []status.Answer, err error) {
	err = a.events.Query("plan", func() error {
		read := func(spec *workload.Container) (workload.Request, []string, error) { return a.readRequest(pod, spec) }
		answers = status.WhatIf(a.Ledger.Clone(), pod, specs, read, a.Now())
		return nil
	})
	return answers, err
}

// readRequest reads the request of a container that does not exist.
func (a *Agent) readRequest(pod *workload.Pod, spec *workload.Container) (workload.Request, []string, error) {
	c := &node.Container{Container: *spec, Pod: pod, Ref: workload.Ref(pod, spec), Uncontrolled: a.Config.RunsInVM(pod)}
	r, err := a.Request(a.Config, c)
	if err == nil {
		err = a.MayPin(c, r)
	}
	return r, c.Warnings, err
}
