package slices

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/status"
)

func TestDevices(t *testing.T) {
	t.Parallel()
	c := &status.Claims{Nodes: []status.ClaimNode{
		{Node: 0, CPUs: 7, ThreadsPerCore: 2, L3Bytes: 32 << 20, CoreKind: "performance"},
		{Node: 2, CPUs: 1, ThreadsPerCore: 2},
		{Node: 3, CPUs: 4, ThreadsPerCore: 2, CoreKind: "efficient"},
	}}
	want := []Device{
		{Node: 0, CPUs: 6, ThreadsPerCore: 2, L3Bytes: 32 << 20, CoreKind: "performance"},
		{Node: 3, CPUs: 4, ThreadsPerCore: 2, CoreKind: "efficient"},
	}
	if got := Devices(c); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if Devices(nil) != nil {
		t.Error("a plugin that reserves nothing has devices")
	}
	for _, d := range want {
		if node, ok := NodeOf(d.Name()); !ok || node != d.Node {
			t.Errorf("%s is node %d", d.Name(), node)
		}
	}
	for _, foreign := range []string{"numa", "numa-1", "numa01", "gpu0", "numa0x"} {
		if _, ok := NodeOf(foreign); ok {
			t.Errorf("%s is taken for a NUMA node", foreign)
		}
	}
}

// Over any changes of the node, more than the node has is never published for longer than one step,
// what rises is published after calm, and the slice changes no more often than that for rises.
func TestDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var published []Device
		var now, last time.Duration
		last = -calm
		draw := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Device {
			return Device{Node: rapid.IntRange(0, 3).Draw(t, "node"), CPUs: rapid.IntRange(1, 8).Draw(t, "cpus")}
		}), 0, 4, func(d Device) int { return d.Node })
		for range 50 {
			now += time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second
			node := draw.Draw(t, "devices")
			slices.SortFunc(node, func(x, y Device) int { return x.Node - y.Node })
			due := Due(published, node, now-last)
			if due {
				published, last = node, now
			}
			for _, p := range published {
				i := slices.IndexFunc(node, func(d Device) bool { return d.Node == p.Node })
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
