package qos

import (
	"strconv"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// mechanism is a vendor kernel's way to rank CPU use.
type mechanism struct {
	knob   knobs.Knob
	values [4]knobs.Number // values for the identities -1, 0, 1, 2
	top    int             // highest identity that it distinguishes from those below
}

func (m *mechanism) value(level int) knobs.Number { return m.values[level+1] }

// mechanisms returns the vendor's knobs on this kernel, the best first. All of them are set. A
// mainline kernel has none.
func (n *Node) mechanisms() []mechanism {
	f := &n.Features
	if !n.identityCrashes() {
		if f.Has(knobs.BVT) {
			return []mechanism{{knobs.BVT, [4]knobs.Number{-1, 0, 1, 2}, 2}}
		}
		var both []mechanism
		if f.Has(knobs.CPUIdentity) {
			both = append(both, mechanism{knobs.CPUIdentity, [4]knobs.Number{-1, 0, 0, 1}, 2})
		}
		if f.Has(knobs.CPUPriority) {
			both = append(both, mechanism{knobs.CPUPriority, [4]knobs.Number{-1, 0, 1, 1}, 1})
		}
		if both != nil {
			return both
		}
	}
	switch {
	case f.Has(knobs.CPUQoS) && f.QoSLevels:
		return []mechanism{{knobs.CPUQoS, [4]knobs.Number{-1, 0, 1, 2}, 2}}
	case f.Has(knobs.CPUQoS):
		return []mechanism{{knobs.CPUQoS, [4]knobs.Number{-1, 0, 0, 0}, 0}}
	case f.Has(knobs.CgroupPriority):
		return []mechanism{{knobs.CgroupPriority, [4]knobs.Number{7, 0, 0, 0}, 0}}
	case f.Has(knobs.CPUOffline):
		return []mechanism{{knobs.CPUOffline, [4]knobs.Number{1, 0, 0, 0}, 0}}
	}
	return nil
}

func (n *Node) identityCrashes() bool { return knobs.GroupIdentityCrashes(n.Release) }

// IdleClass reports whether BestEffort pods of the lowest CPU priority are in the idle class
// (cpu.idle), in which the kernel knows no weights.
func (n *Node) IdleClass() bool { return n.mechanisms() == nil && n.Features.Has(knobs.Idle) }

// identity gives each container the CPU priority that it asks for, and the pod the highest of
// these, since the containers of a pod compete within it. A container that asks for none counts
// as normal.
func (t *tuner) identity() {
	highest, requested := -1, false
	for i := range t.pod.Containers {
		id := t.pod.Containers[i].Request.Identity
		requested = requested || id.Set
		highest = max(highest, clampIdentity(id))
	}
	if !requested {
		return
	}
	mechanisms := t.node.mechanisms()
	if t.node.identityCrashes() {
		for i := range t.pod.Containers {
			if t.pod.Containers[i].Request.Identity.Set {
				t.note(i, identityKey, "kernel "+t.node.Release+" crashes the host when group identity is used: CPU weights take its place; 4.19.91-25.6 is the first that is safe")
			}
		}
	}
	if mechanisms == nil {
		t.mainline(highest)
		return
	}
	for _, m := range mechanisms {
		t.setPod(m.knob, m.value(highest), "cpu-identity "+strconv.Itoa(highest))
	}
	if mechanisms[0].knob == knobs.CgroupPriority && highest < 0 && t.shares > 0 && t.has(knobs.BTShares) {
		t.setPod(knobs.BTShares, t.shares, t.sumWhy()+", among those of cpu-identity -1")
	}
	for i := range t.pod.Containers {
		t.native(i, mechanisms, highest)
	}
}

// clampIdentity limits an identity to -1..2; it is 0 if none is set.
func clampIdentity(id workload.Optional[int]) int { return max(-1, min(2, id.Value)) }

// native sets the vendor's knobs on a container.
func (t *tuner) native(i int, mechanisms []mechanism, pod int) {
	r := &t.pod.Containers[i].Request
	level := clampIdentity(r.Identity)
	first := &mechanisms[0]
	if first.knob.GroupIdentity() && r.CoreSched != "" && (level != 0 || pod != 0) {
		t.missing(i, coreSchedKey, first.knob.String()+" is in force and excludes core scheduling: its core-sched group is dropped; ask for cpu-identity 0, or for no core-sched group")
	}
	if !r.Identity.Set {
		return
	}
	why := "cpu-identity " + strconv.Itoa(level)
	for _, m := range mechanisms {
		t.set(i, m.knob, m.value(level), why)
	}
	if first.knob == knobs.CgroupPriority && level < 0 && r.Batch.CPURequest.Set && t.has(knobs.BTShares) {
		t.set(i, knobs.BTShares, knobs.RequestShares(int64(r.Batch.CPURequest.Value)), "batch resources, among those of cpu-identity -1")
	}
	if level > first.top {
		t.unranked(i, level, first.knob.Expels(), first.knob.String()+" has nothing above normal on this kernel")
	}
}

// unranked adds a note about an identity above normal that the kernel does not support.
func (t *tuner) unranked(i, level int, expels bool, lacks string) {
	if level == 2 && !expels {
		t.missing(i, identityKey, lacks+": its CPU weight ranks it, and nothing keeps its SMT siblings free of cpu-identity -1")
		return
	}
	t.note(i, identityKey, lacks+": its CPU weight ranks it")
}

// mainline ranks by cpu.idle and weights. It does not set cpu.idle where the kubelet or the
// runtime writes the weight, because the kernel would refuse their writes. That excludes
// containers, whose weight every runtime update writes, and pods with CPU requests, whose
// weight the kubelet writes at a resize.
func (t *tuner) mainline(highest int) {
	var lowest string // why a low weight replaces cpu.idle
	switch {
	case highest >= 0:
	case t.pod.QoS != workload.BestEffort && t.pod.QoS != workload.UnknownQoS:
		lowest = "the kubelet writes the weight of a " + t.pod.QoS.String() + " pod, which cpu.idle would refuse: the pod has the lowest CPU weight instead"
	case !t.has(knobs.Idle):
		lowest = "cpu.idle is not there (Linux 5.15): the pod has the lowest CPU weight instead"
	default:
		t.idle = true
		t.setPod(knobs.Idle, knobs.Number(1), "cpu-identity -1")
	}
	if lowest != "" {
		if t.lowest = t.has(knobs.Weight); !t.lowest {
			lowest = "neither cpu.idle nor a CPU weight is there: the CPU controller is not mounted"
		} else if t.shares > 0 && t.pod.QoS == workload.BestEffort {
			// The cgroup of the QoS class has the lowest weight already.
			t.lowest = false
			lowest = "cpu.idle is not there (Linux 5.15): the kubelet's besteffort cgroup has the lowest CPU weight, and the pod its batch resources' within it"
		}
	}
	for i := range t.pod.Containers {
		r := &t.pod.Containers[i].Request
		switch level := clampIdentity(r.Identity); {
		case !r.Identity.Set:
		case level > 0:
			t.unranked(i, level, false, "this kernel has no group identity")
		case level == 0 || t.idle:
		case highest >= 0:
			t.lowContainer(i, r)
		case t.has(knobs.Weight):
			t.note(i, identityKey, lowest)
		default:
			t.missing(i, identityKey, lowest)
		}
	}
}

// lowContainer ranks a container below others of its pod. Its weight can be in the runtime's
// record, so that updates keep it.
func (t *tuner) lowContainer(i int, r *workload.Request) {
	switch {
	case !t.has(knobs.Weight):
		t.missing(i, identityKey, "neither group identity nor a CPU weight is there: the CPU controller is not mounted")
		return
	case !r.Batch.CPURequest.Set: // otherwise the grant sets that weight
		t.set(i, knobs.Weight, knobs.MinShares, "cpu-identity -1 in a pod of higher identity")
	}
	t.note(i, identityKey, "other containers of the pod have a higher identity, and cpu.idle is of whole pods: its CPU weight ranks it below them")
}
