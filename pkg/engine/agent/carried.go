package agent

import (
	"errors"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// prepare notes which of a new or resized container's settings go through the
// runtime, and what it would have without them. The error tells what the container
// requires and this node doesn't have.
func (a *Agent) prepare(c *container) error {
	c.carried = Carried{}
	if c.uncontrolled {
		return nil
	}
	alone := qos.Pod{QoS: c.pod.QoS(), Containers: []qos.Container{a.tunable(c)}}
	settings := qos.For(&a.Node, &alone)
	request := &alone.Containers[0].Request
	c.notes = a.lackOfNode(request, settings.Notes[0])
	if unmet := qos.Unmet(request.Required, c.notes); len(unmet) > 0 && a.authority().Writes {
		return errors.New(strings.Join(unmet, "; "))
	}
	if a.Kernel == nil {
		return nil
	}
	f := &a.Node.Features
	v2 := f.Knobs[knobs.CPUs].V2 && f.Knobs[knobs.Quota].V2 // runc takes a hybrid machine for v1
	for _, s := range settings.Containers[0] {
		if s.Knob == knobs.Quota && !f.Knobs[knobs.Quota].V2 && a.boundsByQuota() {
			continue // by the time that the runtime writes it, it may be above that of the batch cgroup: v1 would refuse it
		}
		if _, kubelets := c.Unified[s.Knob.String()]; !kubelets { // its MemoryQoS stays
			c.carried.set(s, v2 && f.Knobs[s.Knob].V2)
		}
	}
	c.unadjusted = c.without()
	return nil
}

// atCreation is what a runtime can set of a container when it makes it, and never
// again.
func (a *Agent) atCreation(c *container) (score workload.Optional[int], rdtGroup string) {
	h, ok := a.ledger.Holder(c.ID)
	if !ok || c.uncontrolled {
		return score, ""
	}
	if a.authority().RDT && a.rdt.HasClass(h.Request.RDT.Class) {
		rdtGroup = resctrl.ClassGroup(h.Request.RDT.Class)
	}
	return h.Request.OOMScore, rdtGroup
}

// without is what the runtime would set were it not for Sluice, of the settings
// that it carries.
func (c *container) without() map[knobs.Knob]knobs.Value {
	r := c.Resources
	limit, memory := unlimited, knobs.Max
	if c.quota.Quota > 0 {
		limit = c.quota
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
		{knobs.Weight, c.carried.Shares != 0, max(minShares, knobs.Shares(r.Shares))},
		{knobs.Quota, c.carried.Quota != knobs.CPUQuota{}, limit},
		{knobs.MemoryMax, c.carried.Memory != 0, memory},
		{knobs.MemoryMin, c.carried.MemoryMin != 0, knobs.Bytes(0)},
		{knobs.MemoryLow, c.carried.MemoryLow != 0, knobs.Bytes(0)},
		{knobs.MemoryHigh, c.carried.MemoryHigh != 0, knobs.Max},
	} {
		if original.carried {
			values[original.knob] = original.value
		}
	}
	return values
}

// set takes a setting that a runtime can carry.
func (r *Carried) set(s qos.Setting, v2 bool) {
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

// minShares is the least of cpu.shares (kernel/sched/sched.h).
const minShares knobs.Shares = 2

// unadjusted is what a container would have of a setting that the runtime has
// carried for Sluice; ok is false where it has carried none.
func (a *Agent) unadjusted(at reconcile.Key) (original knobs.Value, ok bool) {
	if c := a.byPath[at.Path]; c != nil {
		original, ok = c.unadjusted[at.Knob]
	}
	return original, ok
}
