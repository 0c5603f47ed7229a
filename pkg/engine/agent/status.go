package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/nodestatus"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// shown is the last snapshot.
type shown struct {
	draft *nodestatus.Draft
	at    time.Time
	moves uint64
}

// sharedFor is how long readers share one snapshot, if nothing happens meanwhile: what
// a caller has seen happen is in what it reads then.
const sharedFor = 100 * time.Millisecond

// sources is what a status tells besides what the node itself knows.
func (a *Agent) sources() nodestatus.Sources {
	return nodestatus.Sources{
		Build: a.options.Build, Started: a.started, Features: a.options.features(), Config: &a.options.Configured,
		Handlers: a.Latencies.Status, Steering: a.steering.Status, Loop: a.loop,
	}
}

// Status is a copy of the state. It must not be changed: other readers may have the
// same one.
func (a *Agent) Status() (*status.Status, error) {
	var d *nodestatus.Draft
	err := a.events.Query("status", func() error {
		now := a.Now()
		if age := now.Sub(a.shown.at); a.shown.draft == nil || a.shown.moves != a.events.Moves() || age < 0 || age >= sharedFor {
			a.shown = shown{a.reporter.Draft(), now, a.events.Moves()}
		}
		d = a.shown.draft
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d.Status(), nil
}

// Machine is the machine as the agent works with it.
func (a *Agent) Machine() (m *topology.Machine, err error) {
	err = a.events.Query("topology", func() error {
		m = a.Ledger.Machine()
		return nil
	})
	return m, err
}

// WhatIf answers what a pod's containers would get now, one after another, and
// changes nothing.
func (a *Agent) WhatIf(pod *workload.Pod, specs []workload.Container) (answers []status.Answer, err error) {
	err = a.events.Query("plan", func() error {
		ask := func(spec *workload.Container) (workload.Request, []string, error) { return a.ask(pod, spec) }
		answers = status.WhatIf(a.Ledger.Clone(), pod, specs, ask, a.Now())
		return nil
	})
	return answers, err
}

// ask reads what a container that does not exist asks for.
func (a *Agent) ask(pod *workload.Pod, spec *workload.Container) (workload.Request, []string, error) {
	c := &node.Container{Container: *spec, Pod: pod, Ref: workload.Ref(pod, spec), Uncontrolled: a.Config.RunsInVM(pod)}
	r, err := a.Request(a.Config, c)
	if err == nil {
		err = a.MayPin(c, r)
	}
	return r, c.Warnings, err
}
