package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

const mebi = 1 << 20

// knobNode is a node with a fake kernel below the real cgroup driver. The test plays kubelet and
// runtime.
type knobNode struct {
	*fakekernel.Kernel
	t     testingT
	spy   *spy
	o     Options
	text  string // text of the configuration
	kept  bool   // the kubelet takes pods' weights for requests
	agent *Agent
	stop  func()
	log   logText

	mayFail bool   // the kernel may refuse what kubelet and runtime write
	inner   string // name of the cgroup that the runtime makes below each container's; "" for none
	pods    map[string]*workload.Pod
	specs   map[string]*spec // by "pod/container"
	made    int64
}

// spec is a container in the runtime's record.
type spec struct {
	workload.Container
	unified map[string]string
	score   workload.Optional[int]
}

// ask describes a container as the kubelet creates it.
type ask struct {
	name        string // "pod/container"
	qos         string // "besteffort", "burstable", or "" for Guaranteed
	milli       int    // request and limit in thousandths of a CPU
	request     int    // in thousandths of a CPU; 0 for the same as milli
	pod         int    // of the whole pod; 0 for the same as milli
	memory      int64  // in MiB
	annotations map[string]string
}

// spy wraps the driver. It injects refusals and records those of the kernel.
type spy struct {
	*cgroupfs.Driver
	mu      sync.Mutex
	refuse  func(knobs.Change) error
	refused []string
	writes  int
	last    string // the change that was tried last
}

func (s *spy) Apply(changes []knobs.Change) error {
	var errs []error
	for _, c := range changes {
		errs = append(errs, s.apply(c)...)
	}
	return errors.Join(errs...)
}

// apply holds no lock while the driver writes, which may take long.
func (s *spy) apply(c knobs.Change) []error {
	s.mu.Lock()
	if s.refuse != nil {
		if err := s.refuse(c); err != nil {
			s.mu.Unlock()
			return []error{&cgroupfs.ChangeError{Change: c, Err: err}}
		}
	}
	s.writes++
	s.last = c.Object.Path + " " + c.Knob.String() + "=" + c.To.String() + " " + c.Why
	s.mu.Unlock()
	errs := cgroupfs.Refusals(s.Driver.Apply([]knobs.Change{c}))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range errs {
		if !errors.Is(err, cgroupfs.ErrGone) {
			s.refused = append(s.refused, err.Error())
		}
	}
	return errs
}

func (s *spy) refusing(refuse func(knobs.Change) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// took returns how many changes were tried since the last call.
func (s *spy) took() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.writes
	s.writes = 0
	return n
}

// knobSetup says how to make a knobNode.
type knobSetup struct {
	config    string // YAML
	originals string
	node      func(*qos.Node)
	options   func(*knobNode, *Options)
	kept      bool // the kubelet takes pods' weights for requests
}

// onFlavours runs a test for every kernel, in virtual time and with a journal.
func onFlavours(t *testing.T, s knobSetup, test func(t *testing.T, h *knobNode)) {
	t.Helper()
	t.Parallel()
	for _, f := range fakekernel.Flavours() {
		t.Run(f.Name, func(t *testing.T) { onFlavour(t, f, s, test) })
	}
}

func onFlavour(t *testing.T, f fakekernel.Flavour, s knobSetup, test func(t *testing.T, h *knobNode)) {
	t.Helper()
	t.Parallel()
	if s.originals == "" {
		s.originals = filepath.Join(t.TempDir(), "originals")
	}
	synctest.Test(t, func(t *testing.T) {
		h := newKnobNode(t, f, s)
		defer func() { h.stop() }()
		test(t, h)
	})
}

func newKnobNode(t testingT, f fakekernel.Flavour, s knobSetup) *knobNode {
	t.Helper()
	m, err := synth.Machine(twoNodes)
	if err != nil {
		t.Fatal(err)
	}
	h := &knobNode{Kernel: fakekernel.New(f), t: t, kept: s.kept, pods: map[string]*workload.Pod{}, specs: map[string]*spec{}}
	driver, err := h.Driver()
	if err != nil {
		t.Fatal(err)
	}
	features, err := driver.Probe()
	if err != nil {
		t.Fatal(err)
	}
	h.spy = &spy{Driver: driver}
	has := qos.Node{
		Features: features, Memory: m.Memory(m.MemoryNodes()), Release: "6.12", BEPageCachePercent: 50,
		Disks: []string{"8:0", "8:16"}, DiskNames: map[string]string{"/dev/sda": "8:0", "/dev/sdb": "8:16"},
	}
	if s.node != nil {
		s.node(&has)
	}
	log := logrus.New()
	log.SetOutput(&h.log)
	h.o = Options{
		Machine: m, Host: fstest.MapFS{"proc": &fstest.MapFile{Mode: fs.ModeDir}}, Kernel: h.spy, Node: has, Originals: s.originals, Log: log,
	}
	if s.options != nil {
		s.options(h, &h.o)
	}
	h.Mkdir("/kubepods/burstable")
	h.Mkdir("/kubepods/besteffort")
	h.launch(s.config)
	return h
}

// launch starts the plugin and connects it to the runtime.
func (h *knobNode) launch(text string) {
	h.t.Helper()
	h.start(text)
	h.agent.Connected(nil, status.Runtime{}, "")
	h.synchronize()
}

// start starts the plugin.
func (h *knobNode) start(text string) {
	h.t.Helper()
	c, err := config.Parse([]byte("recordUpdates: {enabled: false}\n" + text))
	if err != nil {
		h.t.Fatal(err)
	}
	h.o.Config, h.text, c.KeepWeights = c, text, h.kept
	h.agent = New(h.o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { h.agent.Run(ctx); close(done) }()
	h.stop = func() { cancel(); <-done }
}

// restart simulates a crash: only the kernel's state and the journal remain.
func (h *knobNode) restart(config string) {
	h.stop()
	h.launch(config)
	synctest.Wait()
}

func (h *knobNode) synchronize() {
	h.t.Helper()
	var pods []*workload.Pod
	for _, p := range h.pods {
		copied := *p
		pods = append(pods, &copied)
	}
	var specs []workload.Container
	for _, s := range h.specs {
		specs = append(specs, s.Container)
	}
	if _, err := h.agent.Synchronize(context.Background(), pods, specs); err != nil {
		h.t.Errorf("synchronize: %v", err)
	}
	synctest.Wait()
}

func (h *knobNode) pass() { h.sleep(h.agent.Config.DriftInterval) }

func (h *knobNode) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// container returns the status of one container.
func (h *knobNode) container(name string) status.Container {
	h.t.Helper()
	s, err := h.agent.Status()
	if err != nil {
		h.t.Fatal(err)
	}
	i := slices.IndexFunc(s.Containers, func(c status.Container) bool { return c.ID == name })
	if i < 0 {
		h.t.Fatalf("no container %s", name)
	}
	return s.Containers[i]
}

// state returns the text of the kernel's files. A v2 cpuset that was set once can't be emptied.
func (h *knobNode) state() map[string]string {
	synctest.Wait() // writes that may take long are made outside of the event loop
	all := h.Dump()
	for file, text := range all {
		all[file] = strings.TrimSpace(text)
		if h.V2 && strings.Contains(file, "/cpuset.") && (all[file] == "0-7" || all[file] == "0-1") {
			all[file] = ""
		}
	}
	return all
}

// differences lists the differences of two states, one per line.
func differences(want, got map[string]string) string {
	var text strings.Builder
	for _, file := range slices.Sorted(maps.Keys(want)) {
		if want[file] != got[file] {
			fmt.Fprintf(&text, "%s: %q, want %q\n", file, got[file], want[file])
		}
	}
	return text.String()
}

func noFeatures(n *qos.Node) { n.Features = knobs.Features{} }

func readJournal(t testingT, file string) *journal.Journal {
	t.Helper()
	book, err := journal.Read(file, "")
	if err != nil {
		t.Fatal(err)
	}
	return book
}

func (h *knobNode) podOfName(name string) *workload.Pod {
	pod, _, _ := strings.Cut(name, "/")
	return h.pods[pod]
}
