package config

import (
	"cmp"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// RestartKeys returns the keys that a running plugin can't change, with the reason.
func RestartKeys() []RestartKey {
	return []RestartKey{
		{"failurePolicy", "passed to the runtime once, when the plugin registers", func(to, from *Config) { to.FailurePolicy = from.FailurePolicy }},
		{"vmRuntimes", "running containers were placed with the old value", func(to, from *Config) { to.VMRuntimes = from.VMRuntimes }},
		{"stateDir", "the audit trail and the batch switch are open there", func(to, from *Config) { to.StateDir = from.StateDir }},
		{"runtimeDir", "the journal of original values is open there", func(to, from *Config) { to.RuntimeDir = from.RuntimeDir }},
		{"statusSocket", "changing it would drop connected clients", func(to, from *Config) { to.StatusSocket = from.StatusSocket }},
		{"metrics.listen", "opened once at start", func(to, from *Config) { to.Metrics.Listen = from.Metrics.Listen }},
		{"metrics.containers", "a series that ends would look like a container that ended", func(to, from *Config) { to.Metrics.Containers = from.Metrics.Containers }},
		{"web", "changing it would drop connected browsers", func(to, from *Config) { to.Web = from.Web }},
		{"log.format", "one log file keeps one format", func(to, from *Config) { to.Log.Format = from.Log.Format }},
		{"log.file", "opened once at start", func(to, from *Config) { to.Log.File = from.Log.File }},
		{"control.fastInterval", "past measurements depend on it", func(to, from *Config) { to.Control.FastInterval = from.Control.FastInterval }},
		{"control.interval", "past measurements depend on it", func(to, from *Config) { to.Control.Interval = from.Control.Interval }},
	}
}

// RestartKey is a key that a running plugin can't change.
type RestartKey struct {
	Key, Why string
	keep     func(to, from *Config)
}

// Running returns the configuration that a plugin running with another one can apply without a
// restart: a copy with the other's values of the keys that need a restart. restart lists those
// keys that differ.
func (c *Config) Running(with *Config) (takes *Config, restart []string) {
	kept := *c
	for _, k := range RestartKeys() {
		before := Values(&kept)
		k.keep(&kept, with)
		if len(Compare(before, Values(&kept))) > 0 {
			restart = append(restart, k.Key)
		}
	}
	return &kept, restart
}

// LoopMode returns On if a controller may act, Preview if one only decides, and Off otherwise.
func (c *Config) LoopMode() control.Mode {
	loop := &c.Control
	mode := control.Off
	see := func(own control.Mode) {
		switch m := cmp.Or(own, loop.Mode); {
		case m == control.On:
			mode = control.On
		case m == control.Preview && mode == control.Off:
			mode = control.Preview
		}
	}
	for _, own := range []control.Mode{
		"", loop.Pools.Mode, loop.Batch.Mode, loop.Burst.Mode, loop.Demotion.Mode, loop.Memory.Mode, loop.Cache.Mode, loop.Eviction.Mode, loop.Interference.Mode, loop.Culprit.Mode, loop.Noisy.Mode, loop.SLO.Mode, loop.Egress.Mode,
	} {
		see(own)
	}
	for i := range loop.Rules {
		see(loop.Rules[i].Mode)
	}
	return mode
}

// LoopActs reports whether the control loop may change anything.
func (c *Config) LoopActs() bool { return c.Mode == On && c.LoopMode() == control.On }
