package compare

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	kubeset "k8s.io/utils/cpuset"

	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// reference is a plain form of the kubelet's packed algorithm (pkg/kubelet/cm/cpumanager,
// takeByTopologyNUMAPacked) on the kubelet's map-based set: it takes whole NUMA nodes, the CPUs of
// whole packages, whole L3s, whole cores, and then single CPUs, each time from the domain with the
// fewest free CPUs.
type reference struct {
	levels [][]kubeset.CPUSet // nodes, L3 domains, cores
	online kubeset.CPUSet
}

func newReference(m *topology.Machine) *reference {
	convert := func(s cpuset.Set) kubeset.CPUSet { return kubeset.New(slices.Collect(s.All())...) }
	r := &reference{levels: make([][]kubeset.CPUSet, 3), online: convert(m.Online)}
	for _, d := range m.Nodes {
		r.levels[0] = append(r.levels[0], convert(d.CPUs))
	}
	for _, d := range m.L3s {
		r.levels[1] = append(r.levels[1], convert(d.CPUs))
	}
	for _, d := range m.Cores {
		r.levels[2] = append(r.levels[2], convert(d.CPUs))
	}
	return r
}

func (r *reference) take(free kubeset.CPUSet, n int) kubeset.CPUSet {
	result := kubeset.New()
	for _, domains := range r.levels {
		for _, d := range domains {
			if d.Size() <= n-result.Size() && d.IsSubsetOf(free) {
				result = result.Union(d)
				free = free.Difference(d)
			}
		}
	}
	if result.Size() == n {
		return result
	}
	type ranked struct{ node, l3, core, cpu int } // numbers of free CPUs in its domains
	var rank []ranked
	left := make([]map[int]int, len(r.levels))
	for i, domains := range r.levels {
		left[i] = make(map[int]int)
		for _, d := range domains {
			inside := free.Intersection(d)
			for _, cpu := range inside.UnsortedList() {
				left[i][cpu] = inside.Size()
			}
		}
	}
	for _, cpu := range free.UnsortedList() {
		rank = append(rank, ranked{left[0][cpu], left[1][cpu], left[2][cpu], cpu})
	}
	slices.SortFunc(rank, func(x, y ranked) int {
		return cmp.Or(x.node-y.node, x.l3-y.l3, x.core-y.core, x.cpu-y.cpu)
	})
	var rest []int
	for _, at := range rank[:n-result.Size()] {
		rest = append(rest, at.cpu)
	}
	return result.Union(kubeset.New(rest...))
}

// server returns a machine with nodes of 64 CPUs from 256 CPUs on, two threads per core and an L3
// domain per 8 cores.
func server(b *testing.B, cpus int) *topology.Machine {
	b.Helper()
	m, err := synth.Machine(map[int]string{
		16:   "8 cores 2 threads",
		64:   "2 nodes 16 cores 2 threads l3 8 cores",
		256:  "2 packages 2 nodes 32 cores 2 threads l3 8 cores",
		1024: "4 packages 4 nodes 32 cores 2 threads l3 8 cores",
	}[cpus])
	if err != nil || m.Online.Size() != cpus {
		b.Fatalf("a machine of %d CPUs: %v", cpus, err)
	}
	return m
}

// fragmented returns the free CPUs when about four of ten are taken at random.
func fragmented(m *topology.Machine) cpuset.Set {
	free := m.Online
	state := uint32(1)
	for cpu := range m.Online.All() {
		state = state*1664525 + 1013904223
		if state>>16%10 < 4 {
			free.Remove(cpu)
		}
	}
	return free
}

func BenchmarkTake(b *testing.B) {
	for _, cpus := range []int{16, 64, 256, 1024} {
		m := server(b, cpus)
		a, r := cpualloc.New(m), newReference(m)
		node := cpus / len(m.Nodes)
		for _, test := range []struct {
			name string
			n    int
			free cpuset.Set
		}{
			{"1", 1, m.Online},
			{"4", 4, m.Online},
			{"1 fragmented", 1, fragmented(m)},
			{"4 fragmented", 4, fragmented(m)},
			{"half a node", node / 2, m.Online},
			{"half a node fragmented", node / 2, fragmented(m)},
			{"a node", node, m.Online},
			{"1.5 nodes fragmented", node * 3 / 2, fragmented(m)},
		} {
			if test.n > test.free.Size() {
				continue
			}
			b.Run(fmt.Sprintf("of=%d/take=%s/by=sluice", cpus, test.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := a.Take(test.free, test.n, cpualloc.Preference{}); err != nil {
						b.Fatal(err)
					}
				}
			})
			free := kubeset.New(slices.Collect(test.free.All())...)
			b.Run(fmt.Sprintf("of=%d/take=%s/by=reference", cpus, test.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r.take(free, test.n)
				}
			})
		}
	}
}

// BenchmarkFill fills a machine with pins of one CPU. One operation is one pin.
func BenchmarkFill(b *testing.B) {
	for _, cpus := range []int{256, 1024} {
		m := server(b, cpus)
		a, r := cpualloc.New(m), newReference(m)
		b.Run(fmt.Sprintf("of=%d/by=sluice", cpus), func(b *testing.B) {
			b.ReportAllocs()
			var free cpuset.Set
			for b.Loop() {
				if free.IsEmpty() {
					free = m.Online
				}
				got, err := a.Take(free, 1, cpualloc.Preference{})
				if err != nil {
					b.Fatal(err)
				}
				free = cpuset.Difference(free, got)
			}
		})
		b.Run(fmt.Sprintf("of=%d/by=reference", cpus), func(b *testing.B) {
			b.ReportAllocs()
			free := kubeset.New()
			for b.Loop() {
				if free.IsEmpty() {
					free = r.online
				}
				free = free.Difference(r.take(free, 1))
			}
		})
	}
}
