package protocol

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	flat   = "8 cores" // CPUs 0-7
	online = 8
)

// node is a runtime with a running sluice and one LS container.
type node struct {
	*Runtime
	t      *testing.T
	plugin *Plugin
	host   string
	web    *Container
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Runtime: New(t), t: t}
	n.host = n.Host(t, flat)
	n.plugin = n.Sluice(t, sluice, n.host, "")
	n.web = n.run(n.pod(Pod{Name: "web"}), "main", 1000)
	return n
}

func (n *node) pod(p Pod) *api.PodSandbox {
	n.t.Helper()
	pod, err := n.RunPod(p)
	if err != nil {
		n.t.Fatal(err)
	}
	return pod
}

// pins makes a pod whose containers get CPUs of their own.
func (n *node) pins(name string) *api.PodSandbox {
	n.t.Helper()
	return n.pod(Pod{Name: name, QoS: "guaranteed", Annotations: map[string]string{"class.sluice.dev": "LSR"}})
}

func (n *node) run(pod *api.PodSandbox, name string, cpu int64) *Container {
	n.t.Helper()
	c, err := n.Run(pod, name, Requests{CPU: cpu})
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (n *node) ok(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// state checks the invariants and returns sluice's status.
func (n *node) state() *status.Status {
	n.t.Helper()
	s, err := n.plugin.Status()
	n.ok(err)
	if s.Counters.Panics > 0 {
		n.t.Fatalf("sluice panicked:\n%s", n.plugin.Log)
	}
	n.ok(n.Check(cpuset.Range(0, online-1)))
	n.ok(n.CheckStatus(s))
	return s
}

func (n *node) wantPinned(want string) {
	n.t.Helper()
	if got := n.state().Machine.Pinned.String(); got != want {
		n.t.Fatalf("pinned %q, want %q", got, want)
	}
}

func TestStopTwice(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, b := n.run(n.pins("a"), "main", 2000), n.run(n.pins("b"), "main", 2000)
	n.ok(n.Stop(a))
	n.ok(n.Stop(a))
	n.ok(n.Remove(a))
	n.ok(n.Remove(a))
	n.wantPinned("2-3")
	n.ok(n.Stop(b))
	n.wantPinned("")
}

// TestStopAfterReplacement checks that the old container's Stop frees only the old CPUs when it
// comes after the replacement's Create, or after its Start.
func TestStopAfterReplacement(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{false, true} {
		n := newNode(t)
		pod := n.pins("a")
		old := n.run(pod, "main", 2000)
		n.Exit(old)
		next, err := n.Create(pod, "main", Requests{CPU: 2000})
		n.ok(err)
		if started {
			n.ok(n.Start(next))
		}
		n.ok(n.Stop(old))
		n.wantPinned("2-3")
		if !started {
			n.ok(n.Start(next))
		}
		n.wantPinned("2-3")
	}
}

// TestStartWithoutCreate starts containers whose creation sluice has missed: it was away, and the
// runtime has kept its record from the synchronization.
func TestStartWithoutCreate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod(Pod{Name: "late"})
	c := n.unseen(pod, "main")
	n.ok(n.Start(c))
	n.wantPinned("")
	pin := n.unseen(n.pins("pin"), "main")
	if err := n.Start(pin); err == nil {
		t.Error("a pin that can only be given its CPUs through the runtime has started without them")
	}
	n.wantPinned("")
}

// unseen returns a created container that no plugin was informed of.
func (n *node) unseen(pod *api.PodSandbox, name string) *Container {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.serial++
	c := &Container{Pod: pod, Label: n.label(pod, name), Container: &api.Container{
		Id: fmt.Sprintf("%064x", n.serial), PodSandboxId: pod.Id, Name: name,
		Linux: &api.LinuxContainer{Resources: Requests{CPU: 1000}.resources(isGuaranteed(pod))},
	}}
	n.containers = append(n.containers, c)
	return c
}

// TestUnknownContainers sends events with only the IDs of containers and pods that sluice has
// never heard of.
func TestUnknownContainers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pin := n.run(n.pins("pin"), "main", 2000)
	ctx := context.Background()
	stranger, nothing := &api.Container{Id: "stranger"}, &api.Container{}
	for _, c := range []*api.Container{stranger, nothing} {
		_, err := n.nri.StopContainer(ctx, &api.StopContainerRequest{Container: c})
		n.ok(err)
		n.ok(n.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Container: c}))
		n.ok(n.nri.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Container: c}))
		n.ok(n.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: &api.PodSandbox{Id: "stranger"}}))
		_, err = n.nri.UpdatePodSandbox(ctx, &api.UpdatePodSandboxRequest{Pod: &api.PodSandbox{Id: "stranger"}})
		n.ok(err)
	}
	_, err := n.nri.UpdateContainer(ctx, &api.UpdateContainerRequest{Container: stranger})
	n.ok(err)
	n.ok(n.nri.StartContainer(ctx, &api.StartContainerRequest{Container: nothing}))
	_, err = n.nri.StopContainer(ctx, &api.StopContainerRequest{Container: nothing})
	n.ok(err)
	_, err = n.nri.StopContainer(ctx, &api.StopContainerRequest{Container: stranger})
	n.ok(err)
	n.wantPinned("0-1")
	n.ok(n.Stop(pin))
	n.wantPinned("")
}

// TestSameID creates a container twice with one ID: the second replaces the first, and no CPU is
// held twice.
func TestSameID(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pins("pin")
	for _, cpu := range []int64{3000, 3000, 2000, 3000} {
		n.serial = 1000
		c, err := n.Create(pod, "main", Requests{CPU: cpu})
		n.ok(err)
		if s := n.state(); s.Machine.Pinned.Size() != int(cpu/1000) {
			t.Errorf("pinned %s, want %d CPUs", s.Machine.Pinned, cpu/1000)
		}
		n.Discard(c)
	}
}

// TestSameNames creates pods and containers with equal names and different IDs.
func TestSameNames(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var all []*Container
	for range 3 {
		all = append(all, n.run(n.pins("twin"), "main", 1000))
	}
	n.wantPinned("0-2")
	n.ok(n.Stop(all[1]))
	n.wantPinned("0,2")
}

// TestFailedCreates lets creations fail in the runtime after the grant, many times. The removal
// has only the ID, or never comes. No CPU is lost.
func TestFailedCreates(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pins("pin")
	for range 20 {
		c, err := n.Create(pod, "main", Requests{CPU: 3000})
		n.ok(err)
		n.ok(n.FailedCreate(c))
	}
	n.wantPinned("")
	for range 20 { // the kubelet tries again, and no event reports the failures
		c, err := n.Create(pod, "main", Requests{CPU: 3000})
		n.ok(err)
		n.Exit(c)
	}
	n.ok(n.RemovePod(pod))
	n.wantPinned("")
}

// TestRefusalLeavesNoTrace compares the whole state before and after.
func TestRefusalLeavesNoTrace(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run(n.pins("pin"), "main", 4000)
	pod := n.pins("greedy")
	before := n.placement()
	for range 5 {
		_, err := n.Create(pod, "main", Requests{CPU: 4000})
		for _, part := range []string{"default/greedy/main", "4 CPUs", "leave 0"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("error %v does not tell %q", err, part)
			}
		}
	}
	if after := n.placement(); after != before {
		t.Errorf("after the refusal\n%s\nbefore\n%s", after, before)
	}
}

// placement returns everything that sluice holds, and every record, as text.
func (n *node) placement() string {
	var text strings.Builder
	s := n.state()
	for i := range s.Pools {
		s.Pools[i].Load = nil // the control loop measures it meanwhile
	}
	fmt.Fprintln(&text, s.Machine.Pinned, s.Pools)
	for _, c := range s.Containers {
		fmt.Fprintln(&text, c.ID, c.CPUs, c.Mems, c.State)
	}
	for _, c := range n.Containers() {
		fmt.Fprintln(&text, c.Label, c.Linux.Resources)
	}
	return text.String()
}

// TestKilledBetweenCreateAndStart kills the plugin after the grant.
func TestKilledBetweenCreateAndStart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c, err := n.Create(n.pins("pin"), "main", Requests{CPU: 2000})
	n.ok(err)
	n.plugin.Kill()
	n.ok(n.Start(c))
	n.plugin = n.Sluice(t, sluice, n.host, "")
	n.wantPinned("0-1")
	if got := c.Linux.Resources.Cpu.Cpus; got != "0-1" {
		t.Errorf("the pin moved to %s", got)
	}
}

// TestKilledMidChurn kills the plugin at random times of a churn, and checks that earlier pins
// stay where they were.
func TestKilledMidChurn(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	stays := n.run(n.pins("stays"), "main", 2000)
	pod := n.pins("churn")
	for range 5 {
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			n.plugin.Kill()
		}()
		for done := false; !done; {
			select {
			case <-killed:
				done = true
			default:
			}
			if c, err := n.Run(pod, "main", Requests{CPU: 3000}); err == nil {
				n.ok(n.Stop(c))
				n.ok(n.Remove(c))
			}
		}
		n.plugin = n.Sluice(t, sluice, n.host, "")
		n.wantPinned("0-1")
	}
	if got := stays.Linux.Resources.Cpu.Cpus; got != "0-1" {
		t.Errorf("the pin moved to %s", got)
	}
}

// TestHangs stops the plugin's process: the runtime drops the plugin and continues. The plugin
// then reconnects and repairs everything by itself.
func TestHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pins("pin")
	n.ok(n.plugin.Signal(syscall.SIGSTOP))
	for stopped := false; !stopped; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.plugin.PID()))
		n.ok(err)
		stopped = strings.Contains(string(stat), ") T ")
	}
	c := n.run(pod, "main", 2000) // takes the runtime's timeout of 2 s
	n.mu.Lock()
	pinned := c.Pinned()
	n.mu.Unlock()
	if pinned {
		t.Fatal("a plugin that is stopped has pinned a container")
	}
	n.ok(n.plugin.Signal(syscall.SIGCONT))
	n.ok(n.awaitSync(n.plugin.gone))
	n.wantPinned("0-1")
}

// TestSecondSluice starts a second one with the same state folder. It refuses to start, and the
// first continues.
func TestSecondSluice(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	second := Spawn(t, sluice, n.SluiceFlags(n.host, "")...)
	second.Wait()
	if log := second.Log.String(); second.ExitCode() != 1 || !strings.Contains(log, "another sluice works with state folder") {
		t.Errorf("a second sluice on one state folder: exit %d, said %s", second.ExitCode(), log)
	}
	n.run(n.pins("pin"), "main", 2000)
	n.wantPinned("0-1")
}
