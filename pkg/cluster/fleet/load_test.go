package fleet

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/workload"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestLoadOf(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*status.Status){
		Selling:             func(*status.Status) {},
		selling.Preview:     func(s *status.Status) { s.Mode = status.ModePreview },
		selling.LoopOff:     func(s *status.Status) { s.Loop = nil },
		selling.LoopStalled: func(s *status.Status) { s.Loop.MeasuredAt = noon.Add(-time.Hour) },
		selling.Window:      func(s *status.Status) { s.Loop.Batch.State = status.BatchClosed },
	} {
		s := statustest.Selling(noon)
		change(s)
		n, err := LoadOf("n", s)
		if err != nil || n.State != want || (n.Why == "") != (want == Selling) {
			t.Errorf("%s: %+v, %v", want, n, err)
		}
	}

	s := statustest.Selling(noon)
	s.Loop.Disturbed = append(s.Loop.Disturbed, control.Disturbance{Ref: "data/calm", Learned: true, Excess: control.Strain{CPUFraction: 0.05}})
	s.Containers = append(s.Containers, status.Container{Class: workload.BE, Requested: 2000, RequestedMemoryBytes: 1 << 30}, status.Container{Class: workload.BE, Requested: math.MinInt64, RequestedMemoryBytes: math.MaxInt64})
	n, err := LoadOf("n", s)
	if err != nil || !slices.Equal(n.Disturbed, []string{"data/db-0"}) || n.Sold.MilliCPU < 2000 || n.Sold.MemoryBytes != math.MaxInt64 || n.Offer.MilliCPU != 7000 {
		t.Errorf("%+v, %v", n, err)
	}
	s.Loop.Offer.ShortTerm.MemoryBytes = -1
	if n, err := LoadOf("n", s); err == nil {
		t.Errorf("an impossible offer: %+v", n)
	}
}

// Whatever a node says, adding it up does not panic, and no amount is below 0.
func FuzzLoadOf(f *testing.F) {
	text, _ := json.Marshal(statustest.Selling(noon))
	f.Add(text)
	f.Add([]byte(`{"machine":{"memoryBytes":-5},"containers":[{"class":"BE","requestedMilliCPU":-7}],"loop":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s status.Status
		if json.Unmarshal(text, &s) != nil {
			return
		}
		n, err := LoadOf("n", &s)
		if err != nil {
			return
		}
		l := LoadOfAll([]*NodeLoad{n, n}, Asked{}, ByTrouble)
		for _, a := range []nodereport.Amount{n.Capacity, n.Used, n.Offer, n.Sold, n.BatchUsed, l.Total.Capacity, l.Total.Sold, l.Total.BatchUsed} {
			if a.MilliCPU < 0 || a.MemoryBytes < 0 {
				t.Errorf("%+v", l)
			}
		}
	})
}

// No node is lost by an order, the largest comes first, and the total has all.
func TestOrders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*NodeLoad
		var cpu int64
		for i := range rapid.IntRange(0, 8).Draw(t, "nodes") {
			n := &NodeLoad{
				Node: string(rune('a' + i)), Capacity: nodereport.Amount{MilliCPU: 1000, MemoryBytes: 1 << 30},
				Offer: nodereport.Amount{MilliCPU: rapid.Int64Range(0, 3).Draw(t, "offer")}, Evicted: rapid.IntRange(0, 2).Draw(t, "evicted"),
			}
			n.Used.MilliCPU, n.Used.MemoryBytes, n.Sold = rapid.Int64Range(0, 3).Draw(t, "cpu"), rapid.Int64Range(0, 3).Draw(t, "memory"), n.Offer
			nodes, cpu = append(nodes, n), cpu+n.Used.MilliCPU
		}
		for order, figure := range map[string]func(*NodeLoad) int64{
			ByTrouble: func(n *NodeLoad) int64 { return int64(n.Evicted) }, ByCPU: func(n *NodeLoad) int64 { return n.Used.MilliCPU }, ByMemory: func(n *NodeLoad) int64 { return n.Used.MemoryBytes },
			ByOffer: func(n *NodeLoad) int64 { return n.Offer.MilliCPU }, BySold: func(n *NodeLoad) int64 { return n.Sold.MilliCPU }, ByName: func(n *NodeLoad) int64 { return -int64(n.Node[0]) },
		} {
			l := LoadOfAll(nodes, Asked{}, order)
			if len(l.Nodes) != len(nodes) || l.Total.Used.MilliCPU != cpu {
				t.Fatalf("%s: %+v", order, l)
			}
			for i := range l.Nodes[min(len(l.Nodes), 1):] {
				if figure(&l.Nodes[i]) < figure(&l.Nodes[i+1]) {
					t.Fatalf("%s: %+v", order, l.Nodes)
				}
			}
		}
	})
}

func TestPlugins(t *testing.T) {
	t.Parallel()
	plugins, without := Plugins([]Node{{Name: "b"}, {Name: "c"}, {Name: "a"}}, []Pod{
		{Node: "b", Name: "old", Component: "node"}, {Node: "b", Name: "new", Component: "node-x", Ready: true}, {Node: "a", Name: "a", Component: "node"},
		{Node: "c", Name: "kube", Component: "kube"}, {Node: "d", Name: "d", Component: "node"},
	})
	if len(plugins) != 2 || plugins[0].Name != "a" || plugins[1].Name != "new" || !slices.Equal(without, []string{"c"}) {
		t.Errorf("%+v, %q", plugins, without)
	}
}
