package colocation

import (
	"maps"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
)

// CPUDesired is the CPU quotas and weights that the control loop wants in the kernel, in
// place of what was asked for.
type CPUDesired struct {
	Containers   map[string]qos.Loop // quotas by container ID: raised, throttled or demoted
	Pods         map[string]qos.Loop // quotas by UID: batch pods outside of batch cgroups
	BatchCgroups map[string]qos.Loop // quotas by path
	LSWeights    map[string]int      // by path of a parent: weight in percent of what isn't batch below it
}

// NewCPUDesired asks for no change.
func NewCPUDesired() CPUDesired {
	return CPUDesired{map[string]qos.Loop{}, map[string]qos.Loop{}, map[string]qos.Loop{}, map[string]int{}}
}

// Equal reports whether both want the same.
func (d CPUDesired) Equal(other CPUDesired) bool {
	return maps.Equal(d.Containers, other.Containers) && maps.Equal(d.Pods, other.Pods) &&
		maps.Equal(d.BatchCgroups, other.BatchCgroups) && maps.Equal(d.LSWeights, other.LSWeights)
}

// Clone returns a copy.
func (d CPUDesired) Clone() CPUDesired {
	return CPUDesired{maps.Clone(d.Containers), maps.Clone(d.Pods), maps.Clone(d.BatchCgroups), maps.Clone(d.LSWeights)}
}

// WantQuota notes the quota of a container, the lowest that any controller wants.
func (d CPUDesired) WantQuota(id string, want qos.Loop) {
	if other, two := d.Containers[id]; !two || want.Quota.Compare(other.Quota) <= 0 {
		d.Containers[id] = want
	}
}

// ForgetBatchQuotas bounds batch work by no quota.
func (d CPUDesired) ForgetBatchQuotas() {
	clear(d.BatchCgroups)
	clear(d.Pods)
}
