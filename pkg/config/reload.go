package config

import (
	"cmp"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// RestartKeys are the keys that a running plugin can't change, with the reason.
func RestartKeys() []RestartKey {
	return []RestartKey{
		{"failurePolicy", "the runtime is told when the plugin registers", func(to, from *Config) { to.FailurePolicy = from.FailurePolicy }},
		{"vmRuntimes", "containers that run were set by it", func(to, from *Config) { to.VMRuntimes = from.VMRuntimes }},
		{"stateDir", "the audit trail and the batch switch are there", func(to, from *Config) { to.StateDir = from.StateDir }},
		{"runtimeDir", "the original values are there", func(to, from *Config) { to.RuntimeDir = from.RuntimeDir }},
		{"statusSocket", "clients are connected to it", func(to, from *Config) { to.StatusSocket = from.StatusSocket }},
		{"metrics.listen", "it is open", func(to, from *Config) { to.Metrics.Listen = from.Metrics.Listen }},
		{"metrics.containers", "a series that ends looks like a container that ended", func(to, from *Config) { to.Metrics.Containers = from.Metrics.Containers }},
		{"web", "viewers are connected to it", func(to, from *Config) { to.Web = from.Web }},
		{"log.format", "a log keeps its format", func(to, from *Config) { to.Log.Format = from.Log.Format }},
		{"log.file", "it is open", func(to, from *Config) { to.Log.File = from.Log.File }},
		{"control.fastInterval", "all that was measured counts by it", func(to, from *Config) { to.Control.FastInterval = from.Control.FastInterval }},
		{"control.interval", "all that was measured counts by it", func(to, from *Config) { to.Control.Interval = from.Control.Interval }},
	}
}

// RestartKey is a key that a running plugin can't change.
type RestartKey struct {
	Key, Why string
	keep     func(to, from *Config)
}

// Running is the configuration as a plugin that runs with another can take it over: a
// copy that has the other's values of the keys that take a restart, which are listed.
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

// LoopMode is whether the loop does anything: On where a controller may act, Preview
// where one decides, else Off.
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
		"", loop.Pools.Mode, loop.Batch.Mode, loop.Burst.Mode, loop.Demotion.Mode, loop.Memory.Mode, loop.Cache.Mode, loop.Eviction.Mode, loop.Interference.Mode,
	} {
		see(own)
	}
	for i := range loop.Rules {
		see(loop.Rules[i].Mode)
	}
	return mode
}
