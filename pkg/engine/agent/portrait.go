package agent

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/knobs"
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
	ledger            uint64 // version
	kernel            []status.Kernel
	knobs             uint64 // version
	rdt               string
	foreign           *cpuset.Set
}

// portray brings a container's portrait up to date; knobs is the version of all knobs.
func (a *Agent) portray(c *container, h *placement.Holder, knobs uint64) *status.Container {
	p := &c.shown
	controlled := !c.uncontrolled && !a.authority().Foreign
	same := p.Container != nil && p.holder == h && p.State == h.State && p.short == h.Short && p.ledger == a.ledger.Version() &&
		h.Request.MemoryNodes.Policy != workload.MemoryLocal && // depends on what others are guaranteed
		p.foreign == c.foreign && p.Controlled == controlled && p.Drift == c.drift && slices.Equal(p.Warnings, c.warnings) &&
		slices.EqualFunc(p.Lacks, c.notes, func(l status.Lack, n qos.Note) bool { return l == status.Lack(n) })
	if p.Container == nil || p.knobs != knobs || p.rdt != c.rdt {
		p.knobs, p.rdt = knobs, c.rdt
		if a.kernels = a.appendKernel(a.kernels[:0], c); !slices.Equal(p.kernel, a.kernels) {
			p.kernel, same = slices.Clone(a.kernels), false
		}
	}
	if same {
		return p.Container
	}
	p.holder, p.short, p.ledger, p.foreign = h, h.Short, a.ledger.Version(), c.foreign
	as, _ := a.ledger.Assignment(h.ID)
	cpu, memory := h.Request.Grant()
	if c.foreign != nil {
		as.CPUs, as.Why = *c.foreign, "the kubelet's static CPU manager sets its CPUs: these are the kernel's"
	}
	p.Container = &status.Container{
		ID:              h.ID,
		PodUID:          h.Pod,
		Ref:             h.Ref,
		Class:           h.Request.Class,
		Pool:            a.ledger.PoolOf(h),
		State:           h.State,
		Controlled:      controlled,
		Requested:       cpu,
		RequestedMemory: memory,
		RequestedBy:     h.Request.From,
		CPUs:            as.CPUs,
		Mems:            as.Mems,
		Unlimited:       as.Unlimited,
		Why:             as.Why,
		Settings:        h.Request.Settings, // made once, never changed
		Warnings:        slices.Clone(c.warnings),
		Cgroup:          c.path,
		Drift:           c.drift,
		Kernel:          p.kernel,
		Lacks:           lacks(c),
		Since:           h.Since,
	}
	return p.Container
}

func lacks(c *container) []status.Lack {
	var all []status.Lack
	for _, n := range c.notes {
		all = append(all, status.Lack(n))
	}
	return all
}

// appendKernel lists what the container and its pod have been given in the kernel.
func (a *Agent) appendKernel(all []status.Kernel, c *container) []status.Kernel {
	all = a.reconciler.Status(all, "container", c.path)
	if c.rdt != "" {
		all = append(all, status.Kernel{Level: "container", Setting: "resctrl group", Value: c.rdt, Why: rdtgroup.Key})
	}
	if c.podPath != "" {
		all = a.reconciler.Status(all, "pod", c.podPath)
	}
	return all
}

// contested lists what somebody else keeps changing, in alphabetical order.
func (a *Agent) contested() []string {
	all := a.reconciler.Contested()
	if a.reconciler.Quiet() {
		return all
	}
	for _, c := range a.order {
		if c.contest.Contested(a.now()) {
			all = append(all, knobs.CPUs.String()+" of "+c.ref)
		}
	}
	slices.Sort(all)
	return all
}
