package control

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const testGiB = int64(1) << 30

// scene is a node whose measurements a test sets second by second.
type scene struct{ View }

// newScene returns an empty node with the pools critical, online and batch.
func newScene(cpus int) *scene {
	s := &scene{}
	s.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s.CPUs = make([]observe.CPU, cpus)
	for i := range s.CPUs {
		s.CPUs[i].Known = true
	}
	s.Allocatable, s.Shared = workload.MilliCPU(cpus)*1000, workload.MilliCPU(cpus)*1000
	s.MemoryTotal = 64 * testGiB
	s.Node.Memory = observe.NodeMemory{Total: 64 * testGiB, Available: 64 * testGiB}
	s.Pools = []Pool{{Name: "critical"}, {Name: "online"}, {Name: "batch"}}
	return s
}

// run adds a pod with one container whose usage is its request.
func (s *scene) run(name string, class workload.Class, request, limit workload.MilliCPU) *Container {
	pool := map[workload.Class]int{workload.LS: 1, workload.BE: 2}[class]
	if class.Pinned() || class == workload.System {
		pool = -1
	}
	s.Pods = append(s.Pods, Pod{UID: name, Ref: "ns/" + name, Class: class, First: len(s.Containers), Count: 1})
	s.Containers = append(s.Containers, Container{
		Container: observe.Container{ID: name}, Ref: "ns/" + name + "/main", Pod: len(s.Pods) - 1, Pool: pool, Class: class,
		Request: request, Limit: limit,
	})
	c := &s.Containers[len(s.Containers)-1]
	c.CPU.Usage = request
	return c
}

// gone removes the newest pod.
func (s *scene) gone() {
	s.Pods, s.Containers = s.Pods[:len(s.Pods)-1], s.Containers[:len(s.Containers)-1]
}

func (s *scene) at(name string) *Container {
	for i := range s.Containers {
		if s.Containers[i].ID == name {
			return &s.Containers[i]
		}
	}
	panic("no container " + name)
}

// pass lets time pass and then measures everything again that the sampler would have measured by
// then: it reads some counters of containers every ten seconds.
func (s *scene) pass(d time.Duration) *View {
	s.Now = s.Now.Add(d)
	slow := s.Now.Truncate(10 * time.Second)
	s.Node.CPU.At, s.Node.CPU.Interval, s.Node.Memory.At, s.Node.Pressure.At = s.Now, d, s.Now, s.Now
	for i := range s.Containers {
		c := &s.Containers[i]
		c.CPU.At, c.CPU.StatAt, c.CPU.Interval = s.Now, s.Now, d
		c.Pressure.At, c.RunDelay.At, c.Container.Memory.At, c.IO.At, c.Cache.At = slow, slow, slow, slow, slow
	}
	return &s.View
}

// second runs one second.
func (s *scene) second() *View { return s.pass(time.Second) }

// blind runs one second without measurements.
func (s *scene) blind() *View {
	s.Now = s.Now.Add(time.Second)
	return &s.View
}

// fiveHundred returns a node with 500 containers.
func fiveHundred() *scene {
	s := newScene(64)
	s.Node.CPU.Usage = 30000
	s.Node.Memory.Available = 32 * testGiB
	for i := range 250 {
		ls := s.run("ls"+string(rune('a'+i/26))+string(rune('a'+i%26)), workload.LS, 200, 300)
		ls.Burst.Auto = true
		ls.CPU.Usage, ls.Container.Memory.WorkingSet = 60, testGiB/16
		s.run("be"+string(rune('a'+i/26))+string(rune('a'+i%26)), workload.BE, 100, 0).Container.Memory.WorkingSet = testGiB / 32
	}
	return s
}

// stepsWithout checks that steps without changes allocate no memory.
func stepsWithout(t *testing.T, s *scene, step func(v *View)) {
	t.Helper()
	for range 200 {
		step(s.second())
	}
	if n := testing.AllocsPerRun(50, func() { step(s.second()) }); n != 0 {
		t.Errorf("a step that changes nothing allocates %v times", n)
	}
}

// benchSteps measures steps of a controller with 500 containers.
func benchSteps(b *testing.B, step func(v *View)) {
	b.Helper()
	s := fiveHundred()
	step(s.second())
	b.ReportAllocs()
	for b.Loop() {
		step(s.second())
	}
}

// BenchmarkNothing measures what the other benchmarks spend outside of the controller.
func BenchmarkNothing(b *testing.B) { benchSteps(b, func(*View) {}) }
