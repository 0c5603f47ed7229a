package reconcile

import (
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// quickKnobs are those whose writes the kernel never waits in: they set numbers, under
// locks that are held for as long (tg_set_cfs_bandwidth, sched_group_set_shares,
// memory_min_write and the like). Writes of cpuset.cpus have their effect before they
// wait, and pkg/kernel/cgroupfs returns then.
var quickKnobs = []knobs.Knob{
	knobs.CPUs, knobs.Quota, knobs.Burst, knobs.Weight, knobs.Idle,
	knobs.BVT, knobs.CPUIdentity, knobs.CPUPriority, knobs.CPUQoS, knobs.CgroupPriority, knobs.CPUOffline, knobs.BTShares,
	knobs.MemoryMin, knobs.MemoryLow, knobs.SoftLimit, knobs.OOMGroup, knobs.WmarkRatio, knobs.WmarkScale, knobs.WmarkMinAdj,
	knobs.MemPriority, knobs.PriorityOOM, knobs.MemoryQoS, knobs.NetClass,
}

// Of each knob it is decided whether its writes may take long.
func TestMayTakeLong(t *testing.T) {
	t.Parallel()
	for k := range knobs.Knobs {
		if long := mayTakeLong(&knobs.Change{Knob: k}); long == slices.Contains(quickKnobs, k) {
			t.Errorf("%s: may take long: %t", k, long)
		}
	}
	for name, test := range map[string]struct {
		from, to knobs.Bytes
		want     bool
	}{
		"lower": {200, 100, true}, "a first limit": {knobs.Max, 100, true}, "higher": {100, 200, false}, "none any more": {100, knobs.Max, false},
	} {
		if got := mayTakeLong(&knobs.Change{Knob: knobs.MemoryHigh, From: test.from, To: test.to}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
