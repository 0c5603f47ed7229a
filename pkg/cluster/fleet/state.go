package fleet

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// Selling is the state of a node that sells.
const Selling = selling.Selling

// These are the states that no condition has.
const (
	NodeNotReady    = "NodeNotReady"
	NotInstalled    = "NotInstalled"    // no pod of Sluice runs on the node
	NoSluiceKube    = "NoSluiceKube"    // the plugin does, and no sluice-kube
	NotRunning      = "NotRunning"      // sluice-kube does not run
	LeftBehind      = "LeftBehind"      // a report without a sluice-kube
	Unreadable      = "Unreadable"      // the report
	NothingReported = "NothingReported" // sluice-kube runs, and there is no report
)

// judge returns what a node says, and its state. Where no pod of sluice-kube was found in the
// namespace, it may run outside of pods, and what it has published is believed.
func judge(node *Node, pods []Pod, published bool) NodeReport {
	is := NodeReport{Name: node.Name, Capacity: node.Capacity}
	state := func(word, why string) NodeReport {
		is.State, is.Why = word, why
		return is
	}
	kube, plugin := find(pods, "kube"), find(pods, "node")
	ready, known := node.Conditions["Ready"]
	switch {
	case known && !ready.True:
		is.Since = ready.Since
		return state(NodeNotReady, "The node is not ready: "+strings.TrimRight(cmp.Or(ready.Text, ready.Reason, "it gives no reason"), ".")+".")
	case kube != nil && !kube.Ready:
		return state(NotRunning, fmt.Sprintf("Pod %s/%s does not run: %s.", kube.Namespace, kube.Name, cmp.Or(kube.Why, "it gives no reason")))
	case node.Report == "" && kube == nil && plugin == nil:
		return state(NotInstalled, "No pod of Sluice is on the node (--namespace names Sluice's namespace).")
	case node.Report == "" && kube == nil:
		return state(NoSluiceKube, "Sluice is on the node without sluice-kube, which tells the cluster what the node could sell: set kube.enabled among the chart's values.")
	case kube == nil && published:
		return state(LeftBehind, "The node has a report, and no sluice-kube that keeps it true: remove it with 'sluice-kube uninstall'.")
	case node.Report == "":
		if c := node.Conditions[selling.Ready]; c.Reason == selling.PodsUnknown {
			return state(c.Reason, c.Text)
		}
		return state(NothingReported, fmt.Sprintf("Pod %s/%s runs and has written no report: see its log.", kube.Namespace, kube.Name))
	}
	report, err := nodereport.Parse(node.Report)
	if err != nil {
		return state(Unreadable, "The node's "+err.Error()+".")
	}
	is.Report = report
	c := node.Conditions[selling.Ready]
	if open, known := node.Conditions[selling.BatchOpen]; known && open.Reason != selling.NotReady {
		c = open
	}
	is.Since = c.Since
	if c.True {
		return state(Selling, "")
	}
	return state(cmp.Or(c.Reason, NothingReported), cmp.Or(c.Text, "The node has a report, and lacks the conditions that come with it."))
}

// find returns a node's pod of a DaemonSet, preferably a ready one: while pods are replaced there are
// two. It returns nil if there is none.
func find(pods []Pod, part string) *Pod {
	var found *Pod
	for i := range pods {
		if isOf(pods[i].Component, part) && (found == nil || pods[i].Ready) {
			found = &pods[i]
		}
	}
	return found
}

// next says what to do next, in one sentence.
func next(s *Summary, pods []Pod) string {
	t := &s.Total
	states := map[string]int{}
	first := map[string]*NodeReport{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		states[n.State]++
		if first[n.State] == nil {
			first[n.State] = n
		}
	}
	namespace := "sluice"
	if len(pods) > 0 {
		namespace = pods[0].Namespace
	}
	broken := firstOf(first, NotRunning, Unreadable, NothingReported, selling.PodsUnknown, selling.PluginSilent, selling.LoopStalled, selling.RuntimeDisconnected)
	could := fmt.Sprintf("%s CPUs and %s", humanize.CPUs(t.Sellable.ShortTerm.MilliCPU), humanize.Bytes(t.Sellable.ShortTerm.MemoryBytes))
	switch {
	case t.Nodes == 0:
		return "No node matches: see the labels of all nodes with 'kubectl get nodes --show-labels'."
	case len(pods) == 0 && t.Reporting == 0:
		return "Install Sluice in preview, which changes nothing, with kube.enabled: docs/chart.md has the commands. If it is installed, name its namespace with --namespace."
	case states[NoSluiceKube] > 0 && t.Reporting == 0:
		return fmt.Sprintf("Let sluice-kube tell what the nodes could sell: helm upgrade sluice configs/helm/sluice -n %s --reuse-values --set kube.enabled=true", namespace)
	case broken != nil:
		return fmt.Sprintf("Find out why node %s is in state %s: %s", broken.Name, broken.State, broken.Why)
	case t.Reporting == 0:
		return "No node says what it could sell: see the states of the nodes above."
	case t.Selling == 0 && states[selling.Preview] > 0:
		return fmt.Sprintf("Nothing is sold yet, and the nodes could sell %s: to begin with one node, put it into a node group of the chart with mode: on, and control: {mode: on} in its config.", could)
	case t.Selling == 0:
		return fmt.Sprintf("Nothing is sold now, although the nodes could sell %s: see the states of the nodes above.", could)
	case states[selling.Preview] > 0:
		return fmt.Sprintf("%d of %s %s: set mode: on and control.mode: on for the %d that are in preview.", t.Selling, humanize.Count(t.Nodes, "node"), sell(t.Selling), states[selling.Preview])
	case t.Bound == (nodereport.Offers{}):
		return fmt.Sprintf("Batch work can have %s, and has nothing: install the chart with policies.batch, and let the pods of a namespace request it with 'kubectl label namespace NAMESPACE sluice.dev/batch=true'.", could)
	}
	return fmt.Sprintf("Nothing to do: %d of %s %s %s to batch work.", t.Selling, humanize.Count(t.Nodes, "node"), sell(t.Selling), could)
}

// sell is the verb after a number of nodes.
func sell(nodes int) string {
	if nodes == 1 {
		return "sells"
	}
	return "sell"
}

// firstOf returns the first node of the first listed state that has nodes. It returns nil if no listed
// state has any.
func firstOf(nodes map[string]*NodeReport, states ...string) *NodeReport {
	for _, state := range states {
		if nodes[state] != nil {
			return nodes[state]
		}
	}
	return nil
}
