package node

import (
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Without is what the runtime would set were it not for Sluice, of the knobs that it
// carries.
func (c *Container) Without() map[knobs.Knob]knobs.Value {
	values := map[knobs.Knob]knobs.Value{}
	for k := range knobs.Knobs {
		if c.Carried[k] != nil {
			values[k] = c.Kubelets(k)
		}
	}
	return values
}

// Kubelets is the value that the runtime would give a knob for the kubelet: the kernel's
// default where the kubelet asks for nothing.
func (c *Container) Kubelets(k knobs.Knob) knobs.Value {
	switch r := &c.Resources; k.RuntimeField() {
	case knobs.SharesField:
		return max(knobs.MinShares, knobs.Shares(r.Shares))
	case knobs.QuotaField:
		if c.Quota.Finite() {
			return c.Quota
		}
		return Unlimited
	case knobs.MemoryLimitField:
		if r.MemoryLimit > 0 {
			return knobs.Bytes(r.MemoryLimit)
		}
	}
	return cgroupfs.Describe(k).Default
}
