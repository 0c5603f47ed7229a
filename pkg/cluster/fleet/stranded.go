package fleet

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
)

// UsualMemoryPerCPU is the memory for each CPU that a batch pod is taken to need where no pod tells:
// 4 GiB, as general-purpose machines have it.
const UsualMemoryPerCPU int64 = 4 << 30

// strand computes what of each node is free, and what of that is stranded for pods that need this
// much memory for each CPU: CPU beside which the node has no memory to sell, or memory without CPU.
func (s *Summary) strand(memoryPerCPU int64) {
	s.MemoryPerCPUBytes = memoryPerCPU
	if memoryPerCPU <= 0 {
		s.MemoryPerCPUBytes = s.boughtMemoryPerCPU()
	}
	groups := map[string]*Group{}
	for i := range s.Groups {
		groups[s.Groups[i].Name] = &s.Groups[i]
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.Reports() {
			continue
		}
		free := less(n.Report.Sellable.ShortTerm, n.Report.Bound)
		stranded := strandedOf(free, s.MemoryPerCPUBytes)
		n.Free, n.Stranded = &free, &stranded
		for _, g := range []*Group{groups[n.Group], &s.Total} {
			g.Free, g.Stranded = plus(g.Free, free), plus(g.Stranded, stranded)
		}
	}
}

// boughtMemoryPerCPU is the mean of what batch pods request, or the usual one if none requests both.
func (s *Summary) boughtMemoryPerCPU() int64 {
	b := plus(s.Total.Bound.ShortTerm, s.Total.Bound.LongTerm)
	if b.MilliCPU == 0 || b.MemoryBytes == 0 {
		return UsualMemoryPerCPU
	}
	return int64(min(max(float64(b.MemoryBytes)/float64(b.MilliCPU)*1000, 1), 1<<50))
}

// less is an amount without what both offers have bound, and at least nothing.
func less(a nodereport.Amount, bound nodereport.Offers) nodereport.Amount {
	b := plus(bound.ShortTerm, bound.LongTerm)
	return nodereport.Amount{MilliCPU: max(a.MilliCPU-b.MilliCPU, 0), MemoryBytes: max(a.MemoryBytes-b.MemoryBytes, 0)}
}

func strandedOf(free nodereport.Amount, memoryPerCPU int64) nodereport.Amount {
	cpus, memory := float64(free.MilliCPU)/1000, float64(free.MemoryBytes)
	return nodereport.Amount{
		MilliCPU:    int64(math.Round(max(cpus-memory/float64(memoryPerCPU), 0) * 1000)),
		MemoryBytes: int64(max(memory-cpus*float64(memoryPerCPU), 0)),
	}
}

// Benefit is what batch work got in the last 24 hours, what it cost, and what the nodes advise.
type Benefit struct {
	Groups []GroupBenefit `json:"groups"` // Groups in the order of the summary, and the total.
	Advice []NodeAdvice   `json:"advice"` // Advice of all nodes, such as pods that request much more than they use.
	Asked
}

// GroupBenefit is the benefit of some nodes.
type GroupBenefit struct {
	Name     string  `json:"name"`     // Name of the group.
	Answered int     `json:"answered"` // Number of nodes that answered.
	CPUHours float64 `json:"cpuHours"` // CPU-hours that batch work used in the last 24 hours.
	GiBHours float64 `json:"gibHours"` // Memory in GiB-hours that batch work used in the last 24 hours.
	Squeezes int     `json:"squeezes"` // Number of loop intervals of the last 24 hours in which batch work got less CPU.
	Evicted  int     `json:"evicted"`  // Number of pods that Sluice evicted in the last 24 hours.
}

// NodeAdvice is advice of a node.
type NodeAdvice struct {
	Node   string `json:"node"`   // Name of the node.
	Object string `json:"object"` // Pod, container or pool that it is about.
	Text   string `json:"text"`   // Advice in a sentence.
}

// AddBenefit adds what the nodes answered to the summary.
func (s *Summary) AddBenefit(loads []*NodeLoad, asked Asked) {
	b := &Benefit{Advice: []NodeAdvice{}, Asked: asked}
	group := map[string]string{}
	for i := range s.Nodes {
		group[s.Nodes[i].Name] = s.Nodes[i].Group
	}
	at := map[string]int{}
	for i, g := range append(slices.Clone(s.Groups), s.Total) {
		at[g.Name] = i
		b.Groups = append(b.Groups, GroupBenefit{Name: g.Name})
	}
	for _, n := range loads {
		for _, i := range []int{at[group[n.Node]], len(b.Groups) - 1} {
			g := &b.Groups[i]
			g.Answered, g.CPUHours, g.GiBHours, g.Squeezes, g.Evicted = g.Answered+1, g.CPUHours+n.CPUHours, g.GiBHours+n.GiBHours, g.Squeezes+n.Squeezes, g.Evicted+n.Evicted
		}
		for _, a := range n.Advice {
			b.Advice = append(b.Advice, NodeAdvice{n.Node, a.Object, a.Text})
		}
	}
	slices.SortFunc(b.Advice, func(x, y NodeAdvice) int { return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.Object, y.Object)) })
	s.Benefit = b
}
