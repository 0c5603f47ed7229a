package workload

import (
	"path"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Pod is a pod sandbox as the runtime describes it.
type Pod struct {
	ID             string
	UID            string
	Namespace      string
	Name           string
	Labels         map[string]string
	Annotations    map[string]string
	RuntimeHandler string
	CgroupParent   string    // cgroup of the pod: "/kubepods/burstable/pod<uid>" or "kubepods-burstable-pod<uid>.slice"
	Resources      Resources // pod-level resources; zero if the pod has none
	IPs            []string  // the pod's addresses; empty if the runtime names none
	HostNetwork    bool      // the pod has no network namespace of its own
	SandboxPID     int       // of the process that holds the pod's namespaces; 0 if the runtime names none
	NetworkPath    string    // file of its network namespace on the host, such as /run/netns/cni-1; "" if the runtime names none
}

// Container is a container as the runtime describes it.
type Container struct {
	ID           string
	PodID        string
	Name         string
	CgroupsPath  string // the OCI spec's cgroupsPath: "/parent/id" or "slice:prefix:name"
	State        State
	PID          int // 0 before the container's process exists
	Resources    Resources
	OOMScoreAdj  int
	Devices      []DeviceNumber
	HasCDI       bool              // it was given CDI devices, by DRA claims or a device plugin
	Claims       []string          // CDI devices that stand for resource claims on CPUs (see pkg/workload/claim)
	Unified      map[string]string // cgroup v2 files that the kubelet tells the runtime to write, such as "memory.high"
	CreatedNanos int64             // nanoseconds since the epoch
	Granted      Granted           // set from a manifest; if it is zero, the kubelet's record decides
}

// State is the stage of a container's life.
type State uint8

// The states of a container.
const (
	Created State = iota
	Running
	Stopped
)

// Resources are the OCI Linux resources that Sluice reads. Zero fields are not set.
type Resources struct {
	Shares      uint64 // cpu.shares
	Quota       int64  // CFS quota in µs per Period; -1 for unlimited
	Period      uint64 // CFS period in µs
	MemoryLimit int64  // bytes
	CPUs        string // cpuset.cpus, list format
	Mems        string // cpuset.mems, list format
}

// With returns the resources after an update, which changes only the fields that it sets.
func (r Resources) With(change Resources) Resources {
	if change.Shares != 0 {
		r.Shares = change.Shares
	}
	if change.Quota != 0 {
		r.Quota = change.Quota
	}
	if change.Period != 0 {
		r.Period = change.Period
	}
	if change.MemoryLimit != 0 {
		r.MemoryLimit = change.MemoryLimit
	}
	if change.CPUs != "" {
		r.CPUs = change.CPUs
	}
	if change.Mems != "" {
		r.Mems = change.Mems
	}
	return r
}

// DeviceNumber identifies a device node that the container was given.
type DeviceNumber struct {
	Block        bool // block device; else character device
	Major, Minor int64
}

// Ref returns the name of a container for messages: "namespace/pod/container".
func Ref(pod *Pod, container *Container) string {
	return pod.Namespace + "/" + pod.Name + "/" + container.Name
}

// QoS infers the Kubernetes QoS class, which the runtime does not know, from the pod's cgroup
// parent. It understands the names of both cgroup drivers.
func (p *Pod) QoS() QoS {
	for dir := strings.Trim(p.CgroupParent, "/"); dir != "." && dir != ""; dir = path.Dir(dir) {
		name := strings.TrimSuffix(path.Base(dir), ".slice")
		switch {
		case strings.HasSuffix(name, "besteffort"), strings.Contains(name, "besteffort-pod"):
			return BestEffort
		case strings.HasSuffix(name, "burstable"), strings.Contains(name, "burstable-pod"):
			return Burstable
		case strings.HasSuffix(name, "kubepods"), strings.Contains(name, "kubepods-pod"):
			return Guaranteed
		}
	}
	return UnknownQoS
}

// configSource is an annotation that the kubelet sets on every pod that it runs. It says where
// the kubelet got the pod from (pkg/kubelet/types/pod_update.go in Kubernetes). A pod of the
// API server can't choose it, since the kubelet overwrites it.
const configSource = "kubernetes.io/config.source"

// Static reports whether the kubelet got the pod from the node's own files or from a URL rather
// than from the API server. Nobody else would start such a pod again.
func (p *Pod) Static() bool {
	source := p.Annotations[configSource]
	return source != "" && source != "api"
}

// nodeCriticalScore is the oom_score_adj that the kubelet gives to the containers of
// Guaranteed pods, and to those of all pods of priority class system-node-critical
// (pkg/kubelet/qos/policy.go in kubernetes).
const nodeCriticalScore = -997

// NodeCritical reports whether the container's pod has the priority class system-node-critical.
// The runtime does not know the class, so that it is inferred from the container's
// oom_score_adj, which does not show it for Guaranteed pods.
func NodeCritical(pod *Pod, c *Container) bool {
	qos := pod.QoS()
	return c.OOMScoreAdj == nodeCriticalScore && (qos == BestEffort || qos == Burstable)
}

// MilliCPU is an amount of CPU in thousandths of one CPU.
type MilliCPU int64

// String returns the amount in CPUs: "1.5".
func (m MilliCPU) String() string { return strconv.FormatFloat(float64(m)/1000, 'f', -1, 64) }

// MaxSharesRequest is the largest request that cpu.shares can express: the kubelet clamps
// shares at 262,144.
const MaxSharesRequest MilliCPU = 256000

// CPURequest infers the container's CPU request, which the runtime does not know. For a
// Guaranteed pod it uses the quota, which is exact. Otherwise it uses the shares, which the
// kubelet computes as milli × 1024 / 1000, at least 2. The result is not exact if the shares
// are at the kubelet's clamp, since the request may then be larger.
func CPURequest(pod *Pod, r Resources) (milli MilliCPU, exact bool) {
	if pod.QoS() == Guaranteed && r.Quota > 0 && r.Period > 0 {
		return MilliCPU((r.Quota*1000 + int64(r.Period) - 1) / int64(r.Period)), true
	}
	if r.Shares <= uint64(knobs.MinShares) {
		return 0, true
	}
	milli = MilliCPU((min(r.Shares, uint64(knobs.MaxShares))*1000 + 1023) / 1024)
	return milli, r.Shares < uint64(knobs.MaxShares)
}
