package workload

// Granted is what the kubelet has granted to a container, according to its own record. The zero
// value stands for a container of a pod that is not in the record.
type Granted struct {
	Pod       bool // the record has the pod
	Container bool // the record has the container

	CPU         MilliCPU
	Memory      int64    // in bytes
	BatchCPU    MilliCPU // part of the node's batch resources
	BatchMemory int64    // part of the node's batch resources, in bytes
	Mid         bool     // some of the pod's batch resources are mid resources
	PodLevel    bool     // the pod has requests of its own, of which CPU and Memory are a part

	// These are the batch resources of all containers of the pod together: the most that a
	// container can have which is missing in the record.
	MostBatchCPU    MilliCPU
	MostBatchMemory int64
}

// Requests are the resources that the scheduler granted to a container.
type Requests struct {
	CPU    MilliCPU
	Exact  bool  // whether CPU is the whole request
	Memory int64 // in bytes; 0 if unknown or none
	From   RequestSource
}

// RequestSource says how a container's requests are known.
type RequestSource string

// These are the sources, the best first.
const (
	FromKubelet    RequestSource = "kubelet"    // the kubelet's record of what it has granted
	FromAnnotation RequestSource = "annotation" // an annotation about batch resources, for which there is no other source
	Inferred       RequestSource = "inferred"   // inferred from CPU weight, limits and OOM score
)

// Requested returns what the container requested from the kubelet: according to the kubelet's
// record, or as it can be inferred on a node with nodeMemory. For a Guaranteed pod the
// runtime's numbers are exact unless they are the whole pod's. They change when a resize is
// carried out rather than when it is granted.
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
