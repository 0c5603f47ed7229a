package zones

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// machine has NUMA nodes with these numbers and four CPUs each, of which new pins can have so many. The
// first CPU of each node is pinned.
func machine(pinnable map[int]int, ids ...int) *status.Machine {
	m := &status.Machine{}
	for i, id := range ids {
		distances := make([]int, len(ids))
		for j := range distances {
			distances[j] = 20
		}
		distances[i] = 10
		cpus := cpuset.Of(4*i, 4*i+1, 4*i+2, 4*i+3)
		m.NUMANodes = append(m.NUMANodes, status.NUMANode{ID: id, CPUs: cpus, PinnableCPUs: pinnable[id], Distances: distances})
		m.Pinned = cpuset.Union(m.Pinned, cpuset.Of(4*i))
	}
	return m
}

func TestZones(t *testing.T) {
	t.Parallel()
	whole := []Amount{{"cpu", "7500m"}, {"memory", "30Gi"}}
	for _, test := range []struct {
		name     string
		machine  *status.Machine
		promised int64
		want     []Zone
	}{
		{"one NUMA node", machine(map[int]int{0: 3}, 0), 0, []Zone{{0, 4, 4, 3, []int{10}, whole}}},
		{"two NUMA nodes", machine(map[int]int{0: 2, 1: 3}, 0, 1), 0, []Zone{{0, 4, 3, 2, []int{10, 20}, whole}, {1, 4, 4, 3, []int{20, 10}, whole}}},
		{"a pod that has no pin yet", machine(map[int]int{0: 2, 1: 3}, 0, 1), 2, []Zone{{0, 4, 3, 0, []int{10, 20}, whole}, {1, 4, 4, 1, []int{20, 10}, whole}}},
		{"a promise that cannot be kept", machine(map[int]int{0: 2}, 0), 1 << 52, []Zone{{0, 4, 3, 0, []int{10}, whole}}},
		{"a gap in the numbers", machine(map[int]int{0: 1, 2: 3}, 0, 2), 0, []Zone{{0, 4, 2, 1, nil, whole}, {1, 0, 0, 0, nil, whole}, {2, 4, 4, 3, nil, whole}}},
		{"no status yet", &status.Machine{}, 0, nil},
	} {
		if got := Of(test.machine, test.promised, whole); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
	if n := len(Of(machine(nil, 0, 63, 64), 0, nil)); n != most {
		t.Errorf("%d zones, and a scheduler takes %d", n, most)
	}
}

// Over any changes, no zone is published for longer than one step with more than it has, and what rises is
// published once the object has been calm.
func TestDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var published []Zone
		var now, last time.Duration
		last = -time.Hour
		for range 50 {
			now += time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second
			m := machine(map[int]int{0: rapid.IntRange(0, 3).Draw(t, "first"), 1: rapid.IntRange(0, 3).Draw(t, "second")}, 0, 1)
			if rapid.IntRange(0, 9).Draw(t, "away") == 0 {
				m = &status.Machine{}
			}
			zones := Of(m, rapid.Int64Range(0, 4).Draw(t, "promised"), []Amount{{"memory", rapid.SampledFrom([]string{"1Gi", "2Gi"}).Draw(t, "memory")}})
			due := Due(published, zones, now-last)
			if due {
				published, last = zones, now
			}
			for i, z := range published {
				if i >= len(zones) || zones[i].Free < z.Free {
					t.Fatalf("%+v is published, and the node has %+v", published, zones)
				}
			}
			if !due && now-last >= 20*time.Second && !reflect.DeepEqual(published, zones) {
				t.Fatalf("%+v is published after %v, and the node has %+v", published, now-last, zones)
			}
			if due && now > last && now-last < 20*time.Second && !falls(published, zones) {
				t.Fatalf("%+v rises too early", zones)
			}
		}
	})
}
