package workload

// Granted is what the kubelet's own record says that it has granted to a container. The
// zero value is a container of a pod that the record doesn't know.
type Granted struct {
	Pod       bool // the record knows the pod
	Container bool // and the container

	CPU         MilliCPU
	Memory      int64    // bytes
	BatchCPU    MilliCPU // of the node's batch resources
	BatchMemory int64    // bytes, of the node's batch resources
	PodLevel    bool     // the pod has requests of its own, of which CPU and Memory are a part

	// What the pod's containers have of batch resources together: the most that one has
	// which the record leaves out.
	MostBatchCPU    MilliCPU
	MostBatchMemory int64
}

// Requests are what the scheduler granted to a container.
type Requests struct {
	CPU    MilliCPU
	Exact  bool  // CPU is the whole request
	Memory int64 // bytes; 0 unknown, or none
	From   RequestSource
}

// RequestSource is where a container's requests are known from.
type RequestSource string

// The sources, the best first.
const (
	FromKubelet    RequestSource = "kubelet"    // its record of what it has granted
	FromAnnotation RequestSource = "annotation" // of batch resources, which nobody else tells of
	Inferred       RequestSource = "inferred"   // from CPU weight, limits and OOM score
)

// Requested is what the container requested of the kubelet: as the kubelet's record
// says, or as it can be inferred, where nodeMemory is the node's. Of a Guaranteed pod the
// runtime's numbers are exact, and change when a resize is carried out rather than when
// it is granted, unless they are the whole pod's.
func Requested(pod *Pod, c *Container, g *Granted, nodeMemory int64) Requests {
	r := Requests{From: Inferred}
	r.CPU, r.Exact = CPURequest(pod, c.Resources)
	r.Memory, _ = MemoryRequest(pod, c, nodeMemory)
	if !g.Container {
		return r
	}
	r.From = FromKubelet
	inferred := pod.QoS() == Guaranteed && !g.PodLevel
	if !inferred || c.Resources.Quota <= 0 {
		r.CPU, r.Exact = g.CPU, true
	}
	if !inferred || c.Resources.MemoryLimit <= 0 {
		r.Memory = g.Memory
	}
	return r
}
