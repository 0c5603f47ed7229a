package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// look makes the controllers' view of what runs here: pods, containers and pools,
// without what they do. Its slices are used again.
func (a *Agent) look() {
	l := &a.loop
	l.stale, l.looked, l.shareOf = false, a.ledger.Version(), notShared
	v := &l.view
	m := a.ledger.Machine()
	v.Shared = milli(a.ledger.Shared())
	v.Allocatable = milli(cpuset.Difference(m.Online, a.Config.Reserved))
	v.Capacity = milli(m.Online)
	v.ThreadsPerCore = m.ThreadsPerCore()
	v.MemoryTotal = a.facts().Memory
	v.NoReclaim = a.Reclaim == nil

	a.lookAtPools()
	clear(l.index)
	clear(l.pods)
	l.order = l.order[:0]
	for _, c := range a.order {
		if _, placed := a.ledger.Holder(c.ID); placed {
			l.order = append(l.order, c)
			if _, met := l.pods[c.pod.UID]; !met {
				l.pods[c.pod.UID] = len(l.pods)
			}
		}
	}
	slices.SortStableFunc(l.order, func(a, b *container) int { return l.pods[a.pod.UID] - l.pods[b.pod.UID] })
	v.Pods, v.Containers = v.Pods[:0], v.Containers[:0]
	for _, c := range l.order {
		a.lookAtContainer(c)
	}
	a.findBoxes()
	l.families = nil
	l.targets = a.toObserve()
}

// lookAtPools enters the pools' CPUs.
func (a *Agent) lookAtPools() {
	l := &a.loop
	l.view.Pools, l.inPool = l.view.Pools[:0], l.inPool[:0]
	for _, p := range a.ledger.Pools() {
		l.view.Pools = append(l.view.Pools, control.Pool{Name: p.Name})
		l.inPool = append(l.inPool, 0)
	}
	a.measurePools()
}

// measurePools enters the pools' sizes.
func (a *Agent) measurePools() {
	l := &a.loop
	l.sets, l.sized = l.sets[:0], a.ledger.Version()
	for i, p := range a.ledger.Pools() {
		l.sets = append(l.sets, p.CPUs)
		l.view.Pools[i].Size = p.CPUs.Size()
	}
}

// lookAtContainer enters a container, and with the first one its pod.
func (a *Agent) lookAtContainer(c *container) {
	v := &a.loop.view
	h, _ := a.ledger.Holder(c.ID)
	r := &h.Request
	at := a.loop.pods[c.pod.UID]
	if at == len(v.Pods) {
		v.Pods = append(v.Pods, control.Pod{
			UID: c.pod.UID, Ref: c.podRef, Class: r.Class, Since: h.Since,
			Labels: c.pod.Labels, Evict: r.Evict, Priority: r.Priority, First: len(v.Containers),
		})
	}
	p := &v.Pods[at]
	if rank(r.Class) < rank(p.Class) {
		p.Class = r.Class
	}
	p.Allow |= r.Allow.Value
	p.Count++
	a.loop.index[c.ID] = len(v.Containers)
	cpu, memory := r.Grant()
	entry := control.Container{
		Container: observe.Container{ID: c.ID},
		Ref:       c.ref, Pod: at, Pool: a.poolIndex(h), Class: r.Class, Since: h.Since, Unseen: !c.started || !a.reaches(c),
		Apart: a.apart(c, h), Created: created(c, h),
		Request: cpu, Limit: limit(c, r), Memory: memory, MemoryLimit: memoryLimit(c, r), Burst: r.Burst,
	}
	v.Containers = append(v.Containers, entry)
	if entry.Pool >= 0 {
		a.loop.inPool[entry.Pool]++
		pool := &v.Pools[entry.Pool]
		pool.Request += r.Milli // a grant of batch resources is no claim to a pool's CPUs
		pool.Quota = max(pool.Quota, entry.Limit)
	}
}

// rank orders classes by what they are owed, the most first.
func rank(c workload.Class) int {
	return slices.Index([]workload.Class{workload.System, workload.LSE, workload.LSR, workload.LS, workload.Unclassified, workload.BE}, c)
}

// apart reports whether a container has CPUs on which batch work never runs.
func (a *Agent) apart(c *container, h *placement.Holder) bool {
	if !h.CPUs.IsEmpty() || h.Request.Class == workload.System && !a.Config.System.IsEmpty() {
		return true
	}
	n := a.neighbour(peers.CPUManager)
	return n != nil && slices.ContainsFunc(n.Pins, func(p peers.Pin) bool { return p.PodUID == c.pod.UID && p.Container == c.Name })
}

// created is when the runtime made a container, which may have been before this run.
func created(c *container, h *placement.Holder) time.Time {
	if made := time.Unix(0, c.CreatedNanos); c.CreatedNanos > 0 && made.Before(h.Since) {
		return made
	}
	return h.Since
}

// poolIndex is the pool that a container shares, -1 where it has CPUs of its own.
func (a *Agent) poolIndex(h *placement.Holder) int {
	name := a.ledger.PoolOf(h)
	return slices.IndexFunc(a.loop.view.Pools, func(p control.Pool) bool { return p.Name == name })
}

// limit is a container's CPU limit, as the kubelet or its batch grant gave it.
func limit(c *container, r *workload.Request) workload.MilliCPU {
	kubelets := workload.MilliCPU(0)
	if c.quota.Finite() {
		kubelets = workload.MilliCPU(c.quota.Milli())
	}
	grant := r.Batch.CPULimit
	if !grant.Set {
		grant = r.Batch.CPURequest
	}
	if grant.Set && grant.Value > 0 && (kubelets == 0 || grant.Value < kubelets) {
		return grant.Value
	}
	return kubelets
}

func memoryLimit(c *container, r *workload.Request) int64 {
	limit := max(0, c.Resources.MemoryLimit)
	if grant := r.Batch.MemoryLimit; grant.Set && grant.Value > 0 && (limit == 0 || grant.Value < limit) {
		return grant.Value
	}
	return limit
}

// see enters what containers do into the view.
func (a *Agent) see(s *observe.Snapshot) {
	v := &a.loop.view
	nodes := append(v.Node.Memory.Nodes[:0], s.Node.Memory.Nodes...)
	v.Now, v.Node, v.CPUs = s.Now, s.Node, append(v.CPUs[:0], s.CPUs...)
	v.Node.Memory.Nodes = nodes
	if total := s.Node.Memory.Total; total > 0 { // by the file that says what is available
		v.MemoryTotal, a.loop.memTotal = total, total+s.Node.Memory.HugePages // the kubelet scores by all of it
	}
	boxes := 0
	v.BatchUse, v.PodsUse = control.Use{At: s.Now}, control.Use{}
	clear(a.loop.held)
	var pods *observe.ContainerMemory
	for i := range s.Containers {
		c := &s.Containers[i]
		if at, ok := a.loop.index[c.ID]; ok {
			v.Containers[at].Container = *c
		} else if uid, ok := strings.CutPrefix(c.ID, podTarget); ok {
			a.seePod(uid, c)
		} else if box, ok := strings.CutPrefix(c.ID, boxTarget); ok {
			a.loop.holds(box, &c.Memory)
			if slices.Contains(a.loop.boxes, box) {
				boxes++
				v.BatchUse.Add(&c.CPU)
			}
		} else if c.ID == allPodsTarget {
			v.PodsUse = control.Use{At: c.CPU.At, Usage: c.CPU.Usage}
			pods = &c.Memory
		}
	}
	a.seeAllPods(pods)
	a.seeBatch(boxes)
	apart := a.Config.Pools.Mode == config.Exclusive
	for i := range v.Pools {
		p := &v.Pools[i]
		p.At, p.Usage, p.Pressure = time.Time{}, 0, v.Node.Pressure.CPU
		p.Empty = a.loop.inPool[i] == 0
		if apart {
			p.At, p.Usage, p.Pressure = v.Node.CPU.At, 0, 0
			// What the system runs on an empty pool's CPUs is no load of the pool's.
			if !p.Empty {
				p.Usage = busy(v.CPUs, a.loop.sets[i])
			}
		}
	}
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Pool < 0 || c.CPU.At.IsZero() {
			continue
		}
		p := &v.Pools[c.Pool]
		if apart { // the node's pressure is that of batch work, which always waits
			p.Pressure = max(p.Pressure, c.Pressure.CPU)
			continue
		}
		p.Usage += c.CPU.Usage
		if c.CPU.At.After(p.At) {
			p.At = c.CPU.At
		}
	}
}

// boxTarget begins the id under which a cgroup that holds batch pods alone is looked at:
// one look for all of them.
const boxTarget = "box:"

// podTarget begins the id under which a pod's cgroup is looked at. Pods come after
// containers in the list of targets.
const podTarget = "pod:"

// holds enters what a box or a batch pod holds, where that is known.
func (l *loop) holds(cgroup string, m *observe.ContainerMemory) {
	if !m.At.IsZero() {
		held := control.Held{At: m.At}
		held.Add(m)
		l.held[cgroup] = held
	}
}

// seePod enters what a batch pod outside of boxes holds, and what a pod's quota did for those of its containers whose own did less:
// where burst lets a container use more than its quota, it is the pod's that ends.
func (a *Agent) seePod(uid string, seen *observe.Container) {
	v := &a.loop.view
	at, ok := a.loop.pods[uid]
	if !ok {
		return
	}
	p, pod := &v.Pods[at], &seen.CPU
	if p.Class == workload.BE {
		a.loop.holds(a.loop.order[p.First].podPath, &seen.Memory)
	}
	if pod.StatAt.IsZero() {
		return
	}
	for i := p.First; i < p.First+p.Count; i++ {
		if c := &v.Containers[i].CPU; pod.Throttled > c.Throttled {
			c.StatAt, c.Periods, c.Throttled, c.ThrottledTime = pod.StatAt, pod.Periods, pod.Throttled, pod.ThrottledTime
		}
	}
}

// allPodsTarget is the id under which the cgroup of all pods is looked at.
const allPodsTarget = "pods"

// allPods is the cgroup that holds all pods and the kubelet's of their classes, "" where
// there is none.
func (a *Agent) allPods() string {
	for _, c := range a.order {
		dir := c.box
		if besteffort(dir) || burstable(dir) {
			dir = parentOf(dir)
		}
		if dir != "" && dir != "/" {
			return dir
		}
	}
	return ""
}

// limitOfAllPods is what all pods together may hold, 0 where there is no limit.
func (a *Agent) limitOfAllPods() knobs.Bytes {
	dir := a.allPods()
	if dir == "" || a.Kernel == nil {
		return 0
	}
	limit, err := a.Kernel.Read(dir, knobs.MemoryMax)
	if err != nil {
		return 0
	}
	return max(0, limit.(knobs.Bytes))
}

// seeAllPods has the node's memory be what all pods together may have, where they run
// into that (the kubelet's enforced allocatable) before the machine runs short. Where
// what they use isn't known yet, the node's memory isn't either: a limit by the machine
// would be taken back in many steps.
func (a *Agent) seeAllPods(pods *observe.ContainerMemory) {
	v := &a.loop.view
	m, most := &v.Node.Memory, int64(a.loop.allPodsLimit)
	if most <= 0 {
		return
	}
	if pods == nil || pods.At.IsZero() {
		if most < v.MemoryTotal {
			m.At = time.Time{}
		}
		return
	}
	available := most - (pods.Current - pods.Cache)
	if available >= m.Available {
		return
	}
	v.MemoryTotal = most
	m.Total, m.Available, m.Free = most, max(0, available), max(0, min(m.Free, most-pods.Current))
	if pods.At.Before(m.At) {
		m.At = pods.At
	}
}

// seeBatch adds up what batch work uses and holds: its boxes, and what of it is outside. Not
// known where one of these isn't.
func (a *Agent) seeBatch(boxes int) {
	l := &a.loop
	v := &l.view
	if len(l.boxes) == 0 || boxes != len(l.boxes) {
		v.BatchUse = control.Use{}
	}
	v.BatchMemory = control.Held{At: v.Now}
	for _, box := range l.limited {
		v.BatchMemory.Sum(l.held[box])
	}
	pod := -1
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Class != workload.BE || c.Unseen || slices.Contains(l.boxes, l.order[i].box) {
			continue
		}
		v.BatchUse.Add(&c.CPU)
		held, whole := l.held[l.order[i].podPath]
		switch {
		case !whole:
			v.BatchMemory.Add(&c.Container.Memory)
		case c.Pod != pod: // those of a pod follow each other
			pod = c.Pod
			v.BatchMemory.Sum(held)
		}
	}
}

// busy is what runs on these CPUs.
func busy(cpus []observe.CPU, set cpuset.Set) workload.MilliCPU {
	sum := 0.0
	for id := range set.All() {
		if id < len(cpus) && cpus[id].Known {
			sum += cpus[id].Busy
		}
	}
	return workload.MilliCPU(sum * 1000)
}

func milli(cpus cpuset.Set) workload.MilliCPU { return workload.MilliCPU(cpus.Size()) * 1000 }

// toObserve lists what to look at. Batch work that shares CPUs is looked at each time,
// by its boxes where it has some.
func (a *Agent) toObserve() []observe.Target {
	boxes := a.loop.boxes
	if a.Config.Pools.Mode == config.Exclusive {
		boxes = nil
	}
	targets, pods := make([]observe.Target, 0, len(a.order)+len(boxes)+1), []observe.Target(nil)
	for _, box := range a.loop.limited {
		targets = append(targets, observe.Target{ID: boxTarget + box, Path: box, Fast: slices.Contains(boxes, box), Memory: true})
	}
	if all := a.allPods(); all != "" {
		targets = append(targets, observe.Target{ID: allPodsTarget, Path: all, Fast: len(boxes) > 0, Memory: true})
	}
	for _, c := range a.order {
		h, placed := a.ledger.Holder(c.ID)
		if !placed || !c.started || !a.reaches(c) {
			continue
		}
		batch := h.Request.Class == workload.BE
		fast := batch && a.Config.Pools.Mode != config.Exclusive && !slices.Contains(boxes, c.box)
		fast = fast || h.Request.Class == workload.LSR && !h.CPUs.IsEmpty() && a.lends()
		targets = append(targets, observe.Target{ID: c.ID, Path: c.path, Fast: fast, LS: !batch})
		if batch && c.podPath != "" && !slices.Contains(a.loop.boxes, c.box) && !a.shared(c.pod) {
			pods = append(pods, observe.Target{ID: podTarget + c.pod.UID, Path: c.podPath, CPUOnly: true, Memory: true})
		} else if c.podPath != "" && (h.Request.Burst.Auto || a.Config.Control.Burst.All) {
			pods = append(pods, observe.Target{ID: podTarget + c.pod.UID, Path: c.podPath, CPUOnly: true})
		}
	}
	return append(targets, pods...) // the sampler reads one that is there twice once
}
