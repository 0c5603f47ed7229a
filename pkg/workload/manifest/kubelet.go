package manifest

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// withDefaults is a resource list as the API server stores it: a request that is
// left out is the limit (SetDefaults_Pod in Kubernetes' pkg/apis/core/v1).
func (r resources) withDefaults() resources {
	if r.Requests.CPU == nil {
		r.Requests.CPU = r.Limits.CPU
	}
	if r.Requests.Memory == nil {
		r.Requests.Memory = r.Limits.Memory
	}
	return r
}

// guaranteed reports whether CPU and memory are both limited, and the requests
// are the limits. Zero counts as not given.
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

// qos is the pod's class by ComputePodQOS in Kubernetes'
// pkg/apis/core/v1/helper/qos: pod-level resources decide alone where there are
// any, else all containers, init containers too. The rule compares sums; since no
// request is above its limit, the sums are equal where every pair is.
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

// cgroupParent is the pod's cgroup with the cgroupfs driver.
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

// linux is what the kubelet tells the runtime (calculateLinuxResources in
// pkg/kubelet/kuberuntime): shares of the request, the limit as quota.
func (r resources) linux() workload.Resources {
	out := workload.Resources{Shares: uint64(knobs.RequestShares(int64(or0(r.Requests.CPU)))), MemoryLimit: or0(r.Limits.Memory).value(), Period: uint64(cfsPeriod)}
	if limit := or0(r.Limits.CPU); limit > 0 {
		out.Quota = max(int64(knobs.MinQuota/time.Microsecond), limit.times(cfsPeriod))
	}
	return out
}

// times is the amount times n, rounded down. Amounts over a billion, which are no
// CPUs, count as that.
func (q amount) times(n int64) int64 { return int64(min(q, 1e12)) * n / 1000 }

// oomScore is GetContainerOOMScoreAdjust of pkg/kubelet/qos for a container that
// is not a sidecar; memory is the node's, 0 unknown.
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
