package colocation

import (
	"maps"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
)

// CPUDesired holds the CPU quotas and weights that the control loop wants in the kernel in
// place of those that the pods ask for.
type CPUDesired struct {
	Containers   map[string]qos.Loop // quotas by container ID: raised, throttled or demoted
	Pods         map[string]qos.Loop // quotas by UID of batch pods outside of batch cgroups
	BatchCgroups map[string]qos.Loop // quotas by path
	Parts        map[string]qos.Loop // quotas by UID of pods in batch cgroups, in place of CPU weights among them
	Culprits     map[string]qos.Loop // quotas by UID of pods that make services wait
	LSWeights    map[string]int      // by path of a parent: weight, in percent, of everything below it that is not batch work
}

// NewCPUDesired returns a value that asks for no change.
func NewCPUDesired() CPUDesired {
	return CPUDesired{map[string]qos.Loop{}, map[string]qos.Loop{}, map[string]qos.Loop{}, map[string]qos.Loop{}, map[string]qos.Loop{}, map[string]int{}}
}

// Equal reports whether both ask for the same.
func (d CPUDesired) Equal(other CPUDesired) bool {
	return maps.Equal(d.Containers, other.Containers) && maps.Equal(d.Pods, other.Pods) &&
		maps.Equal(d.BatchCgroups, other.BatchCgroups) && maps.Equal(d.Parts, other.Parts) &&
		maps.Equal(d.Culprits, other.Culprits) && maps.Equal(d.LSWeights, other.LSWeights)
}

// Clone returns a copy.
func (d CPUDesired) Clone() CPUDesired {
	return CPUDesired{maps.Clone(d.Containers), maps.Clone(d.Pods), maps.Clone(d.BatchCgroups), maps.Clone(d.Parts), maps.Clone(d.Culprits), maps.Clone(d.LSWeights)}
}

// PodQuota returns the quota for a pod's cgroup; the zero value is none.
func (d CPUDesired) PodQuota(uid string) qos.Loop {
	quota, ok := d.Parts[uid]
	if !ok {
		quota, ok = d.Pods[uid]
	}
	if own, culprit := d.Culprits[uid]; culprit && (!ok || own.Quota.Compare(quota.Quota) <= 0) {
		return own
	}
	return quota
}

// WantQuota adds a controller's quota for a container. The lowest of all controllers counts.
func (d CPUDesired) WantQuota(id string, want qos.Loop) {
	if other, two := d.Containers[id]; !two || want.Quota.Compare(other.Quota) <= 0 {
		d.Containers[id] = want
	}
}

// ForgetBatchQuotas removes the quotas by which batch work's budget is divided.
func (d CPUDesired) ForgetBatchQuotas() {
	clear(d.BatchCgroups)
	clear(d.Pods)
	clear(d.Parts)
}
