package guest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/knobs"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestSluice runs the plugin with a real containerd once for all of its tests, because starting
// both takes long here. Every test removes its pods.
func TestSluice(t *testing.T) {
	rt := start(t, runtime.Options{})
	b := &knobs.Bed{RT: rt}
	t.Run("restore", func(t *testing.T) { knobs.Restore(t, b) })
	t.Run("drift", func(t *testing.T) { knobs.Drift(t, b) })
	withSluice(t, b, []sluiceTest{
		{"first instruction", testFirstInstruction},
		{"knobs at the first instruction", func(n *node) { knobs.First(n.t, b) }},
		{"what this kernel lacks", func(n *node) { knobs.Missing(n.t, b) }},
		{"resize", func(n *node) { knobs.Resize(n.t, b) }},
		{"bursts are counted", func(n *node) { knobs.Bursts(n.t, b) }},
		{"reclaim", func(n *node) { knobs.Reclaim(n.t, b) }},
		{"pages", testPages},
		{"moving pages", testMovingPages},
		{"reclaiming limit", testReclaimingLimit},
		{"partition", testPartition},
		{"hotplug", testHotplug},
		{"memory hotplug", testMemoryHotplug},
		{"crashes", testCrashes},
		{"churn", testChurn},
	})
}

type sluiceTest struct {
	name string
	run  func(*node)
}

// withSluice runs the plugin on the bed for the tests.
func withSluice(t *testing.T, b *knobs.Bed, tests []sluiceTest) {
	sluice, err := b.RT.StartSluice(runtime.SluiceOptions{})
	must(t, err)
	b.Sluice = sluice
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := &node{t: t, rt: b.RT, sluice: sluice}
			t.Cleanup(func() {
				if t.Failed() { // removes everything for the next test
					t.Logf("sluice's log ends:\n%s", tail(sluice.Log(), 80))
					must(t, b.RT.RemoveAll())
				}
			})
			test.run(n)
			if left := n.status().Containers; len(left) > 0 {
				t.Errorf("all pods are removed, and the plugin still has %v", left)
			}
		})
	}
}

// node is a containerd with Sluice.
type node struct {
	t      *testing.T
	rt     *runtime.Runtime
	sluice *runtime.Sluice
}

// with returns the node for a subtest.
func (n *node) with(t *testing.T) *node { return &node{t: t, rt: n.rt, sluice: n.sluice} }

// ask describes a container of a pod.
type ask struct {
	name, class string
	cpus        int      // number of CPUs of a pin
	keys        []string // annotations: a key without its domain, its value, and so on
	memory      int64    // in bytes; 0 for the default
	args        []string // arguments of the probe
}

func (a ask) resources() runtime.Resources {
	switch {
	case a.cpus == 0:
		return runtime.Resources{}
	case a.memory == 0:
		return whole(a.cpus)
	}
	return runtime.Whole(milli(a.cpus), a.memory)
}

// pod runs a pod without containers; start starts the requested ones.
func (n *node) pod(asks ...ask) *runtime.Pod {
	n.t.Helper()
	spec := runtime.PodSpec{Name: "p", Namespace: "kube-system", Annotations: map[string]string{}}
	for _, a := range asks {
		spec.Containers = append(spec.Containers, runtime.ContainerSpec{Name: a.name, Resources: a.resources()})
		for i := 0; i < len(a.keys); i += 2 {
			spec.Annotations[a.keys[i]+".sluice.dev/container."+a.name] = a.keys[i+1]
		}
		spec.Annotations["class.sluice.dev/container."+a.name] = a.class
	}
	pod, err := n.rt.RunPod(spec)
	must(n.t, err)
	return pod
}

func (n *node) start(pod *runtime.Pod, a ask) *runtime.Container {
	n.t.Helper()
	c, err := pod.Create(runtime.ContainerSpec{Name: a.name, Resources: a.resources(), Args: a.args})
	must(n.t, err)
	n.t.Cleanup(func() {
		if n.t.Failed() { // later tests still use the pod
			_ = c.Remove()
		}
	})
	must(n.t, c.Start())
	return c
}

func (n *node) stop(c *runtime.Container) {
	n.t.Helper()
	must(n.t, c.Stop())
	must(n.t, c.Remove())
}

// cpus returns the container's CPUs as the kernel applies them.
func (n *node) cpus(c *runtime.Container) cpuset.Set {
	n.t.Helper()
	cpus, err := c.CPUs()
	must(n.t, err)
	return cpus
}

// awaitCPUs waits until the kernel shows that the container has the CPUs.
func (n *node) awaitCPUs(c *runtime.Container, want cpuset.Set) {
	n.t.Helper()
	await(n.t, func() error {
		if got := n.cpus(c); got != want {
			return fmt.Errorf("the container has CPUs %s, want %s", got, want)
		}
		return nil
	})
}

func (n *node) status() *status.Status {
	n.t.Helper()
	s, err := statusapi.NewClient(n.sluice.StatusSocket).Status()
	must(n.t, err)
	return s
}

// statusOf returns the plugin's status of a container.
func (n *node) statusOf(c *runtime.Container) status.Container {
	n.t.Helper()
	for _, entry := range n.status().Containers {
		if entry.ID == c.ID {
			return entry
		}
	}
	n.t.Fatalf("the plugin's status has no container %s", c.ID)
	return status.Container{}
}

// restartRuntime kills containerd, starts it again, and waits for the plugin.
func (n *node) restartRuntime() {
	n.t.Helper()
	const synchronized = "synchronized with the runtime"
	before := strings.Count(n.sluice.Log(), synchronized)
	must(n.t, n.rt.Restart())
	await(n.t, func() error {
		if strings.Count(n.sluice.Log(), synchronized) == before {
			return fmt.Errorf("the plugin has not come back to the runtime")
		}
		return nil
	})
}
