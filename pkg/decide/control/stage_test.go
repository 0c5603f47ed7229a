package control

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// stage is a node whose pods a test controls. Each pod has one container.
type stage struct{ View }

// actor is a pod of a stage.
type actor struct {
	uid     string
	class   workload.Class
	order   int
	tier    workload.Tier
	never   bool
	allow   workload.Actions
	anon    int64 // in MiB
	cache   int64
	cpu     workload.MilliCPU
	request workload.MilliCPU
	limit   workload.MilliCPU
	labels  map[string]string
}

func stageNow() time.Time { return time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC) }

// newStage returns a node with 10 CPUs, 100 GiB, that much available and free memory, and these
// pods.
func newStage(available, free int64, actors ...actor) *stage {
	s := &stage{View{Now: stageNow(), MemoryTotal: 100 * gib, Allocatable: 10000, Shared: 10000,
		CPUs: make([]observe.CPU, 10), Pools: []Pool{{Name: "critical"}, {Name: "online"}, {Name: "batch"}}}}
	s.Node.Memory = observe.NodeMemory{Total: 100 * gib, Available: available, Free: free, Low: gib / 10}
	for _, a := range actors {
		s.add(a)
	}
	s.measure()
	return s
}

func (s *stage) add(a actor) {
	pool := 1
	if a.class == workload.BE {
		pool = 2
	}
	s.Pods = append(s.Pods, Pod{UID: a.uid, Ref: "ns/" + a.uid, Class: a.class, Labels: a.labels, Allow: a.allow,
		Evict: workload.Evict{Never: a.never, Order: workload.Some(a.order)}, Tier: a.tier, First: len(s.Containers), Count: 1})
	c := Container{Ref: "ns/" + a.uid + "/c", Pod: len(s.Pods) - 1, Pool: pool, Class: a.class, Request: a.request, Limit: a.limit}
	c.ID = a.uid
	c.CPU.Usage = a.cpu
	c.Container.Memory = observe.ContainerMemory{Current: (a.anon + a.cache) * mib, WorkingSet: a.anon * mib, Anon: a.anon * mib, Cache: a.cache * mib}
	s.Containers = append(s.Containers, c)
}

// remove removes a pod and its memory.
func (s *stage) remove(uid string) {
	i := slices.IndexFunc(s.Pods, func(p Pod) bool { return p.UID == uid })
	m := s.Containers[i].Container.Memory
	s.Node.Memory.Available += m.Current - m.Cache
	s.Node.Memory.Free += m.Current
	s.Pods = slices.Delete(s.Pods, i, i+1)
	s.Containers = slices.Delete(s.Containers, i, i+1)
	for k := range s.Pods {
		s.Pods[k].First, s.Containers[k].Pod = k, k
	}
}

// addSwap gives the node a swap area that all containers may use.
func (s *stage) addSwap(bytes int64, inMemory bool) {
	m := &s.Node.Memory
	m.SwapTotal, m.SwapFree, m.SwapInMemory = bytes, bytes, inMemory
	for i := range s.Containers {
		s.Containers[i].Swap.Free = math.MaxInt64
	}
	s.measure()
}

// swapOut moves memory of a container to swap.
func (s *stage) swapOut(container int, bytes int64) {
	c := &s.Containers[container]
	c.Container.Memory.Current -= bytes
	c.Container.Memory.Anon -= bytes
	c.Swap.Used += bytes
	s.Node.Memory.SwapFree -= bytes
	s.Node.Memory.Available += bytes
	s.Node.Memory.Free += bytes
}

// measure makes all measurements current.
func (s *stage) measure() {
	n := &s.Node
	n.Memory.At, n.CPU.At, n.Pressure.At, n.Load.At, n.Disk.At = s.Now, s.Now, s.Now, s.Now, s.Now
	for i := range s.Pools {
		s.Pools[i].At = s.Now
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		c.CPU.At, c.Container.Memory.At, c.Pressure.At, c.IO.At = s.Now, s.Now, s.Now, s.Now
		if n.Memory.SwapTotal > 0 {
			c.Swap.At = s.Now
		}
	}
}

// tick runs one second.
func (s *stage) tick() *View {
	s.Now = s.Now.Add(time.Second)
	s.measure()
	return &s.View
}

// crowd returns a node with 500 containers, half of them BE.
func crowd() *stage {
	s := newStage(60*gib, 40*gib)
	for i := range 500 {
		a := actor{uid: fmt.Sprintf("pod-%03d", i), class: workload.LS, anon: 40, cache: 40, cpu: 10, request: 10, limit: 20}
		if i%2 == 1 {
			a.class = workload.BE
		}
		s.add(a)
	}
	s.measure()
	return s
}

// noAllocs checks that steps without changes allocate no memory and make no decisions.
func noAllocs(t *testing.T, s *stage, step func(*View) []Decision) {
	t.Helper()
	for range 200 {
		step(s.tick())
	}
	told := 0
	if got := testing.AllocsPerRun(100, func() { told += len(step(s.tick())) }); got > 0 || told > 0 {
		t.Errorf("%v allocations and %d decisions in the steady state", got, told)
	}
}

// BenchmarkStage measures what the benchmarks of controllers spend on the stage itself.
func BenchmarkStage(b *testing.B) {
	s := crowd()
	b.ReportAllocs()
	for b.Loop() {
		s.tick()
	}
}
