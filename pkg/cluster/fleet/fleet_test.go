package fleet

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

func reportOf(sellable, bound int64) string {
	text, _ := (&nodereport.Report{
		Schema: nodereport.Schema, Sellable: &nodereport.Offers{ShortTerm: nodereport.Amount{MilliCPU: sellable}}, Bound: nodereport.Offers{LongTerm: nodereport.Amount{MilliCPU: bound}},
	}).Text()
	return text
}

// node is a node with a report, whose condition SluiceReady has this reason.
func node(name, report, reason string) Node {
	return Node{Name: name, Report: report, Conditions: map[string]Condition{selling.Ready: {True: reason == selling.Acting, Reason: reason, Text: "The text of " + reason + "."}}}
}

func open(n Node) Node {
	n.Conditions[selling.BatchOpen] = Condition{True: true, Reason: selling.Selling}
	return n
}

// While pods are replaced, a node has two: the one that runs counts.
func TestReplacedPod(t *testing.T) {
	t.Parallel()
	ready, ends := Pod{Node: "n", Component: "kube", Ready: true}, Pod{Node: "n", Component: "kube", Why: "Terminating"}
	for _, pods := range [][]Pod{{ready, ends}, {ends, ready}} {
		if s := Summarize([]Node{open(node("n", reportOf(1, 0), selling.Acting))}, pods, "", 0); s.Nodes[0].State != Selling {
			t.Errorf("%+v: %+v", pods, s.Nodes[0])
		}
	}
	if s := Summarize([]Node{open(node("n", reportOf(1, 0), selling.Acting))}, []Pod{ends}, "", 0); s.Nodes[0].State != NotRunning || !strings.Contains(s.Nodes[0].Why, "Terminating") {
		t.Errorf("without the one that runs: %+v", s.Nodes[0])
	}
}

// A node that does not sell although Sluice acts tells why, and one that sells beside a shortcoming sells.
func TestStateIsOfTheTellingCondition(t *testing.T) {
	t.Parallel()
	shut := node("n", reportOf(1, 0), selling.Acting)
	shut.Conditions[selling.BatchOpen] = Condition{Reason: selling.Window, Text: "w"}
	notReady := node("n", reportOf(1, 0), selling.Preview)
	notReady.Conditions[selling.BatchOpen] = Condition{Reason: selling.NotReady, Text: "r"}
	bare := node("n", reportOf(1, 0), "")
	bare.Conditions = nil
	for want, n := range map[string]Node{
		selling.Window: shut, selling.Preview: notReady, Selling: open(node("n", reportOf(1, 0), selling.ConfigRefused)), NothingReported: bare,
	} {
		if is := Summarize([]Node{n}, nil, "", 0).Nodes[0]; is.State != want || (is.Why == "") != (want == Selling) {
			t.Errorf("%s: %+v", want, is)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	kube := Pod{Namespace: "ns", Node: "s", Component: "kube", Ready: true}
	seller, previewed := open(node("s", reportOf(2000, 0), selling.Acting)), node("p", reportOf(3000, 0), selling.Preview)
	off := node("o", reportOf(1000, 0), selling.LoopOff)
	unknown := node("u", `{"schema":1}`, selling.LoopOff)
	for says, test := range map[string]struct {
		nodes []Node
		pods  []Pod
	}{
		"No node matches": {nil, nil},
		"Install Sluice":  {[]Node{{Name: "a"}, {Name: "b"}}, nil},
		"helm upgrade sluice configs/helm/sluice -n ns":   {[]Node{{Name: "s"}}, []Pod{{Namespace: "ns", Node: "s", Component: "node"}}},
		"Find out why node s is in state NothingReported": {[]Node{{Name: "s"}, previewed}, []Pod{kube, {Node: "p", Component: "kube", Ready: true}}},
		"No node says what it could sell":                 {[]Node{unknown}, []Pod{{Node: "u", Component: "kube", Ready: true}}},
		"the nodes could sell 3 CPUs and 0 B: to begin":   {[]Node{previewed}, nil},
		"Nothing is sold now, although":                   {[]Node{off}, nil},
		"1 of 2 nodes sells":                              {[]Node{seller, previewed}, nil},
		"Batch work can have 2 CPUs":                      {[]Node{seller}, nil},
		"Nothing to do: 1 of 1 node sells":                {[]Node{open(node("s", reportOf(2000, 500), selling.Acting))}, nil},
	} {
		if got := Summarize(test.nodes, test.pods, "", 0).Next; !strings.Contains(got, says) {
			t.Errorf("it says %q, want %q", got, says)
		}
	}
}

// The groups together are the total, however the nodes are grouped, and no node is left out.
func TestGroupsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []Node
		var pods []Pod
		for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
			n := node(string(rune('a'+i)), rapid.SampledFrom([]string{"", "x", reportOf(1000, 0), reportOf(500, 300), `{"schema":1}`}).Draw(t, "report"),
				rapid.SampledFrom([]string{selling.Acting, selling.Preview}).Draw(t, "reason"))
			n.Capacity.MilliCPU, n.Labels = 4000, map[string]string{"zone": rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone")}
			nodes = append(nodes, n)
			if component := rapid.SampledFrom([]string{"", "kube", "kube-x", "node-y"}).Draw(t, "pod"); component != "" {
				pods = append(pods, Pod{Node: n.Name, Component: component, Ready: rapid.Bool().Draw(t, "ready")})
			}
		}
		s := Summarize(nodes, pods, rapid.SampledFrom([]string{"", "zone"}).Draw(t, "by"), rapid.SampledFrom([]int64{0, 1, 4 << 30, 1 << 50}).Draw(t, "memory per CPU"))
		sum := Group{Name: s.Total.Name}
		for _, g := range s.Groups {
			sum.Nodes, sum.Reporting, sum.Selling = sum.Nodes+g.Nodes, sum.Reporting+g.Reporting, sum.Selling+g.Selling
			sum.Capacity, sum.Requested, sum.Used = plus(sum.Capacity, g.Capacity), plus(sum.Requested, g.Requested), plus(sum.Used, g.Used)
			sum.Sellable, sum.Bound = both(sum.Sellable, g.Sellable), both(sum.Bound, g.Bound)
			sum.Free, sum.Stranded = plus(sum.Free, g.Free), plus(sum.Stranded, g.Stranded)
		}
		if sum != s.Total || s.Total.Nodes != len(nodes) || len(s.Nodes) != len(nodes) || s.Total.Capacity.MilliCPU != int64(s.Total.Reporting)*4000 {
			t.Fatalf("the groups are %+v, the total %+v", s.Groups, s.Total)
		}
		for i := range s.Nodes {
			if n := &s.Nodes[i]; n.State == "" || n.Group == "" || (n.Why == "") != (n.State == Selling) {
				t.Fatalf("a node is %+v", n)
			}
		}
	})
}

// A group's overcommit is what its nodes request together, divided by their CPUs; nodes that do not
// tell a number do not count in it.
func TestScheduling(t *testing.T) {
	t.Parallel()
	text := func(s *nodereport.Scheduling) string {
		text, _ := (&nodereport.Report{Schema: nodereport.Schema, Scheduling: s}).Text()
		return text
	}
	nodes := []Node{
		{Name: "a", Labels: map[string]string{"z": "x"}, Report: text(&nodereport.Scheduling{AllocatableMilliCPU: 30000, OvercommitRatio: 1, RoomMilliCPU: new(int64(4000))})},
		{Name: "b", Labels: map[string]string{"z": "x"}, Report: text(&nodereport.Scheduling{AllocatableMilliCPU: 10000, OvercommitRatio: 2})},
		{Name: "c", Labels: map[string]string{"z": "x"}, Report: text(&nodereport.Scheduling{AllocatableMilliCPU: 0, OvercommitRatio: 9, RoomMilliCPU: new(int64(500))})},
		{Name: "d", Labels: map[string]string{"z": "y"}, Report: text(nil)},
	}
	s := Summarize(nodes, nil, "z", 0)
	// (30 × 1 + 10 × 2) / 40 = 1.25
	x := s.Groups[0].Scheduling
	if x == nil || x.Nodes != 3 || x.AllocatableMilliCPU != 40000 || x.OvercommitRatio != 1.25 || x.RoomNodes != 2 || *x.RoomMilliCPU != 4500 {
		t.Errorf("%+v", x)
	}
	if y, total := s.Groups[1].Scheduling, s.Total.Scheduling; y != nil || total == nil || total.Nodes != 3 || total == x {
		t.Errorf("%+v, %+v", y, total)
	}
}
