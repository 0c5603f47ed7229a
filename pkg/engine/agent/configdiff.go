package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ConfigDiff lists what the given text of a configuration would change if it were applied now.
// It changes nothing.
func (a *Agent) ConfigDiff(text []byte) (d *status.ConfigDiff, err error) {
	cfg, err := config.Parse(text)
	if err != nil {
		return &status.ConfigDiff{Problem: err.Error()}, nil //nolint:nilerr // an invalid configuration is a valid result
	}
	err = a.events.Do("config diff", func() error {
		d = a.configDiff(cfg)
		return nil
	})
	return d, err
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
	d.Warnings, _ = taken.Validate(a.Ledger.Machine()) // its errors were reported above
	d.Pools = poolChanges(a.Ledger.Pools(), ledger.Pools())
	for _, h := range a.Ledger.Holders() {
		if change, differs := a.containerChange(taken, ledger, h); differs {
			d.Containers = append(d.Containers, change)
		}
	}
	return d
}

func poolChanges(from, to []placement.PoolCPUs) []status.PoolChange {
	var changes []status.PoolChange
	cpus := func(pools []placement.PoolCPUs, name string) (set cpuset.Set, there bool) {
		for _, p := range pools {
			if p.Name == name {
				return p.CPUs, true
			}
		}
		return set, false
	}
	for _, p := range to {
		if was, there := cpus(from, p.Name); !there || was != p.CPUs {
			changes = append(changes, status.PoolChange{Name: p.Name, From: was, To: p.CPUs})
		}
	}
	for _, p := range from {
		if _, there := cpus(to, p.Name); !there {
			changes = append(changes, status.PoolChange{Name: p.Name, From: p.CPUs})
		}
	}
	return changes
}

// containerChange compares the CPUs that a container has with those that it would have under
// another configuration.
func (a *Agent) containerChange(cfg *config.Config, ledger *placement.Ledger, from *placement.Holder) (change status.ContainerChange, differs bool) {
	to, ok := ledger.Holder(from.ID)
	c := a.Containers[from.ID]
	if !ok || c == nil {
		return change, false
	}
	change = status.ContainerChange{Ref: from.Ref, From: placeIn(a.Ledger, from), To: placeIn(ledger, to), Keys: settingChanges(from.Request.Keys, to.Request.Keys)}
	if to.Short != from.Short {
		change.Problem = to.Short
	}
	_, warnings := a.RequestBy(cfg, c)
	if text := strings.Join(slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(c.Warnings, w) }), "; "); text != "" && change.Problem == "" {
		change.Problem = text
	}
	return change, change.From != change.To || len(change.Keys) > 0 || change.Problem != ""
}

func placeIn(l *placement.Ledger, h *placement.Holder) status.Place {
	as, _ := l.Assignment(h.ID)
	return status.Place{Class: h.Request.Class, Pool: l.PoolOf(h), CPUs: as.CPUs, Mems: as.Mems}
}

func settingChanges(from, to []workload.RequestKey) []status.KeyChange {
	values := func(settings []workload.RequestKey) []config.Value {
		var all []config.Value
		for _, s := range settings {
			all = append(all, config.Value{Key: s.Key, Text: fmt.Sprintf("%s (%s)", s.Value, s.Source)})
		}
		return all
	}
	var changes []status.KeyChange
	for _, c := range config.Compare(values(from), values(to)) {
		changes = append(changes, status.KeyChange(c))
	}
	return changes
}
