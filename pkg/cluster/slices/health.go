package slices

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// Health says whether a device serves its claims as they asked: a device that the node has, or of which a
// claim has CPUs.
type Health struct {
	claim.Domain
	Problem string // "" for a device of which each claim has all CPUs that it asked for
}

// HealthOf lists the health of all devices, by the plugin's status.
func HealthOf(c *status.Claims) []Health {
	if c == nil {
		return nil
	}
	var all []Health
	at := map[claim.Domain]int{}
	add := func(device claim.Domain) *Health {
		i, known := at[device]
		if !known {
			i = len(all)
			at[device], all = i, append(all, Health{Domain: device})
		}
		return &all[i]
	}
	for i := range c.Devices {
		add(c.Devices[i].Device)
	}
	for i := range c.Reserved {
		r := &c.Reserved[i]
		if h := add(r.Device); r.Problem != "" {
			h.Problem = strings.TrimPrefix(h.Problem+"; "+r.Ref+" "+r.Problem, "; ")
		}
	}
	return all
}
