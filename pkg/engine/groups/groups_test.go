package groups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

// kernel has nothing of cgroups but their processes.
type kernel struct {
	node.Kernel
	pids []int
}

func (k *kernel) Processes(string) ([]int, error) { return slices.Clone(k.pids), nil }

func (k *kernel) Forget(string) {}

// cores records who joined and who left.
type cores struct {
	joined, left []int
	err          error // error of the next joins
}

func (c *cores) Supported() (knobs.Support, string) { return knobs.Supported, "" }

func (c *cores) Join(_ string, pids ...int) (moved int, err error) {
	c.joined = append(c.joined, pids...)
	return len(pids), c.err
}

func (c *cores) Leave(pids ...int) error {
	c.left = append(c.left, pids...)
	return c.err
}

type testNode struct {
	*Joiner
	kernel *kernel
	cores  *cores
	logged *test.Hook
}

func newNode(t *testing.T) *testNode {
	t.Helper()
	machine, err := synth.Machine("4 cores memory 8G")
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open("", "")
	if err != nil {
		t.Fatal(err)
	}
	log, logged := test.NewNullLogger()
	cfg := config.Default()
	cfg.Mode = config.On
	k, c := &kernel{}, &cores{}
	n := &node.Node{
		Inventory: node.NewInventory(0, 0, 0), Config: cfg, Kernel: k, Log: logrus.FieldLogger(log),
		Ledger: placement.New(cfg.Policy(), machine), Journal: j,
	}
	n.Reconciler = reconcile.New(reconcile.Options{Journal: j})
	return &testNode{New(n, c, nil, nil, "this machine has no RDT"), k, c, logged}
}

// start adds a running container that requests a core-scheduling group.
func (n *testNode) start(name string, pid int) *node.Container {
	spec := workload.Container{ID: name, PodID: name, Name: "c", CgroupsPath: "/kubepods/pod-" + name + "/" + name, State: workload.Running, PID: pid}
	c := n.Track(&workload.Pod{ID: name, UID: name, Namespace: "ns", Name: name, CgroupParent: "/kubepods/pod-" + name}, spec)
	n.Ledger.PlaceShared(c.Identity(), workload.Request{Class: workload.LS, Tuning: workload.Tuning{CoreSched: "all"}}, "", time.Time{})
	return c
}

// A process ID may be reused. Once the container's processes are known, the ID of the first
// process that the runtime reported no longer counts.
func TestOldProcessIDsJoinNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.start("web", 100)
	for _, pids := range [][]int{nil, {101, 100}, {101}, {102, 101}, nil} {
		n.kernel.pids = pids
		n.Join(c)
	}
	if want := []int{100, 101, 102}; !reflect.DeepEqual(n.cores.joined, want) {
		t.Errorf("%v joined, want %v", n.cores.joined, want)
	}
}

// Processes that the runtime starts in a running container join within ten passes.
func TestPassLooksForNewProcesses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start("web", 100)
	n.Synchronized()
	n.kernel.pids = []int{100}
	n.Pass()
	n.kernel.pids = []int{100, 101}
	for range passesPerList - 1 {
		n.Pass()
	}
	if want := []int{100}; !reflect.DeepEqual(n.cores.joined, want) {
		t.Errorf("%v joined before the tenth pass, want %v", n.cores.joined, want)
	}
	n.Pass()
	if want := []int{100, 101}; !reflect.DeepEqual(n.cores.joined, want) {
		t.Errorf("%v joined, want %v", n.cores.joined, want)
	}
}

// A container whose processes can't join is reported once, and they are tried again.
func TestRefusedJoin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.start("web", 100)
	n.kernel.pids, n.cores.err = []int{100}, errors.New("the kernel refuses it")
	for range 2 {
		n.Join(c)
	}
	if len(c.Unjoined) != 1 || len(n.logged.AllEntries()) != 1 || c.Processes != nil || n.JoinedCores(c) {
		t.Errorf("failures %v, %d log entries, processes %v", c.Unjoined, len(n.logged.AllEntries()), c.Processes)
	}
	n.cores.err = nil
	n.Join(c)
	if len(c.Unjoined) > 0 || !n.JoinedCores(c) {
		t.Errorf("the processes have joined, and the failures are still %v", c.Unjoined)
	}
	if want := []int{100, 100, 100}; !reflect.DeepEqual(n.cores.joined, want) {
		t.Errorf("%v were tried, want %v", n.cores.joined, want)
	}
}

// The status drops the failure of a process that has ended, or of a group that nobody requests any
// more.
func TestOutdatedFailure(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testNode, *node.Container){
		"its process has ended": func(n *testNode, _ *node.Container) { n.kernel.pids = []int{100} },
		"no group is asked for": func(n *testNode, c *node.Container) {
			n.Ledger.PlaceShared(c.Identity(), workload.Request{Class: workload.LS}, "", time.Time{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := n.start("web", 100)
			n.kernel.pids = []int{100}
			n.Join(c)
			n.kernel.pids, n.cores.err = []int{100, 101}, errors.New("the kernel refuses it")
			n.Join(c)
			if len(c.Unjoined) != 1 || n.JoinedCores(c) {
				t.Fatalf("failures %v", c.Unjoined)
			}
			change(n, c)
			if n.Join(c); len(c.Unjoined) > 0 {
				t.Errorf("failures %v", c.Unjoined)
			}
		})
	}
}

// The journal names the cgroups of containers that are there, whose processes a restore takes
// out of their groups.
func TestJournalOfCores(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var last *node.Container
	for i := range 20 {
		if last != nil {
			n.Forget(last.ID)
		}
		last = n.start(fmt.Sprint("web", i), 100+i)
		n.Join(last)
	}
	var paths []string
	if _, err := n.Journal.State(coresState, &paths); err != nil || !reflect.DeepEqual(paths, []string{last.Path}) {
		t.Errorf("the journal has %q, %v", paths, err)
	}
	n.kernel.pids, n.cores.err = []int{119, 120}, errors.New("the kernel refuses it")
	if err := RestoreCores(n.kernel, n.cores, n.Journal); !errors.Is(err, n.cores.err) {
		t.Errorf("error %v, want that of the kernel", err)
	}
	n.cores.left, n.cores.err = nil, nil
	for range 2 { // the second call has nothing left to do
		if err := RestoreCores(n.kernel, n.cores, n.Journal); err != nil {
			t.Error(err)
		}
	}
	if !reflect.DeepEqual(n.cores.left, n.kernel.pids) {
		t.Errorf("%v left, want %v", n.cores.left, n.kernel.pids)
	}
}

// Processes keep their cookies and their I/O priority while the journal can't be written: nobody could
// give them back after a crash. The journal's file has them before the kernel does.
func TestJournalFirst(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	folder := filepath.Join(t.TempDir(), "later")
	file := filepath.Join(folder, "journal")
	n.Journal, _ = journal.Open(file, "boot") // there is no folder yet
	c := n.start("job", 100)
	n.Ledger.PlaceShared(c.Identity(), workload.Request{Class: workload.BE, Tuning: workload.Tuning{CoreSched: "all", IO: workload.IO{Priority: workload.IOIdle}}}, "", time.Time{})
	p := n.withPriorities(100)
	n.Join(c)
	if len(n.cores.joined) > 0 || len(c.Unjoined) != 2 || c.Processes != nil {
		t.Errorf("%v joined, failures %v, processes %v", n.cores.joined, c.Unjoined, c.Processes)
	}
	p.want(t, "without a journal")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	n.Join(c)
	if len(n.cores.joined) != 1 || len(c.Unjoined) > 0 {
		t.Errorf("%v joined, failures %v", n.cores.joined, c.Unjoined)
	}
	p.want(t, "with a journal", 100)
	saved, err := journal.Read(file, "boot") // as after a crash
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(RestoreCores(n.kernel, n.cores, saved), RestorePriorities(p, saved)); err != nil || len(n.cores.left) != 1 {
		t.Errorf("%v left, %v", n.cores.left, err)
	}
	p.want(t, "restored")
}

// A container with very many processes doesn't delay the event loop. "each with each" is the time
// of comparing every process with every other.
func BenchmarkNewcomers(b *testing.B) {
	pids := make([]int, 30000)
	for i := range pids {
		pids[i] = 100 + i
	}
	joined := pids[1:]
	for name, find := range map[string]func(pids, joined []int) []int{
		"sorted": newcomers,
		"each with each": func(pids, joined []int) []int {
			return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return slices.Contains(joined, pid) })
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if got := find(pids, joined); len(got) != 1 || got[0] != 100 {
					b.Fatal(got)
				}
			}
		})
	}
}
