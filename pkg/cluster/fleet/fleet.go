// Package fleet adds up what the nodes of a cluster say of themselves. It is pure.
package fleet

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
)

// Schema is the version of the shape of a Summary. It grows when a field changes its meaning or is
// removed.
const Schema = 1

// Node is what the API server has of a node.
type Node struct {
	Name       string
	Labels     map[string]string
	Capacity   nodereport.Amount
	Report     string               // value of the annotation; "" if there is none
	Conditions map[string]Condition // Ready, and those of Sluice, by type; others may be missing
}

// Condition is a condition of a node.
type Condition struct {
	True         bool
	Reason, Text string
	Since        time.Time
}

// Pod is a pod of Sluice.
type Pod struct {
	Namespace, Name, Node string
	Component             string // value of the label app.kubernetes.io/component, as "kube-canary"
	Ready                 bool
	Why                   string // why it is not ready
}

// Summary is what a cluster could sell to batch work.
type Summary struct {
	Schema int          `json:"schema"`       // Version of the shape.
	By     string       `json:"by,omitempty"` // Label whose values are the groups; absent if these are the node groups of the chart.
	Groups []Group      `json:"groups"`       // Groups in alphabetical order.
	Total  Group        `json:"total"`        // All nodes.
	Nodes  []NodeReport `json:"nodes"`        // Nodes in alphabetical order.
	Next   string       `json:"next"`         // What to do next.

	MemoryPerCPUBytes int64    `json:"memoryPerCPUBytes"` // Memory for each CPU of the pods for which capacity is stranded, in bytes.
	Benefit           *Benefit `json:"benefit,omitempty"` // What batch work got and cost; absent if the nodes were not asked.
}

// Group is some nodes. Its amounts are those of the nodes that report what could be sold.
type Group struct {
	Name      string            `json:"name"`      // Name of the group; in parentheses if the nodes are in none.
	Nodes     int               `json:"nodes"`     // Number of nodes.
	Reporting int               `json:"reporting"` // Number of nodes that report what could be sold.
	Selling   int               `json:"selling"`   // Number of nodes that sell now.
	Capacity  nodereport.Amount `json:"capacity"`  // CPU and memory that the nodes have.
	Requested nodereport.Amount `json:"requested"` // What pods request, without batch resources.
	Used      nodereport.Amount `json:"used"`      // What the nodes use, batch work included.
	Sellable  nodereport.Offers `json:"sellable"`  // What could be sold in all, whether it is sold or not.
	Bound     nodereport.Offers `json:"bound"`     // Batch resources that pods request.
	Free      nodereport.Amount `json:"free"`      // What could be sold for now and no pod requests.
	Stranded  nodereport.Amount `json:"stranded"`  // What of that no pod can buy: CPU without memory on the same node, and memory without CPU.

	Scheduling *GroupScheduling `json:"scheduling,omitempty"` // Overcommit of the nodes, and the room on them; absent if no node tells.
}

// GroupScheduling is what the containers of some nodes request of their CPUs, and what they could
// request more.
type GroupScheduling struct {
	Nodes               int     `json:"nodes"`                  // Number of nodes that tell their overcommit.
	AllocatableMilliCPU int64   `json:"allocatableMilliCPU"`    // CPUs that pods may have on these nodes, in thousandths of a CPU.
	OvercommitRatio     float64 `json:"overcommitRatio"`        // What their containers request, batch resources included, divided by that.
	RoomNodes           int     `json:"roomNodes"`              // Number of nodes that tell their room.
	RoomMilliCPU        *int64  `json:"roomMilliCPU,omitempty"` // CPU that new containers can request on them beside what the pools need, in thousandths of a CPU; absent if no node tells.
}

// NodeReport is one node.
type NodeReport struct {
	Name     string             `json:"name"`               // Name of the node.
	Group    string             `json:"group"`              // Name of its group.
	State    string             `json:"state"`              // Selling, or why it does not sell: the reason of a condition, or one of the states of this package.
	Why      string             `json:"why,omitempty"`      // The state in a sentence; absent if the node sells.
	Since    time.Time          `json:"since,omitzero"`     // Time of the last change of the condition; absent if the state is not of a condition.
	Capacity nodereport.Amount  `json:"capacity"`           // CPU and memory that the node has.
	Free     *nodereport.Amount `json:"free,omitempty"`     // What could be sold for now and no pod requests; absent if it is not known.
	Stranded *nodereport.Amount `json:"stranded,omitempty"` // What of that no pod can buy; absent if it is not known.
	Report   *nodereport.Report `json:"report,omitempty"`   // What the node says of itself; absent if it says nothing that can be believed.
}

// Reports reports whether the node says what could be sold.
func (n *NodeReport) Reports() bool { return n.Report != nil && n.Report.Sellable != nil }

// These are the groups of nodes that are in none.
const (
	NoGroup  = "(no group)"
	NoLabel  = "(no label)"
	NoSluice = "(no Sluice)"
)

// Summarize adds up the nodes by the values of a label, or if that is "", by the node groups of the
// chart: the pods of a group have its name in the label app.kubernetes.io/component. The chart puts
// no label on nodes, and a node belongs to the first group that its labels match, which only the
// DaemonSets know.
//
// Capacity is stranded for pods that need memoryPerCPU bytes for each CPU; 0 takes the mean of what
// batch pods request.
func Summarize(nodes []Node, pods []Pod, by string, memoryPerCPU int64) *Summary {
	on := map[string][]Pod{}
	published := false
	for _, pod := range pods {
		on[pod.Node] = append(on[pod.Node], pod)
		published = published || isOf(pod.Component, "kube")
	}
	s := &Summary{Schema: Schema, By: by, Groups: []Group{}, Nodes: []NodeReport{}, Total: Group{Name: "total"}}
	groups := map[string]*Group{}
	for i := range nodes {
		node := judge(&nodes[i], on[nodes[i].Name], published)
		node.Group = groupOf(&nodes[i], on[nodes[i].Name], by)
		if groups[node.Group] == nil {
			groups[node.Group] = &Group{Name: node.Group}
		}
		groups[node.Group].add(&node)
		s.Total.add(&node)
		s.Nodes = append(s.Nodes, node)
	}
	for _, group := range groups {
		s.Groups = append(s.Groups, *group)
	}
	slices.SortFunc(s.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(rank(a.Name), rank(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Nodes, func(a, b NodeReport) int { return cmp.Compare(a.Name, b.Name) })
	s.strand(memoryPerCPU)
	s.Next = next(s, pods)
	return s
}

// rank puts the nodes of no group behind the groups.
func rank(name string) int {
	if strings.HasPrefix(name, "(") {
		return 1
	}
	return 0
}

// groupOf returns the name of a node's group.
func groupOf(node *Node, pods []Pod, by string) string {
	if by != "" {
		return cmp.Or(node.Labels[by], NoLabel)
	}
	for _, pod := range pods {
		for _, part := range []string{"node", "kube"} {
			if isOf(pod.Component, part) {
				return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(pod.Component, part), "-"), NoGroup)
			}
		}
	}
	if node.Report != "" {
		return NoGroup
	}
	return NoSluice
}

// isOf reports whether a component is the DaemonSet "node" or "kube", of any group.
func isOf(component, part string) bool {
	return component == part || strings.HasPrefix(component, part+"-")
}

func (g *Group) add(n *NodeReport) {
	g.Nodes++
	if n.State == Selling {
		g.Selling++
	}
	if n.Report != nil && n.Report.Scheduling != nil {
		if g.Scheduling == nil {
			g.Scheduling = &GroupScheduling{}
		}
		g.Scheduling.add(n.Report.Scheduling)
	}
	if !n.Reports() {
		return
	}
	g.Reporting++
	r := n.Report
	g.Capacity, g.Requested = plus(g.Capacity, n.Capacity), plus(g.Requested, r.Requested)
	if r.Used != nil {
		g.Used = plus(g.Used, *r.Used)
	}
	g.Sellable, g.Bound = both(g.Sellable, *r.Sellable), both(g.Bound, r.Bound)
}

// add counts a node's overcommit by its CPUs.
func (g *GroupScheduling) add(s *nodereport.Scheduling) {
	sum := float64(g.AllocatableMilliCPU) + float64(s.AllocatableMilliCPU)
	if sum > 0 {
		g.OvercommitRatio += (s.OvercommitRatio - g.OvercommitRatio) * float64(s.AllocatableMilliCPU) / sum
	}
	g.Nodes, g.AllocatableMilliCPU = g.Nodes+1, sumOf(g.AllocatableMilliCPU, s.AllocatableMilliCPU)
	if s.RoomMilliCPU == nil {
		return
	}
	if g.RoomNodes++; g.RoomMilliCPU == nil {
		g.RoomMilliCPU = new(int64)
	}
	*g.RoomMilliCPU = sumOf(*g.RoomMilliCPU, *s.RoomMilliCPU)
}

func both(a, b nodereport.Offers) nodereport.Offers {
	return nodereport.Offers{ShortTerm: plus(a.ShortTerm, b.ShortTerm), LongTerm: plus(a.LongTerm, b.LongTerm)}
}

func plus(a, b nodereport.Amount) nodereport.Amount {
	return nodereport.Amount{MilliCPU: sumOf(a.MilliCPU, b.MilliCPU), MemoryBytes: sumOf(a.MemoryBytes, b.MemoryBytes)}
}

// sumOf does not overflow: thousands of nodes may each have the largest amount.
func sumOf(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }
