package agent

import (
	"errors"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// prepare notes which of a new or resized container's settings go through the
// runtime, and what it would have without them. The error tells what the container
// requires and this node doesn't have.
func (a *Agent) prepare(c *node.Container) error {
	c.Carried = knobs.Values{}
	if c.Uncontrolled {
		return nil
	}
	alone := qos.Pod{QoS: c.Pod.QoS(), Containers: []qos.Container{a.podsettings.Tunable(c)}}
	settings := qos.For(&a.QoS, &alone)
	request := &alone.Containers[0].Request
	c.Notes = a.groups.Lacks(request, settings.Notes[0])
	if unmet := qos.Unmet(request.Required, c.Notes); len(unmet) > 0 && a.Authority().Writes {
		return errors.New(strings.Join(unmet, "; "))
	}
	if a.Kernel == nil {
		return nil
	}
	f := &a.QoS.Features
	v2 := f.Knobs[knobs.CPUs].V2 && f.Knobs[knobs.Quota].V2 // runc takes a hybrid machine for v1
	for _, s := range settings.Containers[0] {
		if s.Knob == knobs.Quota && !f.Knobs[knobs.Quota].V2 && a.podsettings.BoundsByQuota() {
			continue // by the time that the runtime writes it, it may be above that of the batch cgroup: v1 would refuse it
		}
		if _, kubelets := c.Unified[s.Knob.String()]; !kubelets { // its MemoryQoS stays
			switch field := s.Knob.RuntimeField(); {
			case field == knobs.NoField:
			case field == knobs.UnifiedField && (!v2 || !f.Knobs[s.Knob].V2): // it fails the container there
			default:
				c.Carried[s.Knob] = s.Value
			}
		}
	}
	c.Unadjusted = c.Without()
	return nil
}

// atCreation is what a runtime can set of a container when it makes it, and never
// again.
func (a *Agent) atCreation(c *node.Container) (score workload.Optional[int], rdtGroup string) {
	h, ok := a.Ledger.Holder(c.ID)
	if !ok || c.Uncontrolled {
		return score, ""
	}
	return h.Request.OOMScore, a.groups.AtCreation(c)
}

// unadjusted is what a container would have of a setting that the runtime has
// carried for Sluice; ok is false where it has carried none.
func (a *Agent) unadjusted(at reconcile.Key) (original knobs.Value, ok bool) {
	if c := a.ByPath[at.Path]; c != nil {
		original, ok = c.Unadjusted[at.Knob]
	}
	return original, ok
}
