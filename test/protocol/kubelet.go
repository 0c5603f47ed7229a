package protocol

import (
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

// Pod is a pod as a user describes it.
type Pod struct {
	Namespace, Name     string // "default" if empty
	QoS                 string // "guaranteed", "burstable" (the default) or "besteffort"
	Labels, Annotations map[string]string
	RuntimeHandler      string
}

// Requests holds a container's resource requests and limits.
type Requests struct {
	CPU     int64 // in thousandths of a CPU
	Limit   int64 // in thousandths of a CPU; in Guaranteed pods the request counts
	Memory  int64 // in bytes; in Guaranteed pods also the limit
	Devices []*api.LinuxDevice

	CDIDevices []string // their names
}

// sandbox returns the pod as the runtime describes it to plugins.
func (p Pod) sandbox(serial int) *api.PodSandbox {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", serial)
	namespace := p.Namespace
	if namespace == "" {
		namespace = "default"
	}
	parent := "/kubepods/" + p.qos() + "/pod" + uid
	if p.qos() == "guaranteed" {
		parent = "/kubepods/pod" + uid
	}
	return &api.PodSandbox{
		Id: fmt.Sprintf("%064x", serial), Uid: uid, Name: p.Name, Namespace: namespace,
		Labels: p.Labels, Annotations: p.Annotations, RuntimeHandler: p.RuntimeHandler,
		Linux: &api.LinuxPodSandbox{CgroupParent: parent},
	}
}

func (p Pod) qos() string {
	if p.QoS == "" {
		return "burstable"
	}
	return p.QoS
}

func isGuaranteed(pod *api.PodSandbox) bool {
	return strings.HasPrefix(pod.Linux.CgroupParent, "/kubepods/pod")
}

// resources does the kubelet's arithmetic of
// pkg/kubelet/kuberuntime/kuberuntime_container_linux.go in Kubernetes.
func (r Requests) resources(guaranteed bool) *api.LinuxResources {
	const period = 100000 // in µs
	limit, memory := r.Limit, int64(0)
	if guaranteed {
		limit, memory = r.CPU, r.Memory
	}
	out := &api.LinuxResources{
		Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(min(max(2, r.CPU*1024/1000), 262144)))},
		Memory: &api.LinuxMemory{},
	}
	if limit > 0 {
		out.Cpu.Quota, out.Cpu.Period = api.Int64(max(1000, limit*period/1000)), api.UInt64(uint64(period))
	}
	if memory > 0 {
		out.Memory.Limit = api.Int64(memory)
	}
	return out
}

// oomScoreAdj computes the kubelet's value, as pkg/kubelet/qos/policy.go in Kubernetes does.
func (r Requests) oomScoreAdj(pod *api.PodSandbox, capacity int64) int {
	switch {
	case isGuaranteed(pod):
		return -997
	case strings.HasPrefix(pod.Linux.CgroupParent, "/kubepods/besteffort"):
		return 1000
	}
	return int(min(max(3, 1000-1000*r.Memory/capacity), 999))
}
