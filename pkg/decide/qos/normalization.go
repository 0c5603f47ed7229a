package qos

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// NormalizedWhy is the reason given for CPU limits that stand for the kubelet's on a node with faster
// CPUs.
const NormalizedWhy = "CPU normalization: the kubelet's CPU limit divided by the node's ratio"

// Normalized returns the CPU limit that a container has on this node. Where CPUs are faster than those
// for which limits were made, that of a service is the kubelet's divided by the node's ratio, rounded
// up to whole microseconds as Koordinator does (100000 at 1.2 is 83334). Batch work's limits are grants
// of this node's CPUs, and pins have CPUs of their own.
func (n *Node) Normalized(class workload.Class, quota knobs.CPUQuota) knobs.CPUQuota {
	if n.CPURatio <= 100 || !quota.Finite() || class != workload.LS && class != workload.Unclassified {
		return quota
	}
	ratio := time.Duration(n.CPURatio)
	micros := (quota.Quota*100 + ratio*time.Microsecond - 1) / (ratio * time.Microsecond)
	return knobs.CPUQuota{Quota: max(knobs.MinQuota, micros*time.Microsecond), Period: quota.Period}
}

// normalize gives containers their normalized limits, and the pod their sum. A container with batch
// resources keeps its grant.
func (t *tuner) normalize() {
	var sum time.Duration
	limited, changed := true, false
	for i := range t.pod.Containers {
		c := &t.pod.Containers[i]
		g := grantOf(t.node, c)
		q := c.quota(t.node, g)
		if !q.Finite() {
			limited = false
			continue
		}
		if c.Starting && !g.Quota.Finite() {
			sum += roomFor(c.Quota) // cgroup v1 refuses a quota above the pod's
		} else {
			sum += roomFor(q)
		}
		if !g.Quota.Finite() && q != c.Quota && t.has(knobs.Quota) {
			t.set(i, knobs.Quota, q, NormalizedWhy)
			changed = true
		}
	}
	own := t.pod.Quota
	if all := (knobs.CPUQuota{Quota: sum, Period: knobs.DefaultPeriod}); changed && limited && own.Finite() && all.Compare(own) < 0 { // else the kubelet's stays
		t.Pod = replace(t.Pod, Loop{Quota: all, Why: "sum of its containers' CPU limits, normalized"})
	}
}
