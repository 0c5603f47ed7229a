package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Reload is a configuration to take over.
type Reload struct {
	Config *config.Config
	Hash   string // of its text
	// Adapt changes what the agent works with besides, by the configuration that it
	// takes over; nil nothing. It is called in the loop, and must not block.
	Adapt func(*config.Config, *Options)
}

// Reconfigure takes over another configuration, as a whole or, where the error says
// why not, not at all. What runs keeps its place: a configuration for which a container
// would have to leave CPUs of its own while it runs is refused. Keys that take a restart
// keep their values, and are listed.
func (a *Agent) Reconfigure(r Reload) (restart []string, err error) {
	for deadline := a.Now().Add(memoryBusyTime); ; {
		busy := false
		err = a.events.Do("configuration", func() error {
			if busy = a.loop.Memory.IsBusy(); busy && a.Now().Before(deadline) {
				return nil
			}
			restart, err = a.reconfigure(r)
			a.noteReload(r.Hash, err)
			return err
		})
		if !busy || err != nil || !a.Now().Before(deadline) {
			return restart, err
		}
		time.Sleep(memoryBusyTime / 100)
	}
}

// memoryBusyTime is how long a configuration waits for a memory limit that is being
// written: what the loop has set can only be given back after it.
const memoryBusyTime = 10 * time.Second

// errMemoryBusy refuses a configuration in that time.
var errMemoryBusy = errors.New("memory is still being reclaimed from batch pods, so the file was not applied: save it again to retry")

// RefuseConfig notes that a file can't be used, and that the present configuration
// stays in force.
func (a *Agent) RefuseConfig(hash string, problem error) {
	a.Post("configuration", func() { a.noteReload(hash, problem) })
}

// noteReload notes how it went.
func (a *Agent) noteReload(hash string, problem error) {
	c := &a.options.Configured
	c.Reloads++
	c.Problem = ""
	if problem != nil {
		c.Refused++
		c.Problem = problem.Error()
		return
	}
	c.Hash, c.LoadedAt = hash, a.Now()
}

// reconfigure does it, in the loop.
func (a *Agent) reconfigure(r Reload) (restart []string, err error) {
	if a.loop.Memory.IsBusy() {
		return nil, errMemoryBusy
	}
	cfg, restart, err := a.takeable(r.Config)
	if err != nil {
		return nil, err
	}
	ledger, err := a.ledgerBy(cfg)
	if err != nil {
		return nil, err
	}
	before, held, done := a.Config, a.Ledger, false
	defer func() {
		if !done { // a panic: the next pass repairs by what was
			a.Config, a.Ledger = before, held
		}
	}()
	wrote, acted := a.Authority().Writes, a.Authority().Cpusets
	a.loop.GiveBack(cfg)
	if wrote && !a.AuthorityBy(cfg).Writes {
		a.leaveWatermarks()
		a.stopReclaiming()
	}
	a.Config, a.Ledger = cfg, ledger
	if r.Adapt != nil {
		r.Adapt(cfg, &a.options)
		a.loop.Options = a.loopOptions()
	}
	a.QoS.BEPageCachePercent = cfg.Memory.BEPageCachePercent
	a.QoS.BurstLoop = a.Authority().Acts(cfg.Control.Burst.Mode)
	for _, c := range a.Order {
		a.renewRequest(c)
		if a.Authority().Cpusets && !acted && c.Started && a.Reaches(c) { // preview has noted nothing
			a.cpusets.Observe(c, knobs.CPUs, knobs.Mems, knobs.Quota)
		}
	}
	a.cpusets.Claim(a.Order)
	a.loop.Renew(before)
	a.cpusets.TryApply()
	a.cpusets.LiftAll()
	a.completePins()
	a.groups.Reconfigure(before, wrote)
	a.leaveAll()
	a.podsettings.ReconcileAll(a.loop.Memory.Owns)
	a.retarget()
	if before.Memory.GlobalWatermark != cfg.Memory.GlobalWatermark || !wrote {
		a.raiseWatermarks()
	}
	a.record.Reconfigure()
	if a.passing != nil && before.DriftInterval != cfg.DriftInterval {
		a.passing.Reset(cfg.DriftInterval)
	}
	a.noteChange()
	if a.options.Failsafe != nil && a.Authority().Writes {
		a.loop.WriteFailsafePlan() // what it would do at once may be given back
	}
	done = true
	return restart, nil
}

// takeable is the configuration as this plugin can take it over, with the keys that
// take a restart, or says why it can't.
func (a *Agent) takeable(to *config.Config) (cfg *config.Config, restart []string, err error) {
	cfg, restart = to.Running(a.Config)
	if _, err := cfg.Validate(a.Ledger.Machine()); err != nil {
		return nil, nil, fmt.Errorf("it does not fit this machine: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if a.options.Sampler == nil && a.Clock == nil && cfg.LoopMode() != control.Off && a.Config.LoopMode() == control.Off {
		restart = append(restart, "control.mode")
		cfg.Control = a.Config.Control
	}
	return cfg, restart, nil
}

// ledgerBy is the ledger by another configuration.
func (a *Agent) ledgerBy(cfg *config.Config) (*placement.Ledger, error) {
	asked := make(map[string]placement.Asked, len(a.Order))
	for _, c := range a.Order {
		asked[c.ID], _ = a.RequestBy(cfg, c)
	}
	return a.Ledger.Reconfigured(cfg.Policy(), asked)
}

// renewRequest brings what is known of a container to the configuration in force.
func (a *Agent) renewRequest(c *node.Container) {
	_, c.Warnings = a.RequestBy(a.Config, c)
	a.record.Renew(c)
}

// leaveAll gives back what could not be given back yet, as in preview.
func (a *Agent) leaveAll() {
	a.Reconciler.Retry()
}
