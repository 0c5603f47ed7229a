package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/disks"
	"github.com/sluice-dev/sluice/pkg/engine/newidle"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/engine/watermarks"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// twoNodes is a machine of 8 cores with one thread each, CPUs 0-3 on node 0 and 4-7 on node 1.
const twoNodes = "2 nodes 4 cores memory 8G"

// testingT is the common part of *testing.T and *rapid.T.
type testingT interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// testNode is a machine whose runtime the test plays.
type testNode struct {
	text    string // the machine with all its CPUs in the notation of synth
	log     logText
	t       testingT
	agent   *Agent
	kernel  *fakeKernel
	runtime *fakeRuntime
	machine *topology.Machine
	pods    map[string]*workload.Pod
	specs   map[string]*workload.Container
	claims  map[string][]string // devices of claims that containers have
	made    int64

	originals map[string]knobs.CPUQuota // of pods' own cgroups
	// runsRefused says that the runtime only logs it when a plugin fails a start.
	runsRefused bool
	stop        func()
}

// fakeRuntime receives the updates of the runtime's record. An update waits until the test answers
// it.
type fakeRuntime struct {
	mu      sync.Mutex
	got     []node.Update
	err     error
	answers chan struct{} // nil if updates are answered at once
	apply   func(node.Update)
}

func (r *fakeRuntime) Update(u node.Update) error {
	r.mu.Lock()
	r.got = append(r.got, u)
	answers := r.answers
	r.mu.Unlock()
	if answers != nil {
		<-answers
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.apply(u)
	}
	return r.err
}

// hold makes updates wait for answer.
func (r *fakeRuntime) hold() { r.answers = make(chan struct{}) }

func (r *fakeRuntime) answer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers != nil {
		close(r.answers)
		r.answers = nil
	}
}

func (r *fakeRuntime) sent() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sent []string
	for _, u := range r.got {
		sent = append(sent, u.ContainerID+" "+u.CPUs.String())
	}
	return sent
}

type setup struct {
	machine   string
	host      fs.FS
	originals string
	config    func(*config.Config)
	noKernel  bool
	rdt       rdtgroup.Host
	marks     watermarks.Host
	disks     disks.Host
	scheduler newidle.Host
	stateDir  string
	cdiDir    string
	// claimDevices is what a device is for claims; a NUMA node if it is not set.
	claimDevices claim.DomainKind
}

// withPools sets the configuration of the pools.
func withPools(p placement.Config) func(*config.Config) {
	return func(c *config.Config) {
		c.Reserved, c.System, c.Pools = p.Reserved, p.System, config.Pools{}
		if p.Mode == placement.Exclusive {
			c.Pools.Mode = config.Exclusive
		}
		for _, pool := range p.Pools {
			c.Pools.List = append(c.Pools.List, config.Pool{Name: pool.Name, CPUs: config.PoolSize(pool.Size)})
		}
		c.Rules.Pools = c.Pools.Names()
	}
}

// inBubble runs a test of one node in virtual time.
func inBubble(t *testing.T, s setup, test func(t *testing.T, n *testNode)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, s)
		defer func() { n.runtime.answer(); n.stop() }()
		n.connect("")
		n.synchronize()
		test(t, n)
	})
}

func newNode(t testingT, s setup) *testNode {
	t.Helper()
	if s.machine == "" {
		s.machine = twoNodes
	}
	m, err := synth.Machine(s.machine)
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{
		t: t, text: s.machine, machine: m, runtime: &fakeRuntime{},
		kernel: &fakeKernel{online: m.Online, nodes: m.MemoryNodes(), groups: map[string]*group{}},
		pods:   map[string]*workload.Pod{}, specs: map[string]*workload.Container{},
		originals: map[string]knobs.CPUQuota{}, claims: map[string][]string{},
	}
	n.runtime.apply = func(u node.Update) { n.apply(u) }
	n.launch(s)
	return n
}

// launch starts the plugin, also again after stop.
func (n *testNode) launch(s setup) {
	if s.host == nil {
		s.host = fstest.MapFS{"proc": &fstest.MapFile{Mode: fs.ModeDir}}
	}
	c := config.Default()
	if s.config != nil {
		s.config(c)
	}
	log := logrus.New()
	log.SetOutput(&n.log)
	o := Options{Config: c, Machine: n.machine, Host: s.host, Kernel: n.kernel, Originals: s.originals, StateDir: s.stateDir, CDIDir: s.cdiDir, ClaimDevices: max(claim.NUMA, s.claimDevices), Log: log}
	o.Watermarks, o.Disks, o.Newidle, o.RDT = s.marks, s.disks, s.scheduler, s.rdt
	if s.noKernel {
		o.Kernel = nil
	}
	n.agent = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { n.agent.Run(ctx); close(done) }()
	n.stop = func() { cancel(); <-done }
}

func (n *testNode) connect(shut string) { n.agent.Connected(n.runtime, status.Runtime{}, shut) }

// pod makes a pod of one container: "LSR 2" with 2 CPUs, or only a class. Containers whose names
// have the same part before a slash are in the same pod.
func (n *testNode) pod(name, class string, cpus int) {
	podName, container, ok := strings.Cut(name, "/")
	if !ok {
		container = "c"
	}
	parent := "/kubepods/pod-" + podName
	r := workload.Resources{Quota: int64(cpus) * 100_000, Period: 100_000, Shares: uint64(cpus) * 1024}
	if cpus == 0 {
		parent, r = "/kubepods/besteffort/pod-"+podName, workload.Resources{Shares: 2}
	}
	if n.pods[podName] == nil {
		n.pods[podName] = &workload.Pod{
			ID: "sandbox-" + podName, UID: podName, Namespace: "default", Name: podName, CgroupParent: parent,
			Annotations: map[string]string{},
		}
	}
	if class != "" {
		n.pods[podName].Annotations["class.sluice.dev/container."+container] = class
	}
	if _, err := n.kernel.Read(parent, knobs.Quota); err != nil {
		quota := knobs.CPUQuota{Quota: time.Duration(max(cpus, 0)) * 100 * time.Millisecond, Period: 100 * time.Millisecond}
		if cpus == 0 {
			quota = knobs.UnlimitedQuota()
		}
		n.kernel.make(parent, cpuset.Set{}, cpuset.Set{}, quota)
		n.originals[parent] = quota
	}
	n.made++
	n.specs[name] = &workload.Container{
		ID: name, PodID: "sandbox-" + podName, Name: container, CgroupsPath: path.Join(parent, strings.ReplaceAll(name, "/", "-")),
		Resources: r, CreatedNanos: time.Now().UnixNano() + n.made, Claims: n.claims[name],
	}
}

func (n *testNode) podOf(name string) *workload.Pod {
	podName, _, _ := strings.Cut(name, "/")
	copied := *n.pods[podName]
	return &copied
}

// create is what the runtime does before the start. The spec is adjusted; as with containerd,
// there is no cgroup yet.
func (n *testNode) create(name, class string, cpus int) error {
	if err := n.ask(name, class, cpus); err != nil {
		return err
	}
	return n.agent.PostCreateContainer(name)
}

// ask sends only the runtime's request; the steps after it may fail.
func (n *testNode) ask(name, class string, cpus int) error {
	n.pod(name, class, cpus)
	s := n.specs[name]
	set, updates, err := n.agent.CreateContainer(context.Background(), n.podOf(name), *s)
	if err != nil {
		delete(n.specs, name)
		return err
	}
	adjust(s, set.Settings)
	for _, u := range updates {
		n.apply(u)
	}
	return nil
}

func adjust(s *workload.Container, set node.Settings) {
	if !set.CPUs.IsEmpty() {
		s.Resources.CPUs = set.CPUs.String()
	}
	if !set.Mems.IsEmpty() {
		s.Resources.Mems = set.Mems.String()
	}
	if set.Unlimited {
		s.Resources.Quota = -1
	}
}

// begin makes the cgroup from the spec, as runc create does, and starts the container. If the
// plugin refuses the start, containerd ends the container, while CRI-O runs it.
func (n *testNode) begin(name string) error {
	s := n.specs[name]
	n.runc(name)
	err := n.agent.StartContainer(context.Background(), n.podOf(name), *s)
	if err == nil || n.runsRefused {
		return err
	}
	n.kernel.remove(s.CgroupsPath)
	s.State = workload.Created
	updates, stopped := n.agent.StopContainer(context.Background(), name)
	for _, u := range updates {
		n.apply(u)
	}
	return errors.Join(err, stopped)
}

func (n *testNode) runc(name string) {
	s := n.specs[name]
	cpus, _ := cpuset.Parse(s.Resources.CPUs)
	mems, _ := cpuset.Parse(s.Resources.Mems)
	n.kernel.make(s.CgroupsPath, cpus, mems, quotaOf(s.Resources))
	s.State = workload.Running
}

func quotaOf(r workload.Resources) knobs.CPUQuota {
	if r.Quota <= 0 {
		return knobs.UnlimitedQuota()
	}
	return knobs.CPUQuota{Quota: time.Duration(r.Quota) * time.Microsecond, Period: time.Duration(r.Period) * time.Microsecond}
}

// run creates and starts a container.
func (n *testNode) run(name, class string, cpus int) {
	n.t.Helper()
	if err := n.create(name, class, cpus); err != nil {
		n.t.Fatalf("create %s: %v", name, err)
	}
	if err := n.begin(name); err != nil {
		n.t.Fatalf("start %s: %v", name, err)
	}
}

// apply does what a runtime's update does: it changes the record and writes all recorded values to
// the cgroup.
func (n *testNode) apply(u node.Update) {
	s := n.specs[u.ContainerID]
	if s == nil {
		return
	}
	adjust(s, u.Settings)
	n.kernel.change(s.CgroupsPath, func(g *group) {
		if cpus, _ := cpuset.Parse(s.Resources.CPUs); !cpus.IsEmpty() {
			g.cpus = cpus
		}
		if mems, _ := cpuset.Parse(s.Resources.Mems); !mems.IsEmpty() {
			g.mems = mems
		}
		if s.Resources.Quota != 0 {
			g.quota = quotaOf(s.Resources)
		}
	})
}

// update runs the kubelet's resize.
func (n *testNode) update(name string, cpus int) error {
	change := workload.Resources{Quota: int64(cpus) * 100_000, Period: 100_000, Shares: uint64(cpus) * 1024}
	s := n.specs[name]
	updates, err := n.agent.UpdateContainer(context.Background(), n.podOf(name), *s, change)
	if err != nil {
		return err
	}
	s.Resources = s.Resources.With(change)
	n.apply(node.Update{ContainerID: name})
	for _, u := range updates {
		n.apply(u)
	}
	return n.agent.PostUpdateContainer(name)
}

func (n *testNode) end(name string) {
	n.kernel.remove(n.specs[name].CgroupsPath)
	delete(n.specs, name)
	updates, err := n.agent.StopContainer(context.Background(), name)
	if err != nil {
		n.t.Errorf("stop %s: %v", name, err)
	}
	for _, u := range updates {
		n.apply(u)
	}
}

func (n *testNode) synchronize() {
	pods, specs := n.all()
	updates, err := n.agent.Synchronize(context.Background(), pods, specs)
	if err != nil {
		n.t.Errorf("synchronize: %v", err)
	}
	for _, u := range updates {
		n.apply(u)
	}
}

// all returns the pods and containers of the runtime.
func (n *testNode) all() (pods []*workload.Pod, specs []workload.Container) {
	for _, p := range n.pods {
		copied := *p
		pods = append(pods, &copied)
	}
	for _, s := range n.specs {
		specs = append(specs, *s)
	}
	return pods, specs
}

// cpus returns the CPUs that the kernel shows; "all" for every CPU.
func (n *testNode) cpus(name string) string {
	v, err := n.kernel.Read(n.specs[name].CgroupsPath, knobs.CPUs)
	if err != nil {
		return err.Error()
	}
	if set := cpuset.Set(v.(knobs.CPUSet)); set != n.kernel.online {
		return set.String()
	}
	return "all"
}

func (n *testNode) quota(path string) string {
	v, err := n.kernel.Read(path, knobs.Quota)
	if err != nil {
		return err.Error()
	}
	return v.String()
}

func (n *testNode) status() *status.Status {
	s, err := n.agent.Status()
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *testNode) container(name string) status.Container {
	all := n.status().Containers
	i := slices.IndexFunc(all, func(c status.Container) bool { return c.ID == name })
	if i < 0 {
		return status.Container{}
	}
	return all[i]
}

// dump returns the ledger and the kernel's state as text, for comparisons.
func (n *testNode) dump() string {
	synctest.Wait()
	s := n.status()
	text := fmt.Sprintln(s.Pools)
	for _, c := range s.Containers {
		text += fmt.Sprintln(c.ID, c.Class, c.State, c.CPUs, c.Mems, c.Unlimited)
	}
	return text + n.kernel.String()
}

// expect compares the CPUs that the kernel shows for several containers.
func (n *testNode) expect(want map[string]string) {
	n.t.Helper()
	for name, cpus := range want {
		if got := n.cpus(name); got != cpus {
			n.t.Errorf("%s is on %s, want %s", name, got, cpus)
		}
	}
}

// pass waits for one drift interval.
func (n *testNode) pass() { n.sleep(n.agent.Config.DriftInterval) }

func (n *testNode) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func refuseCPUs(name string) func(knobs.Change) error {
	return func(c knobs.Change) error {
		if strings.HasSuffix(c.Object.Path, name) && c.Knob == knobs.CPUs {
			return errors.New("device or resource busy")
		}
		return nil
	}
}
