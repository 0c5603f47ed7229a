package sim

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// shape describes the CPUs of a part's cells and the siblings of their threads.
type shape struct {
	cells  []cpuset.Set
	inside []float64 // number of CPUs whose sibling is in the same cell, by cell
	across [][]link  // CPUs whose sibling is in another cell, by cell
}

// link is a number of CPUs whose siblings are in another cell.
type link struct {
	part, cell int
	cpus       float64
}

// arrange builds the sharer's input from the cgroups if they have changed.
func (n *simNode) arrange() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.arranged == n.version {
		return
	}
	n.arranged = n.version
	n.sharer.entities, n.groups = n.sharer.entities[:0], n.groups[:0]
	byPath := map[string]*container{}
	for _, c := range n.containers {
		byPath[c.path] = c
	}
	n.enter(n.Kernel.groups["/"], -1, byPath)
	n.divideCPUs()
	n.sharer.arrange()
	n.weigh(byPath)
	n.limitCPU()
	n.limitMemory()
}

// bandwidth is a cgroup's CFS bandwidth, valid until the cgroups change.
type bandwidth struct {
	quota   float64 // in CPUs; +Inf if unlimited
	seconds float64 // seconds of quota per step
	burst   float64 // in seconds
}

func (n *simNode) limitCPU() {
	n.bandwidths = n.bandwidths[:0]
	for _, g := range n.groups {
		b := bandwidth{quota: math.Inf(1)}
		if q := g.quota(); !q.Unlimited() {
			b.quota = q.CPUs()
			b.seconds = b.quota * n.step.Seconds()
			b.burst = time.Duration(g.value(knobs.Burst).(knobs.CPUBurst)).Seconds()
		}
		n.bandwidths = append(n.bandwidths, b)
	}
}

// enter adds a cgroup that has processes and those below it.
func (n *simNode) enter(g *group, parent int, containers map[string]*container) (populated bool) {
	at := len(n.sharer.entities)
	e := entity{parent: parent, weight: g.weight(), limit: math.Inf(1)}
	e.leaf = g.pid != 0
	n.sharer.entities, n.groups = append(n.sharer.entities, e), append(n.groups, g)
	if e.leaf {
		containers[g.path].entity = at
		return true
	}
	for _, c := range g.children {
		populated = n.enter(c, at, containers) || populated
	}
	if !populated && parent >= 0 {
		n.sharer.entities, n.groups = n.sharer.entities[:at], n.groups[:at]
	}
	return populated
}

// idleWeight is cpu.weight of WEIGHT_IDLEPRIO, whose scale has 1024 for weight 100
// (kernel/sched/sched.h).
const idleWeight = 3.0 / 1024 * 100

// weight is the group's cpu.weight in the kernel, by the conversion of the runtimes of today.
func (g *group) weight() float64 {
	if g.value(knobs.Idle) == knobs.Number(1) {
		return idleWeight
	}
	return float64(cgroupfs.RuncWeightOf(g.value(knobs.Weight).(knobs.Shares)))
}

// divideCPUs finds the parts of the machine that containers share and the cells of each part.
func (n *simNode) divideCPUs() {
	var sets []cpuset.Set
	var wholes []cpuset.Set // unions of overlapping sets
	for i := range n.sharer.entities {
		if !n.sharer.entities[i].leaf {
			continue
		}
		set := n.effective(n.groups[i], knobs.CPUs)
		if !slices.Contains(sets, set) {
			sets = append(sets, set)
			wholes = merge(wholes, set)
		}
	}
	n.sharer.parts, n.shape = make([]part, len(wholes)), make([]shape, len(wholes))
	for i, whole := range wholes {
		s := &n.shape[i]
		s.cells = cells(whole, sets)
		s.inside, s.across = make([]float64, len(s.cells)), make([][]link, len(s.cells))
		for _, c := range s.cells {
			n.sharer.parts[i].cells = append(n.sharer.parts[i].cells, cell{cpus: float64(c.Size())})
		}
	}
	for i := range n.sharer.entities {
		e := &n.sharer.entities[i]
		if !e.leaf {
			continue
		}
		set := n.effective(n.groups[i], knobs.CPUs)
		e.part = slices.IndexFunc(wholes, set.Overlaps)
		for c, cpus := range n.shape[e.part].cells {
			if cpus.SubsetOf(set) {
				e.cells |= 1 << c
			}
		}
	}
	n.pair()
}

// merge adds a set to disjoint sets, and joins it with those that it overlaps.
func merge(all []cpuset.Set, set cpuset.Set) []cpuset.Set {
	apart := all[:0]
	for _, s := range all {
		if s.Overlaps(set) {
			set = cpuset.Union(set, s)
		} else {
			apart = append(apart, s)
		}
	}
	return append(apart, set)
}

// maxCells is the maximum number of cells of a part. Further CPUs stay idle; pools never overlap
// in so many ways.
const maxCells = 64

// cells divides CPUs by the sets that contain them.
func cells(whole cpuset.Set, sets []cpuset.Set) []cpuset.Set {
	all := []cpuset.Set{whole}
	for _, set := range sets {
		for i, n := 0, len(all); i < n && len(all) < maxCells; i++ {
			if in := cpuset.Intersect(all[i], set); !in.IsEmpty() && in != all[i] {
				all = append(all, cpuset.Difference(all[i], set))
				all[i] = in
			}
		}
	}
	return all
}

// pair counts which cells the siblings of a cell's CPUs are in. More than two threads per core
// count as pairs.
func (n *simNode) pair() {
	for i := range n.shape {
		s := &n.shape[i]
		for c, cpus := range s.cells {
			for cpu := range cpus.All() {
				at, _ := n.machine.CPU(cpu)
				others := n.machine.Cores[at.Core].CPUs
				others.Remove(cpu)
				if others.IsEmpty() {
					continue
				}
				n.link(s, c, others.First())
			}
		}
	}
}

func (n *simNode) link(s *shape, c, sibling int) {
	if s.cells[c].Contains(sibling) {
		s.inside[c]++
		return
	}
	for p2 := range n.shape {
		for c2, cpus := range n.shape[p2].cells {
			if !cpus.Contains(sibling) {
				continue
			}
			at := slices.IndexFunc(s.across[c], func(l link) bool { return l.part == p2 && l.cell == c2 })
			if at < 0 {
				at = len(s.across[c])
				s.across[c] = append(s.across[c], link{part: p2, cell: c2})
			}
			s.across[c][at].cpus++
		}
	}
}

// weigh computes each container's share of the node by weight.
func (n *simNode) weigh(containers map[string]*container) {
	all := n.sharer.entities
	sums := make([]float64, len(all))
	for i := range all {
		if all[i].parent >= 0 {
			sums[all[i].parent] += all[i].weight
		}
	}
	share, idle := make([]float64, len(all)), make([]bool, len(all))
	for i := range all {
		share[i] = 1
		if up := all[i].parent; up >= 0 {
			share[i] = share[up] * all[i].weight / sums[up]
			idle[i] = idle[up]
		}
		idle[i] = idle[i] || n.groups[i].value(knobs.Idle) == knobs.Number(1)
		if all[i].leaf {
			c := containers[n.groups[i].path]
			c.weight, c.idle = share[i], idle[i]
			all[i].idle = idle[i]
		}
	}
}
