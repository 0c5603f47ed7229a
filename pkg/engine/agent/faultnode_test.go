package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// faultNode is a node on which things go wrong: the plugin with its loop, the failsafe, and their
// files on a small disk, over a fake kernel. Beside it stands the kernel of a node without Sluice on
// which the same pods run.
type faultNode struct {
	*loopNode
	dice
	without *knobNode
	asks    map[string]ask
	pods    int
	disk    string // has the folders run and state
	story   story

	end        context.CancelFunc // ends the plugin's side of the failsafe
	keeping    chan struct{}      // closed when it has ended
	watch      context.CancelFunc // ends the failsafe's own process
	pulse      io.Closer
	alive      atomic.Bool // the plugin runs
	trouble    *trouble    // what the kernel does to accesses
	online     cpuset.Set
	garbled    map[string]bool // files of cgroups whose originals a garbled journal has lost
	unplugged  cpuset.Set      // CPUs that went offline since the last check
	hotplugged bool            // CPUs went offline once
	unpinned   bool            // all was given back since the last check
	denied     bool            // the kernel refused writes since the node came to rest last
}

// newFaultNode makes a node of one of the kernels with one of the configurations.
func newFaultNode(t *testing.T, seed uint64, disk string) *faultNode {
	d := dice{rand.New(&sharedSource{source: rand.NewPCG(seed, 15)})}
	flavour := oneOf(d, fakekernel.Flavours())
	flavour.NoWayBack = false
	f := &faultNode{dice: d, asks: map[string]ask{}, disk: disk, online: cpuset.Range(0, fakekernel.CPUs-1), garbled: map[string]bool{}}
	for _, dir := range []string{f.runDir(), f.stateDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := knobSetup{config: "mode: preview\n", originals: filepath.Join(f.runDir(), "originals.jsonl")}
	s.options = func(_ *knobNode, o *Options) { o.StateDir = f.stateDir() }
	newKnobNode(t, flavour, withLoop(s, &f.loopNode))
	f.stop()
	f.o.Failsafe = nil
	f.without = &knobNode{Kernel: fakekernel.New(flavour), t: t, pods: map[string]*workload.Pod{}, specs: map[string]*spec{}}
	f.without.Mkdir("/kubepods/burstable")
	f.without.Mkdir("/kubepods/besteffort")
	f.trouble = &trouble{node: f}
	f.Interfere(f.trouble.meet)
	f.text = oneOf(d, faultConfigs())
	f.tell("%s with %q", flavour.Name, f.text)
	f.rise()
	return f
}

// faultConfigs returns configurations under which Sluice writes a lot.
func faultConfigs() []string {
	return []string{
		poolsOn,
		byQuota,
		"control: {mode: on, batch: {by: cpuset}}\nreserved: \"7\"\n",
		"control: {mode: on, batch: {by: both, thresholdPercent: 65}, burst: {all: true}}\n",
		"control: {mode: on, memory: {mode: on}, demotion: {mode: on}}\nclasses: {BE: {cpu-identity: -1, memory-qos: {wmarkRatio: 90}, io: {weight: 10}}, LS: {memory-qos: {lowPercent: 100}}}\n",
		"control: {mode: on}" + everyKnob,
	}
}

func (f *faultNode) runDir() string   { return filepath.Join(f.disk, "run") }
func (f *faultNode) stateDir() string { return filepath.Join(f.disk, "state") }

// tell adds to what is told of the run if it fails.
func (f *faultNode) tell(format string, a ...any) {
	f.story.mu.Lock()
	defer f.story.mu.Unlock()
	f.story.lines = append(f.story.lines, time.Now().Format("15:04:05.0 ")+fmt.Sprintf(format, a...))
}

// story is what happened, as the test and the failsafe tell it.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// rise starts the plugin with what is on the disk, and connects it.
func (f *faultNode) rise() {
	log := f.o.Log
	ctx, cancel := context.WithCancel(context.Background())
	keeper := failsafe.NewKeeper(f.runDir(), "", f.startWatcher, log)
	keeping := make(chan struct{})
	go func() { defer close(keeping); keeper.Run(ctx) }()
	f.end, f.keeping = cancel, keeping
	f.o.Failsafe = keeper
	f.o.FailsafePlan, _ = failsafe.Load(f.runDir(), "") // what can't be read is not undone
	f.trouble.over()
	f.alive.Store(true)
	cached(f.text)(&f.o.Node)
	f.launch(f.text)
	synctest.Wait()
}

// startWatcher starts the failsafe's process.
func (f *faultNode) startWatcher() (io.WriteCloser, error) {
	if f.watch != nil {
		f.watch()
	}
	reads, writes := io.Pipe()
	beats := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	f.watch, f.pulse = cancel, reads
	go func() {
		defer close(beats)
		one := make([]byte, 64)
		for {
			if _, err := reads.Read(one); err != nil {
				return
			}
			select {
			case beats <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	act := func(why string) error {
		plan, err := failsafe.Load(f.runDir(), "")
		f.tell("the failsafe acts: %s: %d changes, %v", why, len(plan), err)
		err = failsafe.Carry(f.spy.Driver, plan)
		return errors.Join(err, failsafe.SaveReport(f.runDir(), failsafe.Report{Time: time.Now(), Why: why, Changes: len(plan)}))
	}
	w := failsafe.Watcher{Beats: beats, Act: act, Succeeded: f.alive.Load}
	go w.Watch(ctx) // what fails is in the story
	return writes, nil
}

// die ends the plugin as kill -9 does: the kernel and the disk are as they were at that moment.
func (f *faultNode) die() {
	if !f.alive.Load() {
		return
	}
	f.trouble.kill()
	f.alive.Store(false)
	f.end()
	<-f.keeping
	f.stop()
	synctest.Wait()
	atDeath := f.trouble.deathbed()
	f.trouble.over()
	f.writeBack(atDeath)
}

// killed reports whether the plugin was killed, although it may not have ended yet.
func (f *faultNode) killed() bool { return f.trouble.deathbed() != nil }

// files returns all files on the disk.
func (f *faultNode) files() map[string][]byte {
	all := map[string][]byte{}
	filepath.WalkDir(f.disk, func(path string, e os.DirEntry, err error) error { // a file that is gone is none
		if err == nil && e.Type().IsRegular() && e.Name() != filler {
			if data, err := os.ReadFile(path); err == nil {
				all[path] = data
			}
		}
		return nil
	})
	return all
}

// writeBack makes the disk what it was when the plugin was killed.
func (f *faultNode) writeBack(files map[string][]byte) {
	f.t.Helper()
	for path := range f.files() {
		if _, had := files[path]; !had {
			os.Remove(path) // it is told below, if it matters
		}
	}
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			f.t.Errorf("write back: %v", err)
		}
	}
}

// leave ends everything that runs on the node.
func (f *faultNode) leave() {
	f.die()
	if f.watch != nil {
		f.watch()
		f.pulse.Close() // it never fails
	}
	synctest.Wait()
}

// names lists the containers for which a condition holds, in a fixed order.
func (f *faultNode) names(are func(name string) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.specs)), func(name string) bool { return !are(name) })
}

func (f *faultNode) running(name string) bool { return f.specs[name].State == workload.Running }

// arrive runs a new container, with the plugin if it lives. The runtime goes on without a plugin
// that dies.
func (f *faultNode) arrive() {
	name := fmt.Sprintf("p%d/c", f.pods)
	f.pods++
	a := f.anyAsk(name)
	f.tell("%s arrives: %v %s", name, a.annotations, a.qos)
	if f.alive.Load() {
		err := f.create(a)
		if !f.killed() && err != nil {
			f.without.podOf(&a)
			f.tell("it is refused: %v", err)
			return
		}
	}
	if !f.alive.Load() || f.killed() { // nobody reads the answer of a plugin that died
		f.record(a)
	}
	f.asks[name] = a
	f.without.record(a)
	f.without.make(f.without.specs[name])
	f.uses[name] = float64(f.IntN(31)) / 10
	s := f.specs[name]
	f.make(s)
	if !f.alive.Load() || f.killed() {
		return
	}
	pod := *f.podOfName(name)
	if err := f.agent.StartContainer(context.Background(), &pod, s.Container); err != nil && !f.killed() {
		f.tell("its start is refused: %v", err)
		f.depart(name)
	}
}

func (f *faultNode) anyAsk(name string) ask {
	tuned := service(name, 1000)
	tuned.memory = 64
	tuned.annotations["memory-qos.sluice.dev"] = "{minPercent: 50, highPercent: 80}"
	tuned.annotations["cpu-burst.sluice.dev"] = "100%"
	pin := func(class string, milli int) ask {
		return ask{name: name, milli: milli, memory: 64, annotations: map[string]string{"class.sluice.dev": class}}
	}
	return oneOf(f.dice, []ask{
		service(name, 1000), service(name, 2000), bursting(name, 1000), tuned, batch(name), batch(name), granted(name), tiered(name, "free"),
		{name: name, qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}},
		pin("LSR", 1000), pin("LSR", 2000), pin("LSE", 1000),
		{name: name, qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS"}},
	})
}

// depart ends a container.
func (f *faultNode) depart(name string) {
	f.tell("%s departs", name)
	f.vanish(name)
	if f.alive.Load() {
		f.agent.StopContainer(context.Background(), name) // it has ended in any case
	}
}

// vanish ends a container without a word to the plugin.
func (f *faultNode) vanish(name string) {
	if f.running(name) {
		f.Rmdir(f.specs[name].CgroupsPath)
		f.without.Rmdir(f.without.specs[name].CgroupsPath)
	}
	delete(f.specs, name)
	delete(f.without.specs, name)
	delete(f.uses, name)
}

// plug takes all CPUs but these offline, and tells the plugin if it lives.
func (f *faultNode) plug(online cpuset.Set) {
	f.tell("online are %s", online)
	f.unplugged = cpuset.Union(f.unplugged, cpuset.Difference(f.online, online))
	f.online, f.hotplugged = online, true
	f.Plug(online)
	f.without.Plug(online)
	f.o.Machine = f.machine()
	if f.alive.Load() {
		f.agent.SetMachine(f.o.Machine)
	}
}

func (f *faultNode) machine() *topology.Machine {
	text := twoNodes
	if off := cpuset.Difference(cpuset.Range(0, fakekernel.CPUs-1), f.online); !off.IsEmpty() {
		text += " offline " + off.String()
	}
	m, err := synth.Machine(text)
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// live lets the node live for a while: containers come and go, the load changes.
func (f *faultNode) live() {
	for range 1 + f.IntN(3) {
		switch all := f.names(f.running); {
		case len(all) < 3 || len(all) < 8 && f.IntN(2) == 0:
			f.arrive()
		case f.IntN(3) == 0:
			f.depart(oneOf(f.dice, all))
		default:
			name := oneOf(f.dice, all)
			f.uses[name] = float64(f.IntN(31)) / 10
			f.hold(name, int64(f.IntN(64))<<20)
		}
		f.pause(time.Duration(1+f.IntN(8)) * 100 * time.Millisecond)
	}
}

// pause lets time pass, for the loop too if the plugin lives.
func (f *faultNode) pause(d time.Duration) {
	if f.alive.Load() && !f.killed() {
		f.steps(d)
		return
	}
	f.sleep(d)
}

// filler is the name of the file that fills the disk.
const filler = "filler"

// smallDisk mounts a disk of its own for a node; without root it is a folder, which can't become full.
func smallDisk(t *testing.T) (dir string) {
	dir = t.TempDir()
	if err := unix.Mount("sluice-faults", dir, "tmpfs", 0, "size=512k"); err != nil {
		return dir
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// sharedSource is a source of random numbers that goroutines share.
type sharedSource struct {
	mu     sync.Mutex
	source rand.Source
}

func (s *sharedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Uint64()
}

// errnos lists what a kernel answers to accesses of cgroup files.
func errnos() []syscall.Errno {
	return []syscall.Errno{syscall.EBUSY, syscall.EINVAL, syscall.EACCES, syscall.EROFS, syscall.ENOSPC, syscall.EIO, syscall.EPERM, syscall.ENOMEM, syscall.EAGAIN}
}
