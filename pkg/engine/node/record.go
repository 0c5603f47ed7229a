package node

import (
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Set takes a setting that a runtime can carry.
func (r *Carried) Set(s qos.Setting, v2 bool) {
	switch v := s.Value.(type) {
	case knobs.Shares:
		if s.Knob == knobs.Weight {
			r.Shares = v
		}
	case knobs.CPUQuota:
		r.Quota = v
	case knobs.Bytes:
		switch {
		case s.Knob == knobs.MemoryMax:
			r.Memory = v
		case !v2: // "unified" fails the container there
		case s.Knob == knobs.MemoryMin:
			r.MemoryMin = v
		case s.Knob == knobs.MemoryLow:
			r.MemoryLow = v
		case s.Knob == knobs.MemoryHigh:
			r.MemoryHigh = v
		}
	}
}

// Without is what the runtime would set were it not for Sluice, of the settings
// that it carries.
func (c *Container) Without() map[knobs.Knob]knobs.Value {
	r := c.Resources
	limit, memory := Unlimited, knobs.Max
	if c.Quota.Quota > 0 {
		limit = c.Quota
	}
	if r.MemoryLimit > 0 {
		memory = knobs.Bytes(r.MemoryLimit)
	}
	values := map[knobs.Knob]knobs.Value{}
	for _, original := range []struct {
		knob    knobs.Knob
		carried bool
		value   knobs.Value
	}{
		{knobs.Weight, c.Carried.Shares != 0, max(MinShares, knobs.Shares(r.Shares))},
		{knobs.Quota, c.Carried.Quota != knobs.CPUQuota{}, limit},
		{knobs.MemoryMax, c.Carried.Memory != 0, memory},
		{knobs.MemoryMin, c.Carried.MemoryMin != 0, knobs.Bytes(0)},
		{knobs.MemoryLow, c.Carried.MemoryLow != 0, knobs.Bytes(0)},
		{knobs.MemoryHigh, c.Carried.MemoryHigh != 0, knobs.Max},
	} {
		if original.carried {
			values[original.knob] = original.value
		}
	}
	return values
}

// MinShares is the least of cpu.shares (kernel/sched/sched.h).
const MinShares knobs.Shares = 2
