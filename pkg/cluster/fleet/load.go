package fleet

import (
	"cmp"
	"slices"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// LoadSchema is the version of the shape of a Load. It grows when a field changes its meaning or is
// removed.
const LoadSchema = 1

// Asked is which of the asked nodes gave no answer.
type Asked struct {
	Failed  []Failure `json:"failed"`  // Nodes whose answer failed, in alphabetical order.
	Without []string  `json:"without"` // Nodes that were not asked, because no pod of Sluice is on them.
}

// Failure is why a node gave no answer.
type Failure struct {
	Node string `json:"node"` // Name of the node.
	Why  string `json:"why"`  // Reason in a sentence or two.
}

// Load is what the nodes of a cluster do now, and what batch work on them had in the last 24 hours.
type Load struct {
	Schema int        `json:"schema"` // Version of the shape.
	Nodes  []NodeLoad `json:"nodes"`  // Nodes that answered.
	Total  NodeLoad   `json:"total"`  // Sum of all nodes that answered; it has no state.
	Asked
}

// NodeLoad is what one node does. What a node does not know counts as 0.
type NodeLoad struct {
	Node      string            `json:"node"`            // Name of the node.
	State     string            `json:"state,omitempty"` // Selling, or the reason why the node sells nothing, as in the node's conditions.
	Why       string            `json:"why,omitempty"`   // The state in a sentence; absent if the node sells.
	Capacity  nodereport.Amount `json:"capacity"`        // CPU and memory that the node has.
	Used      nodereport.Amount `json:"used"`            // What the node uses, batch work included.
	Offer     nodereport.Amount `json:"offer"`           // Short-term offer to batch work.
	Sold      nodereport.Amount `json:"sold"`            // What the node's batch containers request.
	BatchUsed nodereport.Amount `json:"batchUsed"`       // What batch work uses.
	CPUHours  float64           `json:"cpuHours"`        // CPU-hours that batch work used in the last 24 hours.
	GiBHours  float64           `json:"gibHours"`        // Memory in GiB-hours that batch work used in the last 24 hours.
	Squeezes  int               `json:"squeezes"`        // Number of loop intervals of the last 24 hours in which batch work got less CPU.
	Evicted   int               `json:"evicted"`         // Number of pods that Sluice evicted in the last 24 hours.
	Disturbed []string          `json:"disturbed"`       // Services that wait longer than without batch work, as "namespace/pod".
	Advice    []control.Advice  `json:"-"`
}

// LoadOf reads a node's status. It fails if the status has an amount that no node can have.
func LoadOf(node string, s *status.Status) (*NodeLoad, error) {
	says, err := selling.NewReport(s)
	if err != nil {
		return nil, err
	}
	n := &NodeLoad{Node: node, State: Selling, Disturbed: []string{}, Capacity: atLeastNothing(int64(s.Machine.Online.Size())*1000, s.Machine.MemoryBytes)}
	for _, why := range []*selling.Reason{says.NotActing, says.Closed} {
		if why != nil {
			n.State, n.Why = why.Word, why.Text
			break
		}
	}
	for i := range s.Containers {
		if c := &s.Containers[i]; c.Class == workload.BE {
			n.Sold = plus(n.Sold, atLeastNothing(int64(c.Requested), c.RequestedMemoryBytes))
		}
	}
	loop := s.Loop
	if loop == nil {
		return n, nil
	}
	if late := s.Time.Sub(loop.MeasuredAt); says.NotActing == nil && late > says.Stall {
		n.State, n.Why = selling.LoopStalled, "The control loop has not measured the node since "+loop.MeasuredAt.UTC().Format("2006-01-02 15:04:05")+" UTC: 'kubectl sluice doctor' and the plugin's log say why."
	}
	if says.Used != nil {
		n.Used = *says.Used
	}
	if says.Known {
		n.Offer = nodereport.Amount{MilliCPU: says.Offer[selling.BatchCPU], MemoryBytes: says.Offer[selling.BatchMemory]}
	}
	n.BatchUsed = atLeastNothing(int64(loop.Batch.Used), loop.Memory.UsedBytes)
	day := &loop.Benefit.Day
	n.Advice = loop.Advice
	n.CPUHours, n.GiBHours, n.Squeezes, n.Evicted = day.CPUHours, day.GiBHours, day.Squeezes, day.Evicted
	for i := range loop.Disturbed {
		if d := &loop.Disturbed[i]; suffers(d) {
			n.Disturbed = append(n.Disturbed, d.Ref)
		}
	}
	return n, nil
}

// atLeastNothing is an amount of a node that may have been taken over, and says less than nothing.
func atLeastNothing(milli, bytes int64) nodereport.Amount {
	return nodereport.Amount{MilliCPU: max(milli, 0), MemoryBytes: max(bytes, 0)}
}

// suffers reports whether a service waits so much longer that it counts as disturbed.
func suffers(d *control.Disturbance) bool {
	e := &d.Excess
	return max(e.CPUFraction, e.MemoryFraction, e.IOFraction, e.RunDelayFraction, e.ThrottledFraction) > control.Suffers
}

// The orders of a Load's nodes.
const (
	ByTrouble = "trouble" // disturbed services, then evictions, then squeezes
	ByName    = "name"
	ByCPU     = "cpu"    // use of CPU, in parts of the node
	ByMemory  = "memory" // use of memory, in parts of the node
	ByOffer   = "offer"  // CPU
	BySold    = "sold"   // CPU
)

// LoadOfAll adds up nodes, and puts them into an order: those that have most come first.
func LoadOfAll(nodes []*NodeLoad, asked Asked, order string) *Load {
	l := &Load{Schema: LoadSchema, Nodes: []NodeLoad{}, Asked: asked, Total: NodeLoad{Node: "total", Disturbed: []string{}}}
	t := &l.Total
	for _, n := range nodes {
		l.Nodes = append(l.Nodes, *n)
		t.Capacity, t.Used, t.Offer, t.Sold, t.BatchUsed = plus(t.Capacity, n.Capacity), plus(t.Used, n.Used), plus(t.Offer, n.Offer), plus(t.Sold, n.Sold), plus(t.BatchUsed, n.BatchUsed)
		t.CPUHours, t.GiBHours, t.Squeezes, t.Evicted = t.CPUHours+n.CPUHours, t.GiBHours+n.GiBHours, t.Squeezes+n.Squeezes, t.Evicted+n.Evicted
		t.Disturbed = append(t.Disturbed, n.Disturbed...)
	}
	slices.SortFunc(l.Nodes, func(a, b NodeLoad) int {
		return cmp.Or(most(&a, &b, order), cmp.Compare(a.Node, b.Node))
	})
	return l
}

func most(a, b *NodeLoad, order string) int {
	switch order {
	case ByTrouble:
		return cmp.Or(cmp.Compare(len(b.Disturbed), len(a.Disturbed)), cmp.Compare(b.Evicted, a.Evicted), cmp.Compare(b.Squeezes, a.Squeezes))
	case ByCPU:
		return cmp.Compare(part(b.Used.MilliCPU, b.Capacity.MilliCPU), part(a.Used.MilliCPU, a.Capacity.MilliCPU))
	case ByMemory:
		return cmp.Compare(part(b.Used.MemoryBytes, b.Capacity.MemoryBytes), part(a.Used.MemoryBytes, a.Capacity.MemoryBytes))
	case ByOffer:
		return cmp.Compare(b.Offer.MilliCPU, a.Offer.MilliCPU)
	case BySold:
		return cmp.Compare(b.Sold.MilliCPU, a.Sold.MilliCPU)
	}
	return 0
}

func part(of, whole int64) float64 { return float64(of) / float64(max(whole, 1)) }

// Plugins returns the pods of Sluice's plugin on nodes, one for each, and the nodes without one, both
// in alphabetical order of the nodes.
func Plugins(nodes []Node, pods []Pod) (plugins []Pod, without []string) {
	on := map[string][]Pod{}
	for _, pod := range pods {
		on[pod.Node] = append(on[pod.Node], pod)
	}
	without = []string{}
	for i := range nodes {
		if pod := find(on[nodes[i].Name], "node"); pod != nil {
			plugins = append(plugins, *pod)
		} else {
			without = append(without, nodes[i].Name)
		}
	}
	slices.SortFunc(plugins, func(a, b Pod) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(without)
	return plugins, without
}
