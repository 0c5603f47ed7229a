package nodestatus

import (
	"cmp"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Probed is what the probes of the kernel and the hardware have found.
type Probed struct {
	Kernel     *knobs.Features
	Cgroups    bool                           // cgroups can be written
	RDT        bool                           // resctrl is there
	NoRDT      string                         // why it is not
	Watermarks bool                           // the node's watermarks can be written
	Newidle    bool                           // it can be set when CPUs look for waiting threads
	NoNewidle  string                         // why it can't
	Cycles     bool                           // cycles and instructions can be counted by cgroup
	NoCycles   string                         // why they can't
	IOCost     bool                           // disks can divide their time by weight without bfq
	NoIOCost   string                         // why they can't
	Cores      func() (knobs.Support, string) // whether core scheduling is supported, and why not; nil without it
}

// Features lists what the node supports: each knob, and what does not depend on a knob.
func (p *Probed) Features() []status.Feature {
	all := make([]status.Feature, 0, knobs.Knobs)
	for k := range knobs.Knobs {
		f := status.Feature{Name: k.String(), State: status.FeatureInconclusive, Why: "there are no cgroups here"}
		if p.Cgroups {
			has := &p.Kernel.Knobs[k]
			f.State, f.File, f.Why, f.Cause = status.FeatureState(has.State.String()), has.File, has.Why, has.Cause
		}
		all = append(all, f)
	}
	extra := func(name, file string, has bool, why string) {
		f := status.Feature{Name: name, State: status.FeatureUnsupported, Why: why}
		if has {
			f.State, f.File, f.Why = status.FeatureSupported, file, ""
		}
		all = append(all, f)
	}
	extra("memory.reclaim", "memory.reclaim", p.Kernel.Reclaim, "Linux 5.19 on cgroup v2 brings it")
	extra("burst above the quota", p.Kernel.Knobs[knobs.Burst].File, p.Kernel.BurstOverQuota, "the mainline kernel bounds it by the quota")
	extra("resctrl", "schemata", p.RDT, cmp.Or(p.NoRDT, "it was not looked for"))
	extra("cycles per instruction", "", p.Cycles, cmp.Or(p.NoCycles, "it was not looked for"))
	extra("node watermarks", "vm.watermark_scale_factor", p.Watermarks, "they can't be written here")
	extra("newidle balance", "sched/features", p.Newidle, cmp.Or(p.NoNewidle, "it was not looked for"))
	extra("io.cost", "io.cost.qos", p.IOCost, cmp.Or(p.NoIOCost, "it was not looked for"))
	cores := status.Feature{Name: "core scheduling", State: status.FeatureUnsupported, Why: "there are no cgroups here"}
	if p.Cores != nil {
		support, why := p.Cores()
		cores.State, cores.Why = status.FeatureState(support.String()), why
	}
	return append(all, cores)
}
