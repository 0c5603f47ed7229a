package cpusets

import (
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Observe updates what Has records of some knobs to what the kernel shows. For a container
// without a cgroup it changes nothing.
func (w *Writer) Observe(c *node.Container, of ...knobs.Knob) {
	for _, knob := range of {
		v, err := w.Kernel.Read(c.Path, knob)
		if err != nil {
			continue
		}
		switch knob {
		case knobs.CPUs:
			has := cpuset.Set(v.(knobs.CPUSet))
			c.Has.CPUs, c.Has.None = w.NotAll(has), has.IsEmpty() && !w.QoS.Features.Knobs[knobs.CPUs].V2
		case knobs.Mems:
			c.Has.Mems = cpuset.Set(v.(knobs.CPUSet))
			if c.Has.Mems == w.Ledger.Machine().MemoryNodes() {
				c.Has.Mems = cpuset.Set{}
			}
		case knobs.Quota:
			c.Has.Unlimited = v.(knobs.CPUQuota).Unlimited()
		}
	}
}

// NotAll converts the set of all CPUs to the empty set, which means no restriction: cgroup v1
// shows all CPUs for a container without a cpuset of its own.
func (w *Writer) NotAll(cpus cpuset.Set) cpuset.Set {
	if m := w.Ledger.Machine(); cpus == m.Online || cpus == cpuset.Union(m.Online, m.Offline) {
		return cpuset.Set{}
	}
	return cpus
}

// ReadForeign reads, for the status, the CPUs of a container whose cpuset the kubelet sets.
func (w *Writer) ReadForeign(c *node.Container) {
	if !w.Authority().Foreign || !c.Started || !w.Reaches(c) {
		c.Foreign = nil
		return
	}
	value, err := w.Kernel.Read(c.Path, knobs.CPUs)
	if err != nil {
		c.Foreign = nil
		return
	}
	if cpus := cpuset.Set(value.(knobs.CPUSet)); c.Foreign == nil || *c.Foreign != cpus {
		c.Foreign = &cpus
	}
}
