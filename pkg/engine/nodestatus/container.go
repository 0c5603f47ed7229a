package nodestatus

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// portrait is a container as a status shows it, but for what it does, and what that was
// made from. It is never changed, as readers share it, but made anew.
type portrait struct {
	*status.Container                   // nil before the first status
	holder            *placement.Holder // and of its fields those that change without a new version
	short             string
	ledger            node.LedgerState
	kernel            []status.Setting
	knobs             uint64 // version
	rdt               string
	foreign           *cpuset.Set
}

// portray brings a container's portrait up to date; knobs is the version of all knobs.
func (r *Reporter) portray(c *node.Container, h *placement.Holder, knobs uint64) *status.Container {
	p := r.portraits[c]
	if p == nil {
		p = &portrait{}
		r.portraits[c] = p
	}
	controlled := !c.Uncontrolled && !r.Authority().Foreign
	same := p.Container != nil && p.holder == h && p.State == h.State && p.short == h.Short && p.ledger == r.LedgerState() &&
		h.Request.MemoryNodes.Policy != workload.MemoryLocal && // depends on what others are guaranteed
		p.foreign == c.Foreign && p.Controlled == controlled && p.Drift == c.Drift && slices.Equal(p.Warnings, c.Warnings) &&
		slices.EqualFunc(p.Lacks, c.Notes, func(l status.Lack, n qos.Note) bool { return l == status.Lack(n) })
	if p.Container == nil || p.knobs != knobs || p.rdt != c.RDTGroup {
		p.knobs, p.rdt = knobs, c.RDTGroup
		if r.kernels = r.appendKernel(r.kernels[:0], c); !slices.Equal(p.kernel, r.kernels) {
			p.kernel, same = slices.Clone(r.kernels), false
		}
	}
	if same {
		return p.Container
	}
	p.holder, p.short, p.ledger, p.foreign = h, h.Short, r.LedgerState(), c.Foreign
	as, _ := r.Ledger.Assignment(h.ID)
	cpu, memory := h.Request.Grant()
	if c.Foreign != nil {
		as.CPUs, as.Why = *c.Foreign, "the kubelet's static CPU manager sets its CPUs: these are the kernel's"
	}
	p.Container = &status.Container{
		ID:                   h.ID,
		PodUID:               h.Pod,
		Ref:                  h.Ref,
		Class:                h.Request.Class,
		Pool:                 r.Ledger.PoolOf(h),
		State:                h.State,
		Controlled:           controlled,
		Requested:            cpu,
		RequestedMemoryBytes: memory,
		RequestedBy:          h.Request.From,
		CPUs:                 as.CPUs,
		Mems:                 as.Mems,
		Unlimited:            as.Unlimited,
		Why:                  as.Why,
		Keys:                 h.Request.Keys, // made once, never changed
		Warnings:             slices.Clone(c.Warnings),
		Cgroup:               c.Path,
		Drift:                c.Drift,
		Settings:             p.kernel,
		Lacks:                lacks(c),
		PlacedAt:             h.Since,
	}
	return p.Container
}

func lacks(c *node.Container) []status.Lack {
	var all []status.Lack
	for _, n := range c.Notes {
		all = append(all, status.Lack(n))
	}
	return all
}

// appendKernel lists what the container and its pod have been given in the kernel.
func (r *Reporter) appendKernel(all []status.Setting, c *node.Container) []status.Setting {
	all = r.Reconciler.Status(all, status.ContainerLevel, c.Path)
	if c.RDTGroup != "" {
		all = append(all, status.Setting{Level: "container", Knob: "resctrl group", Value: c.RDTGroup, Why: rdtgroup.Key})
	}
	if c.PodPath != "" {
		all = r.Reconciler.Status(all, status.PodLevel, c.PodPath)
	}
	return all
}
