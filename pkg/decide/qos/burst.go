package qos

import (
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// burst gives containers their static burst: a percentage of the quota, and at most the quota
// where the kernel demands it. The pod gets the sum, since its own quota throttles its
// containers together.
func (t *tuner) burst() {
	var sum, podQuota time.Duration
	limited := true
	for i := range t.pod.Containers {
		c := &t.pod.Containers[i]
		q := c.quota(t.node, grantOf(t.node, c))
		if q.Finite() {
			// The sum is computed for the period of the pod's quota, which is the kubelet's for
			// all containers.
			podQuota += q.Quota
		} else {
			limited = false
		}
		sum += t.containerBurst(i, q)
	}
	if sum == 0 || !limited {
		return // without a quota, the pod does not throttle its containers
	}
	if own := t.podQuota(); own.Finite() { // its period may be shorter than that of its containers
		podQuota = min(podQuota, own.Quota)
	}
	if !t.node.Features.BurstOverQuota {
		sum = min(sum, podQuota)
	}
	t.setPod(knobs.Burst, knobs.CPUBurst(min(sum, knobs.MaxBandwidth-podQuota)), "sum of its containers' bursts")
}

// containerBurst sets a container's burst, and returns it.
func (t *tuner) containerBurst(i int, q knobs.CPUQuota) time.Duration {
	r := &t.pod.Containers[i].Request
	b := &r.Burst
	if b.Auto && !t.node.BurstLoop {
		if b.Percent > 0 {
			t.note(i, burstKey, "no limit is raised on this node, whose control.burst is not on: the static burst is all it gets")
		} else {
			t.missing(i, burstKey, "no limit is raised on this node, whose control.burst is not on: ask for a percentage")
		}
	}
	raised := b.Auto && t.node.BurstLoop
	switch {
	case b.Percent <= 0 && !raised, r.Class == workload.BE, r.Class.Pinned(), t.pod.Containers[i].Own:
		return 0
	case !q.Finite():
		t.note(i, burstKey, "the container has no CPU limit: nothing throttles it, and there is nothing to burst over")
		return 0
	case b.Percent <= 0:
		return 0
	case !t.has(knobs.Burst) && raised:
		t.note(i, burstKey, "cpu.max.burst and cpu.cfs_burst_us are not there (Linux 5.14, or a vendor's kernel): the container is throttled at its limit until the loop raises that")
		return 0
	case !t.has(knobs.Burst):
		t.missing(i, burstKey, "cpu.max.burst and cpu.cfs_burst_us are not there (Linux 5.14, or a vendor's kernel): the container is throttled at its limit")
		return 0
	}
	burst := min(time.Duration(percentOf(int64(q.Quota), b.Percent)), knobs.MaxBandwidth-q.Quota).Truncate(time.Microsecond)
	why := "cpu-burst " + strconv.Itoa(b.Percent) + " % of " + strconv.FormatFloat(q.CPUs(), 'g', 6, 64) + " CPUs"
	if !t.node.Features.BurstOverQuota && burst > q.Quota {
		burst = q.Quota
		why += ", at most 100 % on this kernel"
	}
	if burst <= 0 {
		return 0
	}
	t.set(i, knobs.Burst, knobs.CPUBurst(burst), why)
	return burst
}
