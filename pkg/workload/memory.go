package workload

// MemoryRequest infers the memory in bytes that the scheduler granted to the container, which
// the runtime does not know. For a Guaranteed pod it is the limit, exactly. For a Burstable one
// it is the lower bound of the step of its oom_score_adj, and a step is 0.1 % of nodeMemory. It
// is 0 if unknown or nothing.
//
// The kubelet scores a Burstable container 1000 − ⌊1000 × request / capacity⌋,
// clamped to 3..999, and a critical pod's below 0 (GetContainerOOMScoreAdjust in
// Kubernetes' pkg/kubelet/qos/policy.go). So the bound is
// ⌈(1000 − score) × capacity / 1000⌉; a score of 999 may also stand for less
// than one step. A sidecar carries the lowest score of its pod's regular
// containers, and the runtime doesn't tell sidecars apart: the limit bounds
// that error, where there is one.
func MemoryRequest(pod *Pod, c *Container, nodeMemory int64) (bytes int64, exact bool) {
	switch pod.QoS() {
	case Guaranteed:
		return max(0, c.Resources.MemoryLimit), c.Resources.MemoryLimit > 0
	case BestEffort:
		return 0, true
	case Burstable:
		if c.OOMScoreAdj < 3 || c.OOMScoreAdj > 998 || nodeMemory <= 0 {
			return 0, false
		}
		steps := int64(1000 - c.OOMScoreAdj)
		bytes = nodeMemory/1000*steps + (nodeMemory%1000*steps+999)/1000
		if limit := c.Resources.MemoryLimit; limit > 0 {
			bytes = min(bytes, limit)
		}
		return bytes, false
	}
	return 0, false
}
