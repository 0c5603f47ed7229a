package manifest

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// withDefaults returns a resource list as the API server stores it: a missing request is set to
// the limit (SetDefaults_Pod in Kubernetes' pkg/apis/core/v1).
func (r resources) withDefaults() resources {
	if r.Requests.CPU == nil {
		r.Requests.CPU = r.Limits.CPU
	}
	if r.Requests.Memory == nil {
		r.Requests.Memory = r.Limits.Memory
	}
	return r
}

// guaranteed reports whether CPU and memory are both limited and the requests equal the limits.
// Zero counts as missing.
func (r resources) guaranteed() bool {
	return or0(r.Limits.CPU) > 0 && or0(r.Limits.Memory) > 0 &&
		or0(r.Requests.CPU) == or0(r.Limits.CPU) && or0(r.Requests.Memory) == or0(r.Limits.Memory)
}

func (r resources) none() bool {
	return or0(r.Requests.CPU)+or0(r.Requests.Memory)+or0(r.Limits.CPU)+or0(r.Limits.Memory) == 0
}

func or0(q *amount) amount {
	if q == nil {
		return 0
	}
	return *q
}

// qos returns the pod's QoS class as ComputePodQOS does in Kubernetes'
// pkg/apis/core/v1/helper/qos: pod-level resources decide alone if there are any, and otherwise
// all containers, including init containers. The rule compares sums. Since no request is above
// its limit, the sums are equal if every pair is.
func (s *podSpec) qos() workload.QoS {
	if s.Resources != nil {
		return qosOf(s.Resources.withDefaults())
	}
	var all []resources
	for _, list := range [][]container{s.InitContainers, s.Containers} {
		for i := range list {
			all = append(all, list[i].Resources.withDefaults())
		}
	}
	return qosOf(all...)
}

func qosOf(all ...resources) workload.QoS {
	guaranteed, none := true, true
	for _, r := range all {
		guaranteed = guaranteed && r.guaranteed()
		none = none && r.none()
	}
	switch {
	case none:
		return workload.BestEffort
	case guaranteed:
		return workload.Guaranteed
	}
	return workload.Burstable
}

// cgroupParent returns the pod's cgroup with the cgroupfs driver.
func cgroupParent(qos workload.QoS, uid string) string {
	switch qos {
	case workload.Burstable:
		return "/kubepods/burstable/pod" + uid
	case workload.BestEffort:
		return "/kubepods/besteffort/pod" + uid
	}
	return "/kubepods/pod" + uid
}

// cfsPeriod is the kubelet's default cpuCFSQuotaPeriod in µs.
const cfsPeriod = int64(knobs.DefaultPeriod / time.Microsecond)

// linux returns the resources that the kubelet passes to the runtime (calculateLinuxResources
// in pkg/kubelet/kuberuntime): shares from the request, and a quota from the limit.
func (r resources) linux() workload.Resources {
	out := workload.Resources{Shares: uint64(knobs.RequestShares(int64(or0(r.Requests.CPU)))), MemoryLimit: or0(r.Limits.Memory).value(), Period: uint64(cfsPeriod)}
	if limit := or0(r.Limits.CPU); limit > 0 {
		out.Quota = max(int64(knobs.MinQuota/time.Microsecond), limit.times(cfsPeriod))
	}
	return out
}

// times returns the amount times n, rounded down. Amounts over a billion, which no machine has,
// count as a billion.
func (q amount) times(n int64) int64 { return int64(min(q, 1e12)) * n / 1000 }

// oomScore returns the result of GetContainerOOMScoreAdjust in pkg/kubelet/qos for a container
// that is not a sidecar. The memory is the node's; 0 if unknown.
func (s *podSpec) oomScore(qos workload.QoS, r resources, memory int64) int {
	const guaranteed, bestEffort = -997, 1000
	switch {
	case s.PriorityClassName == "system-node-critical", qos == workload.Guaranteed:
		return guaranteed
	case qos == workload.BestEffort:
		return bestEffort
	case memory <= 0:
		return bestEffort - 1
	}
	score := 1000 - 1000*or0(r.Requests.Memory).value()/memory
	return int(min(max(score, 1000+guaranteed), bestEffort-1))
}
