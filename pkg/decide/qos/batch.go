package qos

import (
	"cmp"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// grant is what a container with batch resources gets in place of the kubelet's settings,
// because the kubelet does not know these resources. Zero fields keep the kubelet's setting.
type grant struct {
	Shares      knobs.Shares
	Quota       knobs.CPUQuota
	MemoryLimit knobs.Bytes
}

// grantOf computes a container's grant: shares from the request, and quota and memory from the
// limits. A missing CPU limit is replaced by the request. The grant never exceeds a limit that
// the kubelet set.
func grantOf(n *Node, c *Container) grant {
	var g grant
	b := &c.Request.Batch
	if b.CPURequest.Set {
		g.Shares = knobs.RequestShares(int64(b.CPURequest.Value))
	}
	limit := b.CPULimit
	if !limit.Set {
		limit = b.CPURequest
	}
	if limit.Set && limit.Value > 0 && !c.Own {
		q := knobs.CPUQuota{Quota: max(knobs.MinQuota, time.Duration(min(limit.Value, maxMilli))*knobs.DefaultPeriod/1000), Period: knobs.DefaultPeriod}
		if !c.Quota.Finite() || q.Compare(c.Quota) < 0 {
			g.Quota = q
		}
	}
	if limit := b.MemoryLimit; limit.Set && n.pages(limit.Value) > 0 && (c.MemoryLimit <= 0 || limit.Value < c.MemoryLimit) {
		g.MemoryLimit = knobs.Bytes(n.pages(limit.Value))
	}
	return g
}

// maxMilli keeps amounts of CPU far from overflow; no machine has a million CPUs.
const maxMilli workload.MilliCPU = 1e9

// quota returns the quota that the container has without the loop. It is not finite if there is
// none.
func (c *Container) quota(n *Node, g grant) knobs.CPUQuota {
	switch {
	case c.Own:
		return knobs.UnlimitedQuota()
	case g.Quota.Finite():
		return g.Quota
	}
	return n.Normalized(c.Request.Class, c.Quota)
}

// limit returns the container's memory limit, including its grant; 0 for none.
func (c *Container) limit(g grant) int64 {
	if g.MemoryLimit > 0 {
		return int64(g.MemoryLimit)
	}
	return max(0, c.MemoryLimit)
}

// batch gives containers their grants, and the pod the sums. The pod has no limit if one
// container has none.
func (t *tuner) batch() {
	var (
		milli         workload.MilliCPU
		quota         time.Duration
		memory        int64
		limited, held = true, true // whether each container has a quota, and whether each has a memory limit
		cpu, mem      bool         // whether a CPU value, and a memory value, comes from a grant
	)
	for i := range t.pod.Containers {
		c := &t.pod.Containers[i]
		g := grantOf(t.node, c)
		if g.Shares > 0 {
			milli += max(0, min(c.Request.Batch.CPURequest.Value, maxMilli))
			t.shares = knobs.RequestShares(percentOf(int64(milli), t.tier().Percent()))
			t.setGrant(i, knobs.Weight, g.Shares)
		}
		if g.Quota.Finite() {
			cpu = true
			t.setGrant(i, knobs.Quota, g.Quota)
		}
		if g.MemoryLimit > 0 {
			mem = true
			t.setGrant(i, knobs.MemoryMax, g.MemoryLimit)
		}
		if q := c.quota(t.node, g); q.Finite() {
			quota += q.In(knobs.DefaultPeriod)
		} else {
			limited = false
		}
		if limit := c.limit(g); limit > 0 {
			memory += limit
		} else {
			held = false
		}
	}
	if own := t.pod.Quota; cpu && limited && t.has(knobs.Quota) {
		sum := knobs.CPUQuota{Quota: quota.Truncate(time.Microsecond), Period: knobs.DefaultPeriod}
		if !own.Finite() || sum.Compare(own) < 0 {
			t.setPod(knobs.Quota, sum, "sum of its containers' batch resources")
		}
	}
	if mem && held && t.has(knobs.MemoryMax) {
		t.setPod(knobs.MemoryMax, knobs.Bytes(memory), "sum of its containers' batch resources")
	}
}

func (t *tuner) setGrant(i int, k knobs.Knob, v knobs.Value) {
	if t.has(k) {
		t.set(i, k, v, "batch resources")
		return
	}
	t.missing(i, batchKey, k.String()+" is not there: its controller is not mounted")
}

// tier returns the highest tier of the pod's containers. It is TierBatch for all that is not batch work,
// and for a pod whose containers have ended.
func (t *tuner) tier() (tier workload.Tier) {
	for i := range t.pod.Containers {
		r := &t.pod.Containers[i].Request
		if r.Class != workload.BE {
			return workload.TierBatch
		}
		if i == 0 {
			tier = r.Tier.Value
		}
		tier = max(tier, r.Tier.Value)
	}
	return tier
}

// sumWhy is the reason given for the weight of a pod with batch resources.
func (t *tuner) sumWhy() string {
	if tier := t.tier(); tier != workload.TierBatch {
		return "sum of its containers' batch resources, by tier " + tier.String()
	}
	return "sum of its containers' batch resources"
}

// weight sets the pod's single weight, which combines its batch resources, identity and pool.
func (t *tuner) weight() {
	percent := 0
	for i := range t.pod.Containers {
		percent = max(percent, t.pod.Containers[i].Request.Weight)
	}
	shares, why := t.shares, "weight of its pool"
	if tier := t.tier(); shares == 0 && tier != workload.TierBatch && t.pod.QoS == workload.BestEffort {
		percent, why = max(1, cmp.Or(percent, 100)*tier.Percent()/100), "tier "+tier.String()+" of batch work"
	}
	if t.pod.KeepWeight {
		shares, percent = 0, min(percent, 100)
		for i := range t.pod.Containers {
			if t.pod.Containers[i].Request.Weight > 100 {
				t.note(i, weightKey, "the kubelet takes CPU weights for requests (Kubernetes 1.37): the weight stays as it is")
			}
		}
	}
	scale := max(t.pod.WeightPercent, 100)
	switch {
	case t.idle: // the kernel refuses a weight
		for i := range t.pod.Containers {
			if t.pod.Containers[i].Request.Batch.CPURequest.Set {
				t.note(i, batchKey, "the pod has cpu.idle and with it no weight: its batch CPU ranks its containers, and the pod among other idle ones only where control.batch limits these by quota")
			}
		}
	case t.lowest:
		t.setPod(knobs.Weight, knobs.MinShares, "cpu-identity -1 by the lowest weight")
	case shares == 0 && (percent == 0 || percent == 100) && scale == 100:
	case !t.has(knobs.Weight):
		for i := range t.pod.Containers {
			t.missing(i, weightKey, "cpu.weight and cpu.shares are not there: the CPU controller is not mounted")
		}
	case shares > 0 && percent > 0:
		shares = knobs.Shares(percentOf(int64(shares), percent))
		t.weightScaled(Setting{Value: min(max(shares, knobs.MinShares), knobs.MaxShares), Why: "batch resources by the weight of its pool"}, scale)
	case shares > 0:
		t.weightScaled(Setting{Value: shares, Why: t.sumWhy()}, scale)
	case percent > 0:
		t.weightScaled(Setting{Percent: percent, Why: why}, scale)
	default:
		t.weightScaled(Setting{Percent: 100}, scale)
	}
}

// weightScaled sets the pod's weight, raised above that of batch work if batch work competes with
// it.
func (t *tuner) weightScaled(s Setting, percent int) {
	s.Knob = knobs.Weight
	switch {
	case percent == 100:
	case s.Why == "":
		s.ScalePercent, s.Why = percent, LSWeightWhy
	default:
		s.ScalePercent, s.Why = percent, s.Why+", "+LSWeightWhy
	}
	t.Pod = append(t.Pod, s)
}

// LSWeightWhy is the reason given for the larger weight of pods that are not batch work, and of
// the cgroups that hold them.
const LSWeightWhy = "ahead of batch work, which gets what is left"
