package nodestatus

import (
	"fmt"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// PoolChanges lists the pools whose CPUs differ: first those of the later state, then those that
// it no longer has.
func PoolChanges(from, to []placement.PoolCPUs) []status.PoolChange {
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

// KeyChanges lists the keys of a container's request whose values or sources differ.
func KeyChanges(from, to []workload.RequestKey) []status.KeyChange {
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

// PlaceIn is where a container runs by a ledger.
func PlaceIn(l *placement.Ledger, h *placement.Holder) status.Place {
	as, _ := l.Assignment(h.ID)
	return status.Place{Class: h.Request.Class, Pool: l.PoolOf(h), CPUs: as.CPUs, Mems: as.Mems}
}
