package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestCrashes kills the plugin, the runtime, and both at once while pods come and go, and starts
// them again. Afterwards everything is in its place, no CPU is lost, and no pin has moved.
func TestCrashes(t *testing.T) {
	rt := start(t, runtime.Options{})
	s := startSluice(t, rt, runtime.SluiceOptions{})
	for _, v := range []victim{
		{"plugin", true, false},
		{"containerd", false, true},
		{"both", true, true},
	} {
		t.Run(v.name+" beside a pin", func(t *testing.T) {
			pod, _ := pinOf(t, rt, "stays", "LSR")
			cpu := elsewhere(t, s, pod.Container("c"))
			testCrash(t, rt, s, v, pod)
			isOn(t, pod.Container("c"), cpu)
			must(t, pod.Remove())
		})
		t.Run(v.name+" beside pins that come and go", func(t *testing.T) {
			testCrash(t, rt, s, v)
			next, _ := pinOf(t, rt, "next", "LSE")
			must(t, next.Remove())
		})
	}
}

// victim is what a crash kills.
type victim struct {
	name               string
	sluice, containerd bool
}

func testCrash(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice, v victim, stays ...*runtime.Pod) {
	c := startChurn(rt)
	<-c.moment
	synchronized := s.Synchronizations()
	v.crash(t, rt, s)
	close(c.back)
	await(t, "the plugin is synchronized again", func() bool { return s.Synchronizations() > synchronized })
	for _, err := range c.wait() {
		if !v.containerd && !strings.Contains(err.Error(), "of its own would leave 0") {
			t.Error(err)
		}
	}
	consistent(t, rt, s)
	empties(t, rt, s, stays...)
	consistent(t, rt, s)
}

func (v victim) crash(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	t.Helper()
	if v.containerd {
		must(t, rt.Kill())
	}
	if v.sluice {
		must(t, s.Kill())
	}
	if v.containerd {
		must(t, rt.Restart())
	}
	if v.sluice {
		must(t, s.Restart())
	}
}

// elsewhere moves a pin, while the plugin is away, to a CPU that the plugin would not choose. If
// the pin is still there later, it was not placed again.
func elsewhere(t *testing.T, s *runtime.Sluice, pin *runtime.Container) cpuset.Set {
	t.Helper()
	cpu := cpuset.Of(cpuset.Difference(online(t), alone(t, pin)).Last())
	must(t, s.Kill())
	must(t, pin.WriteFile("cpuset.cpus", cpu.String()))
	must(t, s.Restart())
	isOn(t, pin, cpu)
	return cpu
}

// churn runs pods of all classes that come and go in several goroutines.
type churn struct {
	rt      *runtime.Runtime
	moment  chan struct{} // closed at a random time in the middle
	back    chan struct{} // to be closed when what was killed runs again
	workers sync.WaitGroup
	steps   atomic.Int64
	at      int64 // number of the step at which moment is closed
	mu      sync.Mutex
	errs    []error
}

func startChurn(rt *runtime.Runtime) *churn {
	const workers, pods, steps = 4, 5, 6
	c := &churn{rt: rt, moment: make(chan struct{}), back: make(chan struct{}), at: 1 + rand.Int64N(workers*pods*steps/2)}
	for w := range workers {
		c.workers.Go(func() {
			for p := range pods {
				c.pod(fmt.Sprintf("churn-%d-%d", w, p), []string{"LS", "BE", "LSR", "SYSTEM", "LSE"}[(w+p)%5])
			}
			for c.steps.Load() < c.at { // pods that failed take fewer steps
				c.step(nil)
			}
		})
	}
	return c
}

// step counts a step and records its error. It reports false if there is no runtime to continue
// with.
func (c *churn) step(err error) (ok bool) {
	if c.steps.Add(1) == c.at {
		close(c.moment)
	}
	if err != nil {
		c.mu.Lock()
		c.errs = append(c.errs, err)
		c.mu.Unlock()
		if status.Code(err) == codes.Unavailable {
			<-c.back
		}
	}
	return err == nil
}

// pod runs one pod's life, as far as it goes.
func (c *churn) pod(name, class string) {
	resources := runtime.Resources{CPURequest: 10, CPULimit: 200}
	if class == "LSE" || class == "LSR" {
		resources = runtime.Whole(1000, 32*mib)
	}
	spec := classed(name, class, resources)
	pod, err := c.rt.RunPod(spec)
	if !c.step(err) {
		return
	}
	for range 2 { // the second container replaces the first
		container, err := pod.Create(spec.Containers[0])
		if !c.step(err) || !c.step(container.Start()) {
			break
		}
		if class == "LS" && !c.step(container.Resize(runtime.Resources{CPURequest: 20, CPULimit: 300})) {
			break
		}
		if !c.step(container.Kill()) {
			break
		}
	}
	c.step(pod.Remove())
}

// wait waits until all pods have ended, and returns their errors.
func (c *churn) wait() []error {
	c.workers.Wait()
	return c.errs
}
