package agent

import (
	"cmp"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// features lists what this node supports: each knob, and what does not depend on a knob.
func (o *Options) features() []status.Feature {
	all := make([]status.Feature, 0, knobs.Knobs)
	for k := range knobs.Knobs {
		f := status.Feature{Name: k.String(), State: status.FeatureInconclusive, Why: "there are no cgroups here"}
		if o.Kernel != nil {
			has := &o.Node.Features.Knobs[k]
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
	extra("memory.reclaim", "memory.reclaim", o.Node.Features.Reclaim, "Linux 5.19 on cgroup v2 brings it")
	extra("burst above the quota", o.Node.Features.Knobs[knobs.Burst].File, o.Node.Features.BurstOverQuota, "the mainline kernel bounds it by the quota")
	extra("resctrl", "schemata", o.RDT != nil, cmp.Or(o.NoRDT, "it was not looked for"))
	extra("node watermarks", "vm.watermark_scale_factor", o.Watermarks != nil, "they can't be written here")
	cores := status.Feature{Name: "core scheduling", State: status.FeatureUnsupported, Why: "there are no cgroups here"}
	if o.Cores != nil {
		support, why := o.Cores.Supported()
		cores.State, cores.Why = status.FeatureState(support.String()), why
	}
	return append(all, cores)
}
