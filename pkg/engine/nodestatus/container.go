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

// containerStatus is the cached status of a container without its resource usage, and the
// versions that it was made from. Readers share it, so it is replaced and never changed.
type containerStatus struct {
	*status.Container                   // nil before the first status
	holder            *placement.Holder // with the fields of the holder that may change without a new version
	short             string
	ledger            node.LedgerState
	kernel            []status.Setting
	knobs             uint64 // the version of all knobs
	rdt               string
	foreign           *cpuset.Set
}

// updateContainer returns a container's cached status, which it replaces if anything has
// changed; knobs is the version of all knobs.
func (r *Reporter) updateContainer(c *node.Container, h *placement.Holder, knobs uint64) *status.Container {
	p := r.statuses[c]
	if p == nil {
		p = &containerStatus{}
		r.statuses[c] = p
	}
	controlled := !c.Uncontrolled && !r.Authority().Foreign
	same := p.Container != nil && p.holder == h && p.State == h.State && p.short == h.Short && p.ledger == r.LedgerState() &&
		h.Request.MemoryNodes.Policy != workload.MemoryLocal && // that depends on the guarantees to other containers
		p.foreign == c.Foreign && p.Controlled == controlled && p.Drift == c.Drift && slices.Equal(p.Warnings, c.Warnings) &&
		sameLacks(p.Lacks, c)
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
		Tier:                 h.Request.BatchTier(),
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
		Keys:                 h.Request.Keys, // made once and never changed
		Warnings:             slices.Clone(c.Warnings),
		Cgroup:               c.Path,
		Drift:                c.Drift,
		Settings:             p.kernel,
		Lacks:                lacks(c),
		PlacedAt:             h.Since,
	}
	return p.Container
}

// lacks lists what the container requests and does not have.
func lacks(c *node.Container) []status.Lack {
	var all []status.Lack
	for _, notes := range [][]qos.Note{c.Notes, c.Unjoined} {
		for _, n := range notes {
			all = append(all, status.Lack(n))
		}
	}
	return all
}

// sameLacks reports whether the list is what lacks would return.
func sameLacks(list []status.Lack, c *node.Container) bool {
	same := func(l status.Lack, n qos.Note) bool { return l == status.Lack(n) }
	n := len(c.Notes)
	return len(list) == n+len(c.Unjoined) && slices.EqualFunc(list[:n], c.Notes, same) && slices.EqualFunc(list[n:], c.Unjoined, same)
}

// appendKernel appends the settings that the container and its pod have in the kernel.
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
