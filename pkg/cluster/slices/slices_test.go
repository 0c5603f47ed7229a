package slices

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestDevices(t *testing.T) {
	t.Parallel()
	c := &status.Claims{Devices: []status.ClaimDevice{
		{Device: numa(0), CPUs: 7, Nodes: cpuset.Of(0), L3: None, ThreadsPerCore: 2, L3Bytes: 32 << 20, CoreKind: "performance"},
		{Device: numa(2), CPUs: 1, Nodes: cpuset.Of(2), ThreadsPerCore: 2},
		{Device: claim.Domain{Kind: claim.L3, Number: 4}, CPUs: 4, Nodes: cpuset.Of(0, 1), L3: 4, CoreKind: "efficiency"},
	}}
	want := []Device{
		{Domain: numa(0), CPUs: 6, ThreadsPerCore: 2, NUMANode: 0, L3: None, L3Bytes: 32 << 20, CoreKind: "performance"},
		{Domain: claim.Domain{Kind: claim.L3, Number: 4}, CPUs: 4, ThreadsPerCore: 1, NUMANode: None, L3: 4, CoreKind: "efficiency"},
	}
	if got := Devices(c); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if Devices(nil) != nil {
		t.Error("a plugin that reserves nothing has devices")
	}
	if !want[0].Shared() || (Device{Domain: claim.Domain{Kind: claim.Core}}).Shared() {
		t.Error("claims share a core, or do not share a NUMA node")
	}
}

func numa(node int) claim.Domain { return claim.Domain{Kind: claim.NUMA, Number: node} }

// Over any changes of the node, more than the node has is never published for longer than one step,
// what rises is published after calm, and the slice changes no more often than that for rises.
func TestDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var published []Device
		var now, last time.Duration
		last = -calm
		draw := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Device {
			return Device{Domain: numa(rapid.IntRange(0, 3).Draw(t, "node")), CPUs: rapid.IntRange(1, 8).Draw(t, "cpus")}
		}), 0, 4, func(d Device) int { return d.Number })
		for range 50 {
			now += time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second
			node := draw.Draw(t, "devices")
			slices.SortFunc(node, func(x, y Device) int { return x.Number - y.Number })
			due := Due(published, node, now-last)
			if due {
				published, last = node, now
			}
			for _, p := range published {
				i := slices.IndexFunc(node, func(d Device) bool { return d.Domain == p.Domain })
				if i < 0 || node[i].CPUs < p.CPUs {
					t.Fatalf("%+v is published, and the node has %+v", published, node)
				}
			}
			if !due && now-last >= calm && !slices.Equal(published, node) {
				t.Fatalf("%+v is published after %v, and the node has %+v", published, now-last, node)
			}
		}
	})
}
