package qos

import (
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// memory sets what protects the containers' memory or gives it up. The pod's protection is the
// sum of its containers', which would have no effect without it.
func (t *tuner) memory() {
	var least, low int64
	for i := range t.pod.Containers {
		c := &t.pod.Containers[i]
		limit := c.limit(grantOf(t.node, c))
		m, l := t.protect(i)
		least, low = least+m, low+l
		t.high(i, limit)
		t.watermark(i, limit)
		t.oomGroup(i)
		t.swap(i)
		t.offload(i)
		t.priority(i)
		t.pageCache(i, limit)
	}
	if least > 0 {
		t.setPod(knobs.MemoryMin, knobs.Bytes(least), "sum of its containers' memory.min")
	}
	if low > 0 {
		t.setPod(knobs.MemoryLow, knobs.Bytes(low), "sum of its containers' memory.low")
	}
	t.podWatermark()
	t.podPriority()
}

// protect sets a container's memory.min and memory.low and returns them. Each is a percentage
// of the request, and low is at least min if both are asked for.
func (t *tuner) protect(i int) (least, low int64) {
	r := &t.pod.Containers[i].Request
	q := &r.Tuning.Memory
	wantMin, wantLow := clampPercent(q.MinPercent), clampPercent(q.LowPercent)
	switch {
	case wantMin == 0 && wantLow == 0:
		return 0, 0
	case !t.has(knobs.MemoryMin) && !t.has(knobs.MemoryLow):
		t.missing(i, memoryKey, "memory.min and memory.low are not there (cgroup v2, or a vendor's kernel): nothing protects its memory")
		return 0, 0
	case r.Memory <= 0:
		t.note(i, memoryKey, "its memory request is not known, or it has none: there is nothing for memory.min and memory.low to protect")
		return 0, 0
	}
	if t.has(knobs.MemoryMin) {
		least = t.node.pages(percentOf(r.Memory, wantMin))
	}
	if t.has(knobs.MemoryLow) && wantLow > 0 {
		low = max(least, t.node.pages(percentOf(r.Memory, wantLow)))
	}
	if least > 0 {
		t.set(i, knobs.MemoryMin, knobs.Bytes(least), "memory-qos minPercent "+strconv.Itoa(wantMin)+" of the request")
	}
	if low > 0 {
		t.set(i, knobs.MemoryLow, knobs.Bytes(low), "memory-qos lowPercent "+strconv.Itoa(wantLow)+" of the request")
	}
	return least, low
}

func clampPercent(o workload.Optional[int]) int { return max(0, min(100, o.Value)) }

// high sets the usage at which the container begins to reclaim its own memory: a percentage of
// the way from its request to its limit, or to the node's allocatable memory if it has no
// limit. It sets nothing if the result is at the limit or above. The value is never below
// memory.min, which is at most the request. A percentage of 0 turns it off, as in Koordinator's
// throttlingPercent.
func (t *tuner) high(i int, limit int64) {
	r := &t.pod.Containers[i].Request
	percent := clampPercent(r.Tuning.Memory.HighPercent)
	if percent == 0 {
		return
	}
	end := limit
	if end == 0 {
		end = t.node.Memory
	}
	request := max(0, r.Memory)
	high := t.node.pages(request + percentOf(end-request, percent))
	if high <= 0 || high >= end {
		return // the limit, or the end of the node's memory, is reached first
	}
	why := "memory-qos highPercent " + strconv.Itoa(percent)
	old := t.node.before(5, 9)
	switch {
	case t.has(knobs.MemoryHigh) && !old:
		t.set(i, knobs.MemoryHigh, knobs.Bytes(high), why)
	case t.has(knobs.SoftLimit) && old && t.has(knobs.MemoryHigh):
		t.set(i, knobs.SoftLimit, knobs.Bytes(high), why)
		t.note(i, memoryKey, "memory.high before Linux 5.9 can stall its processes and is not used: memory.soft_limit_in_bytes instead, to which it is reclaimed when the node is short of memory")
	case t.has(knobs.SoftLimit):
		t.set(i, knobs.SoftLimit, knobs.Bytes(high), why)
		t.note(i, memoryKey, "memory.high is not there (cgroup v2): memory.soft_limit_in_bytes instead, to which it is reclaimed when the node is short of memory")
	case t.has(knobs.MemoryHigh):
		t.missing(i, memoryKey, "memory.high before Linux 5.9 can stall its processes and is not used")
	default:
		t.missing(i, memoryKey, "neither memory.high nor memory.soft_limit_in_bytes is there: only its limit bounds it")
	}
}

// before reports whether the kernel's release is older than major.minor. It is false for a
// release that can't be parsed.
func (n *Node) before(major, minor int) bool {
	first, rest, _ := strings.Cut(n.Release, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(rest)
	return errA == nil && errB == nil && (a < major || a == major && b < minor)
}

// defaultWmarkScale is the watermark scale of Anolis kernels: background reclaim begins at
// wmark_ratio percent of the limit, and ends wmark_scale_factor × 0.01 % of the limit below
// that.
const defaultWmarkScale = 50

// watermark sets where background reclaim of the container begins, either in the kernel's files
// or for the emulation.
func (t *tuner) watermark(i int, limit int64) {
	q := &t.pod.Containers[i].Request.Tuning.Memory
	ratio, scale := clampPercent(q.WmarkRatio), defaultWmarkScale
	if q.WmarkScale.Set {
		scale = max(1, min(1000, q.WmarkScale.Value))
	}
	switch {
	case t.has(knobs.WmarkRatio):
		t.setNumber(i, knobs.WmarkRatio, q.WmarkRatio, "memory-qos wmarkRatio")
		t.setNumber(i, knobs.WmarkScale, q.WmarkScale, "memory-qos wmarkScale")
	case ratio == 0:
	case !t.node.Features.Reclaim:
		t.missing(i, memoryKey, "neither memory.wmark_ratio (Anolis) nor memory.reclaim (cgroup v2, Linux 5.19) is there: nothing reclaims its memory before its limit")
	case limit == 0:
		t.note(i, memoryKey, "the container has no memory limit for a watermark to be a part of")
	default:
		start := percentOf(limit, ratio)
		target := t.reclaim(i)
		target.StartAt = knobs.Bytes(t.node.pages(start))
		target.Until = knobs.Bytes(t.node.pages(max(0, start-percentOf(limit, scale)/100)))
		t.note(i, memoryKey, "memory.wmark_ratio is not there: Sluice reclaims its memory above "+strconv.Itoa(ratio)+" % of the limit in small steps through memory.reclaim")
	}
	if q.WmarkMinAdj.Value != 0 && !t.has(knobs.WmarkMinAdj) {
		t.note(i, memoryKey, "memory.wmark_min_adj is not there: memory.low, where it asks for it, and the node's global watermark take its place")
		return
	}
	t.setNumber(i, knobs.WmarkMinAdj, q.WmarkMinAdj, "memory-qos wmarkMinAdj")
}

// setNumber sets a knob, if the kernel has it, to a number that was asked for.
func (t *tuner) setNumber(i int, k knobs.Knob, want workload.Optional[int], why string) {
	if want.Set && t.has(k) {
		t.set(i, k, knobs.Number(want.Value), why)
	}
}

// podWatermark gives the pod the watermark if all its containers have the same, as Koordinator
// does, since the pod has a limit of its own.
func (t *tuner) podWatermark() {
	if len(t.pod.Containers) == 0 {
		return
	}
	for _, k := range [...]knobs.Knob{knobs.WmarkRatio, knobs.WmarkScale, knobs.WmarkMinAdj} {
		if first, ok := Find(t.Containers[0], k); ok && t.agree(first) {
			t.setPod(k, first.Value, first.Why)
		}
	}
}

// agree reports whether every container has the setting.
func (t *tuner) agree(want Setting) bool {
	for _, settings := range t.Containers {
		if s, ok := Find(settings, want.Knob); !ok || s.Value != want.Value {
			return false
		}
	}
	return true
}

func (t *tuner) oomGroup(i int) {
	group := t.pod.Containers[i].Request.Tuning.Memory.OOMGroup
	switch {
	case !group.Set:
	case t.has(knobs.OOMGroup) && group.Value:
		t.set(i, knobs.OOMGroup, knobs.Number(1), "memory-qos oomGroup")
	case t.has(knobs.OOMGroup):
		t.set(i, knobs.OOMGroup, knobs.Number(0), "memory-qos oomGroup")
	case group.Value:
		t.missing(i, memoryKey, "memory.oom.group is not there (cgroup v2): the kernel kills one process of the container at a time")
	}
}

// swap keeps a container out of the node's swap, or lifts the kubelet's limit of what it may have
// there, if it asks for that. Without swap it writes nothing.
func (t *tuner) swap(i int) {
	swap := t.pod.Containers[i].Request.Tuning.Memory.Swap
	why := "memory-qos swap: " + swap.Value.String()
	switch {
	case !swap.Set || swap.Value == workload.SwapAllowed || !t.node.Swap:
	case swap.Value == workload.SwapUnlimited:
		if t.has(knobs.SwapMax) { // v1 limits memory and swap together, if at all
			t.set(i, knobs.SwapMax, knobs.Max, why)
		}
	case t.has(knobs.SwapMax):
		t.set(i, knobs.SwapMax, knobs.Bytes(0), why)
	case t.has(knobs.Swappiness):
		t.set(i, knobs.Swappiness, knobs.Number(0), why)
		t.note(i, memoryKey, "memory.swap.max is not there (cgroup v2): memory.swappiness 0 instead, with which its memory is swapped out only when the node has hardly any page cache left")
	default:
		t.missing(i, memoryKey, "neither memory.swap.max nor memory.swappiness is there: nothing keeps its memory out of swap")
	}
}

// offload has memory reclaimed that a container does not use, if it asks for that.
func (t *tuner) offload(i int) {
	switch {
	case !t.pod.Containers[i].Request.Tuning.Memory.Offload.Value:
	case t.node.Features.Reclaim:
		t.reclaim(i).Offload = true
	default:
		t.missing(i, memoryKey, "memory.reclaim (cgroup v2, Linux 5.19) is not there: memory that it does not use stays where it is")
	}
}

// priority ranks a container for the kernel's choice of what to kill. openEuler has two ranks,
// and BE gets the lower.
func (t *tuner) priority(i int) {
	r := &t.pod.Containers[i].Request
	want := r.Tuning.Memory.Priority
	offline := r.Class == workload.BE && !t.has(knobs.MemPriority) && t.has(knobs.MemoryQoS)
	if offline {
		t.set(i, knobs.MemoryQoS, knobs.Number(-1), "class BE is killed first")
	}
	switch {
	case !want.Set, offline:
	case t.has(knobs.MemPriority):
		t.set(i, knobs.MemPriority, knobs.Number(want.Value), "memory-qos priority")
	default:
		t.note(i, memoryKey, "memory.priority is not there (Anolis): its oom_score_adj ranks it when memory runs out")
	}
}

// podPriority gives the pod the highest priority of its containers, and makes the kernel use
// priorities within it.
func (t *tuner) podPriority() {
	highest := knobs.Number(-1)
	for _, settings := range t.Containers {
		if s, ok := Find(settings, knobs.MemPriority); ok {
			highest = max(highest, s.Value.(knobs.Number))
		}
	}
	if highest >= 0 {
		t.setPod(knobs.MemPriority, highest, "highest memory-qos priority of its containers")
		if t.has(knobs.PriorityOOM) {
			t.setPod(knobs.PriorityOOM, knobs.Number(1), "memory-qos priority of its containers")
		}
	}
	if len(t.Containers) > 0 {
		if s, ok := Find(t.Containers[0], knobs.MemoryQoS); ok && t.agree(s) {
			t.setPod(knobs.MemoryQoS, s.Value, s.Why)
		}
	}
}

// pageCache limits the page cache of BE containers, if the node's configuration asks for it.
func (t *tuner) pageCache(i int, limit int64) {
	percent := max(0, min(100, t.node.BEPageCachePercent))
	if percent == 0 || t.pod.Containers[i].Request.Class != workload.BE {
		return
	}
	why := "page cache of BE up to " + strconv.Itoa(percent) + " % of the limit"
	most := knobs.Bytes(t.node.pages(percentOf(limit, percent)))
	switch {
	case t.has(knobs.PageCacheMax):
		t.set(i, knobs.PageCacheMax, knobs.Number(percent), why)
	case limit == 0:
		t.note(i, pageCacheKey, "the container has no memory limit for its page cache to be a part of")
	case t.has(knobs.PageCache):
		t.set(i, knobs.PageCache, most, why)
	case t.node.Features.Reclaim:
		t.reclaim(i).CacheMax = most
		t.note(i, pageCacheKey, "no file limits page cache on this kernel: Sluice reclaims what is above "+strconv.Itoa(percent)+" % of the limit through memory.reclaim")
	default:
		t.missing(i, pageCacheKey, "neither a page cache limit (Anolis, TencentOS) nor memory.reclaim (cgroup v2, Linux 5.19) is there: its page cache is bounded by its limit alone")
	}
}
