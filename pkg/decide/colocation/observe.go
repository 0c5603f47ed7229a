package colocation

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// These are the prefixes of the IDs of targets that are no containers.
const (
	BatchCgroupTarget = "box:" // followed by the path of a cgroup that holds batch pods and nothing else
	PodTarget         = "pod:" // followed by a pod's UID
	AllPodsTarget     = "pods" // the cgroup of all pods
)

// Observe adds a sample to the view. allPodsLimit is the memory limit of all pods together,
// with which the kubelet enforces the node's allocatable memory; 0 or less for none.
func (v *NodeView) Observe(s *observe.Snapshot, allPodsLimit knobs.Bytes) {
	nodes := append(v.Node.Memory.Nodes[:0], s.Node.Memory.Nodes...)
	v.Now, v.Node, v.CPUs = s.Now, s.Node, append(v.CPUs[:0], s.CPUs...)
	v.Node.Memory.Nodes = nodes
	if total := s.Node.Memory.Total; total > 0 { // from the same file as the available memory
		v.MemoryTotal, v.MachineMemory = total, total+s.Node.Memory.HugePages
	}
	sample := 0 // number of batch cgroups in the sample
	v.BatchUse, v.PodsUse = control.Use{At: s.Now}, control.Use{}
	clear(v.Held)
	for i := range v.HostApplications {
		v.HostApplications[i].CPU = control.Use{}
	}
	v.observeContainers(s)
	var pods *observe.ContainerMemory
	for _, i := range v.others {
		c := &s.Containers[i]
		if uid, ok := strings.CutPrefix(c.ID, PodTarget); ok {
			v.observePod(uid, c)
		} else if dir, ok := strings.CutPrefix(c.ID, BatchCgroupTarget); ok {
			v.hold(dir, c)
			if v.BatchCgroups.Holds(dir) {
				sample++
				v.BatchUse.Add(&c.CPU)
			}
			v.observeHost(dir, c)
		} else if c.ID == AllPodsTarget {
			v.PodsUse = control.Use{At: c.CPU.At, Usage: c.CPU.Usage}
			pods = &c.Memory
		}
	}
	v.observeAllPods(pods, int64(allPodsLimit))
	v.holdHosts()
	v.sumBatch(sample)
	v.observePools()
}

// observeContainers enters the usage of the containers that have changed, or of all if the sample doesn't tell which
// have.
func (v *NodeView) observeContainers(s *observe.Snapshot) {
	last := v.number
	v.number = s.Changes.Number
	if !s.Changes.Partial || last == 0 || v.number != last+1 {
		v.findContainers(s)
		for i := range s.Containers {
			v.observeContainer(s, i)
		}
		return
	}
	for _, i := range s.Changes.Containers {
		v.observeContainer(s, i)
		if uid, ok := strings.CutPrefix(s.Containers[i].ID, PodTarget); ok {
			v.observeContainersOf(uid, s)
		}
	}
}

// findContainers finds out which container each part of a sample describes.
func (v *NodeView) findContainers(s *observe.Snapshot) {
	v.inView, v.others = v.inView[:0], v.others[:0]
	v.inSample = slices.Grow(v.inSample[:0], len(v.Containers))[:len(v.Containers)]
	for at := range v.inSample {
		v.inSample[at] = -1
	}
	next := 0 // the container after the last one: most samples come in the containers' order
	for i := range s.Containers {
		at, ok := v.find(s.Containers[i].ID, next)
		if ok {
			v.inSample[at] = i
			next = at + 1
		} else {
			at = -1
			v.others = append(v.others, i)
		}
		v.inView = append(v.inView, at)
	}
}

// observeContainer enters part i of a sample, if it describes a container.
func (v *NodeView) observeContainer(s *observe.Snapshot, i int) {
	if at := v.inView[i]; at >= 0 {
		v.Containers[at].Container = s.Containers[i]
	}
}

// observeContainersOf enters a pod's containers again, without what observePod had applied to them.
func (v *NodeView) observeContainersOf(uid string, s *observe.Snapshot) {
	at, ok := v.pods[uid]
	if !ok {
		return
	}
	p := &v.Pods[at]
	for _, i := range v.inSample[p.First : p.First+p.Count] {
		if i >= 0 {
			v.observeContainer(s, i)
		}
	}
}

// find returns the index of a container, which a right guess finds without hashing the ID.
func (v *NodeView) find(id string, guess int) (at int, ok bool) {
	if guess < len(v.Containers) && v.Containers[guess].ID == id {
		return guess, true
	}
	at, ok = v.index[id]
	return at, ok
}

// hold records the memory of a batch cgroup or batch pod, if it is known.
func (v *NodeView) hold(cgroup string, c *observe.Container) {
	if !c.Memory.At.IsZero() {
		held := control.Held{At: c.Memory.At}
		held.Add(c)
		v.Held[cgroup] = held
	}
}

// observePod records the memory of a batch pod outside of batch cgroups. It also applies the
// throttling by a pod's quota to those of its containers that their own quota throttled less
// often: where burst lets a container exceed its own quota, the pod's quota is the one that
// throttles it.
func (v *NodeView) observePod(uid string, sample *observe.Container) {
	at, ok := v.pods[uid]
	if !ok {
		return
	}
	p, pod := &v.Pods[at], &sample.CPU
	if p.Class == workload.BE {
		v.hold(v.Members[p.First].PodPath, sample)
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

// observeAllPods replaces the node's memory by that of all pods together where they reach their
// limit before the machine runs short. While the pods' usage is unknown, the node's memory is
// unknown too: a limit computed from the machine's memory would be too high, and would have to
// come down in many steps.
func (v *NodeView) observeAllPods(pods *observe.ContainerMemory, limit int64) {
	m := &v.Node.Memory
	v.memoryOfPods = false
	if limit <= 0 {
		return
	}
	if pods == nil || pods.At.IsZero() {
		if limit < v.MemoryTotal {
			m.At = time.Time{}
		}
		return
	}
	available := limit - (pods.Current - pods.Cache)
	if available >= m.Available {
		return
	}
	v.memoryOfPods = true
	v.MemoryTotal, m.SwapHeld = limit, 0 // zram's memory is not charged to pods
	m.Total, m.Available, m.Free = limit, max(0, available), max(0, min(m.Free, limit-pods.Current))
	if pods.At.Before(m.At) {
		m.At = pods.At
	}
}

// sumBatch adds up the CPU and memory of batch work, in its cgroups and outside of them. A sum
// is unknown while one of its parts is. The number of batch cgroups in the sample is seen.
func (v *NodeView) sumBatch(sample int) {
	b := &v.BatchCgroups
	if len(b.Dirs) == 0 || sample != len(b.Dirs) {
		v.BatchUse = control.Use{}
	}
	v.BatchMemory = control.Held{At: v.Now}
	for _, dir := range b.Limited {
		if !v.IsHostApart(dir) {
			v.BatchMemory.Sum(v.Held[dir])
		}
	}
	pod := -1
	for _, i := range v.looseBatch {
		c := &v.Containers[i]
		v.BatchUse.Add(&c.CPU)
		held, whole := v.Held[v.Members[i].PodPath]
		switch {
		case !whole:
			v.BatchMemory.Add(&c.Container)
		case c.Pod != pod: // the containers of a pod follow each other
			pod = c.Pod
			v.BatchMemory.Sum(held)
		}
	}
}

// targets lists what must be observed. Batch work that shares CPUs with others is observed at
// each sample (Fast), as a whole if batch cgroups hold it.
func targets(inv *Inventory, b *BatchCgroups) []observe.Target {
	shares := func(cgroup string) bool { return inv.batchShares() && b.Bounds(cgroup) }
	all := make([]observe.Target, 0, len(inv.Containers)+len(b.Limited)+len(inv.HostApplications)+1)
	for _, dir := range b.Limited {
		all = append(all, observe.Target{ID: BatchCgroupTarget + dir, Path: dir, Fast: shares(dir), Memory: true})
	}
	for _, a := range inv.HostApplications {
		if !a.HoldsMemory {
			all = append(all, observe.Target{ID: BatchCgroupTarget + a.Cgroup, Path: a.Cgroup, Fast: shares(a.Cgroup), CPUOnly: true})
		}
	}
	if dir := inv.AllPodsCgroup(); dir != "" {
		all = append(all, observe.Target{ID: AllPodsTarget, Path: dir, Fast: len(b.Dirs) > 0 && !inv.ExclusivePools, Memory: true})
	}
	var pods []observe.Target
	for i := range inv.Containers {
		c := &inv.Containers[i]
		if c.Request == nil || !c.Started || !c.Reachable {
			continue
		}
		batch := c.Is(workload.BE)
		fast := batch && inv.batchShares() && !b.Holds(c.Above)
		fast = fast || c.Is(workload.LSR) && c.Pinned && inv.LendIdlePins
		service := c.Is(workload.LS) || c.Request.Class.Pinned()
		all = append(all, observe.Target{ID: c.ID, Path: c.Path, Fast: fast, LS: !batch, CPI: service && inv.CountCycles})
		if batch && c.PodPath != "" && !b.Holds(c.Above) && !c.SharedPodCgroup {
			pods = append(pods, observe.Target{ID: PodTarget + c.Pod.UID, Path: c.PodPath, CPUOnly: true, Memory: true})
		} else if c.PodPath != "" && (c.Request.Burst.Auto || inv.BurstAll || c.Request.Allow.Value&workload.Demote != 0) {
			pods = append(pods, observe.Target{ID: PodTarget + c.Pod.UID, Path: c.PodPath, CPUOnly: true})
		}
	}
	// Pods come after containers, because Observe needs the containers' own figures first. The
	// sampler observes a target that is listed twice only once.
	return append(all, pods...)
}
