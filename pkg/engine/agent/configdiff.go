package agent

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/nodestatus"
	"github.com/sluice-dev/sluice/pkg/status"
)

// ConfigDiff lists what a configuration would change if it were applied now. It changes nothing.
func (a *Agent) ConfigDiff(cfg *config.Config) (d *status.ConfigDiff, err error) {
	err = a.events.Do("config diff", func() error {
		d = a.configDiff(cfg)
		return nil
	})
	return d, err
}

// Accepts returns the error for which a configuration would be refused now, and the keys that
// would keep their present values until a restart.
func (a *Agent) Accepts(c *config.Config) (restart []string, err error) {
	err = a.events.Do("configuration", func() error {
		taken, keys, err := a.takeable(c)
		if restart = keys; err == nil {
			_, err = a.ledgerBy(taken)
		}
		return err
	})
	return restart, err
}

func (a *Agent) configDiff(to *config.Config) *status.ConfigDiff {
	taken, restart, err := a.takeable(to)
	if err != nil {
		return &status.ConfigDiff{Problem: err.Error()}
	}
	ledger, err := a.ledgerBy(taken)
	if err != nil {
		return &status.ConfigDiff{Problem: err.Error()}
	}
	d := &status.ConfigDiff{Restart: restart}
	for _, c := range config.Compare(config.Values(a.Config), config.Values(to)) {
		d.Keys = append(d.Keys, status.KeyChange(c))
	}
	d.Warnings, _ = taken.Fit(a.Ledger.Machine()) // its errors were reported above
	d.Pools = nodestatus.PoolChanges(a.Ledger.Pools(), ledger.Pools())
	for _, h := range a.Ledger.Holders() {
		if change, differs := a.containerChange(taken, ledger, h); differs {
			d.Containers = append(d.Containers, change)
		}
	}
	return d
}

// containerChange compares the CPUs that a container has with those that it would have under
// another configuration.
func (a *Agent) containerChange(cfg *config.Config, ledger *placement.Ledger, from *placement.Holder) (change status.ContainerChange, differs bool) {
	to, ok := ledger.Holder(from.ID)
	c := a.Containers[from.ID]
	if !ok || c == nil {
		return change, false
	}
	change = status.ContainerChange{Ref: from.Ref, From: nodestatus.PlaceIn(a.Ledger, from), To: nodestatus.PlaceIn(ledger, to), Keys: nodestatus.KeyChanges(from.Request.Keys, to.Request.Keys)}
	if to.Short != from.Short {
		change.Problem = to.Short
	}
	_, warnings := a.RequestBy(cfg, c)
	if text := strings.Join(slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(c.Warnings, w) }), "; "); text != "" && change.Problem == "" {
		change.Problem = text
	}
	return change, change.From != change.To || len(change.Keys) > 0 || change.Problem != ""
}
