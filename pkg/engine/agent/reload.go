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
	"github.com/sluice-dev/sluice/pkg/status"
)

// Reload is a configuration to apply.
type Reload struct {
	Config *config.Config
	Hash   string // of the configuration's text; "" if that has not changed, but only Parts
	Parts  []status.ConfigPart
	// Adapt changes other options by the configuration that is applied; it may be nil. It runs
	// in the event loop's goroutine and must not block.
	Adapt func(*config.Config, *Options)
}

// Reconfigure applies another configuration as a whole, or fails and applies none of it.
// Running containers keep their places: it refuses a configuration under which a running
// container would have to leave CPUs of its own. Keys that can't change without a restart keep
// their values; restart lists them.
func (a *Agent) Reconfigure(r Reload) (restart []string, err error) {
	for deadline := a.Now().Add(memoryBusyTime); ; {
		busy := false
		err = a.events.Do("configuration", func() error {
			if busy = a.loop.Memory.IsBusy(); busy && a.Now().Before(deadline) {
				return nil
			}
			restart, err = a.reconfigure(r)
			if r.Hash != "" { // the status keeps the file's problem while parts change
				a.noteReload(r.Hash, err)
			}
			return err
		})
		if !busy || err != nil || !a.Now().Before(deadline) {
			return restart, err
		}
		time.Sleep(memoryBusyTime / 100)
	}
}

// memoryBusyTime is how long a reload waits for a memory limit that is being written. The
// loop's limits can only be given back once that write has ended.
const memoryBusyTime = 10 * time.Second

// ErrMemoryBusy says that such a write has not ended in time. The caller tries again later.
var ErrMemoryBusy = errors.New("memory is still being reclaimed from batch pods: Sluice tries again by itself until that has ended")

// RefuseConfig records, for the status, that a configuration file is invalid and not in force.
func (a *Agent) RefuseConfig(hash string, problem error) {
	a.Post("configuration", func() { a.noteReload(hash, problem) })
}

// noteReload records the result of a reload for the status.
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

// reconfigure applies a configuration in the event loop's goroutine.
func (a *Agent) reconfigure(r Reload) (restart []string, err error) {
	if a.loop.Memory.IsBusy() {
		return nil, ErrMemoryBusy
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
		if !done { // it panicked: the next pass repairs the kernel by the old configuration
			a.Config, a.Ledger = before, held
		}
	}()
	wrote, acted := a.Authority().Writes, a.Authority().Cpusets
	a.loop.GiveBack(cfg)
	if wrote && !a.AuthorityBy(cfg).Writes {
		a.leaveWatermarks()
		a.leaveNewidle()
		a.leaveDisks()
		a.groups.LeavePriorities()
		a.stopReclaiming()
	}
	a.Config, a.Ledger = cfg, ledger
	if r.Adapt != nil {
		r.Adapt(cfg, &a.options)
		a.loop.Options = a.loopOptions()
		a.reporter.SetFeatures(a.sources().Features)
	}
	a.QoS.BEPageCachePercent = cfg.Memory.BEPageCachePercent
	a.QoS.CPURatio = int(cfg.CPUNormalization.Ratio)
	a.QoS.BurstLoop = a.Authority().Acts(cfg.Control.Burst.Mode)
	for _, c := range a.Order {
		a.renewRequest(c)
		if a.Authority().Cpusets && !acted && c.Started && a.Reaches(c) { // in preview, containers carry no record of a placement
			a.cpusets.Observe(c, knobs.CPUs, knobs.Mems, knobs.Quota)
		}
	}
	a.cpusets.Claim(a.Order)
	a.loop.Renew(before)
	if a.Synced { // before that, no container is known, and all that they have would be given back
		a.cpusets.TryApply()
	}
	a.completePins()
	a.groups.Reconfigure(before, wrote)
	a.Reconciler.Retry() // what could not be given back before, such as in preview
	if a.Synced {        // before that, no container is known, and all that they have would be given back
		a.podsettings.ReconcileAll(a.loop.Memory.Owns)
		a.cpusets.LiftAll() // after the settings of pods that shared CPUs before
	}
	a.retarget()
	if before.Memory.GlobalWatermark != cfg.Memory.GlobalWatermark || !wrote {
		a.raiseWatermarks()
	}
	if before.NewidleBalance != cfg.NewidleBalance || !wrote {
		a.setNewidle()
	}
	a.setDisks()
	a.record.Reconfigure()
	if a.passing != nil && before.DriftInterval != cfg.DriftInterval {
		a.passing.Reset(cfg.DriftInterval)
	}
	a.noteChange()
	if a.options.Failsafe != nil && a.Authority().Writes && a.Synced {
		a.loop.WriteFailsafePlan() // the new configuration may take back what the old plan gives
	}
	a.options.Configured.Parts, done = r.Parts, true
	return restart, nil
}

// takeable returns the configuration as this process can apply it, with the keys that need a
// restart, which it lists, at their present values. It fails if that can't be applied.
func (a *Agent) takeable(to *config.Config) (cfg *config.Config, restart []string, err error) {
	cfg, restart = to.Running(a.Config)
	if _, err := cfg.Fit(a.Ledger.Machine()); err != nil {
		return nil, nil, fmt.Errorf("it does not fit this machine: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if a.options.Sampler == nil && a.Clock == nil && cfg.LoopMode() != control.Off && a.Config.LoopMode() == control.Off {
		restart = append(restart, "control.mode")
		cfg.Control = a.Config.Control
	}
	return cfg, restart, nil
}

// ledgerBy makes a ledger with the present containers under another configuration.
func (a *Agent) ledgerBy(cfg *config.Config) (*placement.Ledger, error) {
	revised := make(map[string]placement.RevisedRequest, len(a.Order))
	for _, c := range a.Order {
		revised[c.ID], _ = a.RequestBy(cfg, c)
	}
	return a.Ledger.Reconfigured(cfg.Policy(), revised)
}

// renewRequest reads a container's request again, by the configuration in force.
func (a *Agent) renewRequest(c *node.Container) {
	_, c.Warnings = a.RequestBy(a.Config, c)
	a.record.Renew(c)
}
