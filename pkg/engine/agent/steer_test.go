package agent

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/steering"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// affinities is a kernel that manages interrupt 3 itself.
type affinities struct {
	mu            sync.Mutex
	files         map[irq.File]cpuset.Set
	reads, writes int
	balancer      string
	before        func(irq.Write) // called before each write
}

func newAffinities() *affinities {
	all := cpuset.MustParse("0-7")
	return &affinities{files: map[irq.File]cpuset.Set{irq.Default: all, irq.Workqueues: all, "1": all, "3": all}}
}

func (f *affinities) Read() (map[irq.File]cpuset.Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return maps.Clone(f.files), nil
}

func (f *affinities) Write(w irq.Write) (cpuset.Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if f.before != nil {
		f.before(w)
	}
	if w.File == "3" {
		return cpuset.Set{}, syscall.EIO
	}
	f.files[w.File] = w.CPUs
	return w.CPUs, nil
}

func (f *affinities) calls() (reads, writes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads, f.writes
}

func (f *affinities) Balancer() string { return f.balancer }

// steered is a running agent in a synctest bubble.
type steered struct {
	*Agent
	t      *testing.T
	kernel *affinities
	log    *logtest.Hook
	drift  time.Duration // the configured driftInterval, which no test changes
	stop   func()
}

func steeredAgent(t *testing.T, kernel *affinities, file, yaml string) *steered {
	t.Helper()
	machine, err := synth.Machine("1 packages 1 nodes 4 cores 2 threads numbering adjacent")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	log, hook := logtest.NewNullLogger()
	a := New(Options{
		Config: cfg, Machine: machine, Log: log, Originals: file, Affinities: kernel,
		Host: fstest.MapFS{"proc/1/comm": {Data: []byte("systemd\n")}},
	})
	ctx, stop := context.WithCancel(context.Background())
	go a.Run(ctx)
	return &steered{a, t, kernel, hook, cfg.DriftInterval, func() { stop(); synctest.Wait() }}
}

var lsePod = workload.Pod{
	ID: "p", UID: "u", Namespace: "ns", Name: "pod", CgroupParent: "/kubepods/podu", Annotations: map[string]string{"class.sluice.dev": "LSE"},
}

func (s *steered) synchronize() {
	s.t.Helper()
	if _, err := s.Synchronize(context.Background(), nil, nil); err != nil {
		s.t.Fatal(err)
	}
}

// pin creates an LSE container with the two CPUs of one core.
func (s *steered) pin(id string) cpuset.Set {
	s.t.Helper()
	reply, _, err := s.CreateContainer(context.Background(), &lsePod, workload.Container{ID: id, PodID: "p", Name: id, Resources: workload.Resources{Quota: 200000, Period: 100000}})
	if err != nil || reply.CPUs.Size() != 2 {
		s.t.Fatalf("pinned to %s, %v", reply.CPUs, err)
	}
	return reply.CPUs
}

func (s *steered) unpin(id string) {
	s.t.Helper()
	if _, err := s.StopContainer(context.Background(), id); err != nil {
		s.t.Fatal(err)
	}
}

// passes waits for some periodic passes.
func (s *steered) passes() {
	time.Sleep(3*s.drift + time.Millisecond)
	synctest.Wait()
}

// want checks the files that can be steered, and the status.
func (s *steered) want(irqs, workqueues cpuset.Set, told status.Steering) {
	s.t.Helper()
	s.kernel.mu.Lock()
	defer s.kernel.mu.Unlock()
	all := cpuset.MustParse("0-7")
	for f, away := range map[irq.File]cpuset.Set{"1": irqs, irq.Default: irqs, irq.Workqueues: workqueues, "3": {}} {
		if got, want := s.kernel.files[f], cpuset.Difference(all, away); got != want {
			s.t.Errorf("%s has %s, want %s", f, got, want)
		}
	}
	if st, err := s.Status(); err != nil || st.Machine.Steering != told {
		s.t.Errorf("status %+v, %v; want %+v", st.Machine.Steering, err, told)
	}
}

func (s *steered) logged(text string) (n int) {
	for _, e := range s.log.AllEntries() {
		if strings.Contains(e.Message, text) {
			n++
		}
	}
	return n
}

const steerBoth = "steer: {irqs: true, workqueues: true}"

func TestSteering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "originals")
		kernel := newAffinities()
		kernel.balancer = "17"
		kernel.before = func(w irq.Write) {
			var state irq.Originals
			_, err := readJournal(t, file).State(steering.State, &state)
			if k := state[w.File]; err != nil || k.Original != cpuset.MustParse("0-7") || k.Now != w.CPUs {
				t.Errorf("%s is written, but kept is %+v, %v", w.File, k, err)
			}
		}
		s := steeredAgent(t, kernel, file, steerBoth)
		defer s.stop()
		s.synchronize()
		s.passes()
		if reads, _ := kernel.calls(); reads > 0 {
			t.Error("affinities are read though nothing is pinned")
		}

		first := s.pin("a")
		synctest.Wait()
		if reads, writes := kernel.calls(); reads+writes > 0 {
			t.Error("a handler steers")
		}
		s.passes()
		s.want(first, first, status.Steering{CPUs: first, Skipped: 1})
		reads, _ := kernel.calls()
		s.passes()
		if again, _ := kernel.calls(); again != reads {
			t.Error("affinities are read again though no pin changed")
		}

		second := s.pin("b")
		s.passes()
		both := cpuset.Union(first, second)
		s.want(both, both, status.Steering{CPUs: both, Skipped: 1})
		s.unpin("a")
		s.passes()
		s.want(second, second, status.Steering{CPUs: second, Skipped: 1})
		s.unpin("b")
		s.passes()
		s.want(cpuset.Set{}, cpuset.Set{}, status.Steering{})
		for text, want := range map[string]int{"irqbalance": 1, "stay where they are": 1, "steered off": 3, "original CPUs again": 1} {
			if got := s.logged(text); got != want {
				t.Errorf("%d lines with %q, want %d", got, text, want)
			}
		}
		if has, err := readJournal(t, file).State(steering.State, &irq.Originals{}); has || err != nil {
			t.Errorf("the originals are still kept: %v", err)
		}
	})
}

func TestSteeringByConfig(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]struct{ irqs, workqueues, writes bool }{
		"":                            {}, // off by default
		"mode: preview\n" + steerBoth: {},
		"steer: {irqs: true}":         {irqs: true, writes: true},
		"steer: {workqueues: true}":   {workqueues: true, writes: true},
	} {
		t.Run(yaml, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := steeredAgent(t, newAffinities(), "", yaml)
				defer s.stop()
				s.synchronize()
				if _, _, err := s.CreateContainer(context.Background(), &lsePod, workload.Container{ID: "a", PodID: "p", Name: "a", Resources: workload.Resources{Quota: 200000, Period: 100000}}); err != nil {
					t.Fatal(err)
				}
				s.passes()
				var irqs, workqueues cpuset.Set
				var told status.Steering
				st, err := s.Status()
				if err != nil || st.Machine.Pinned.IsEmpty() {
					t.Fatalf("nothing is pinned: %v", err)
				}
				if want.irqs {
					irqs, told = st.Machine.Pinned, status.Steering{CPUs: st.Machine.Pinned, Skipped: 1}
				}
				if want.workqueues {
					workqueues, told = st.Machine.Pinned, status.Steering{CPUs: st.Machine.Pinned}
				}
				s.want(irqs, workqueues, told)
				if reads, writes := s.kernel.calls(); !want.writes && reads+writes > 0 {
					t.Errorf("%d reads and %d writes", reads, writes)
				}
			})
		})
	}
}

// LSR shares its cores' interrupts with others; only LSE is kept free of them.
func TestOnlyLSEIsSteered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := steeredAgent(t, newAffinities(), "", steerBoth)
		defer s.stop()
		s.synchronize()
		pod := lsePod
		pod.Annotations = map[string]string{"class.sluice.dev": "LSR"}
		if _, _, err := s.CreateContainer(context.Background(), &pod, workload.Container{ID: "a", PodID: "p", Name: "a", Resources: workload.Resources{Quota: 200000, Period: 100000}}); err != nil {
			t.Fatal(err)
		}
		s.passes()
		s.want(cpuset.Set{}, cpuset.Set{}, status.Steering{})
	})
}

// If steering is off, the changes of an earlier run are restored, but only after the runtime has
// listed the containers.
func TestSteeringOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "originals")
		kernel := newAffinities()
		s := steeredAgent(t, kernel, file, steerBoth)
		s.synchronize()
		pinned := s.pin("a")
		s.passes()
		s.stop()

		s = steeredAgent(t, kernel, file, "")
		defer s.stop()
		_, before := kernel.calls()
		s.passes()
		if _, writes := kernel.calls(); writes != before || kernel.files["1"].Overlaps(pinned) {
			t.Error("steering is undone before the containers are known")
		}
		s.synchronize()
		s.passes()
		s.want(cpuset.Set{}, cpuset.Set{}, status.Steering{})
	})
}

// Preview gives back what was steered, while the pin stays: after a reload, after one in the middle
// of a change, and after a restart. Once it ends, the pin is steered around again.
func TestPreviewGivesBackWhatWasSteered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const preview = "mode: preview\n" + steerBoth
		file := filepath.Join(t.TempDir(), "originals")
		kernel := newAffinities()
		s := steeredAgent(t, kernel, file, steerBoth)
		s.synchronize()
		pinned := s.pin("a")
		around := func() {
			t.Helper()
			s.passes()
			s.want(pinned, pinned, status.Steering{CPUs: pinned, Skipped: 1})
		}
		back := func() {
			t.Helper()
			s.passes()
			s.want(cpuset.Set{}, cpuset.Set{}, status.Steering{})
			_, writes := kernel.calls()
			s.passes()
			if _, now := kernel.calls(); now != writes {
				t.Errorf("%d writes after all is given back", now-writes)
			}
		}
		around()
		mustReload(t, s.Agent, preview)
		back()
		kernel.before = func(irq.Write) {
			kernel.before = nil
			if _, err := reload(s.Agent, preview); err != nil {
				t.Error(err)
			}
		}
		mustReload(t, s.Agent, steerBoth)
		back()
		mustReload(t, s.Agent, steerBoth)
		around()
		s.stop()

		s = steeredAgent(t, kernel, file, preview)
		defer func() { s.stop() }()
		s.synchronize()
		back()
	})
}

func TestNothingIsSteeredWithoutOriginals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "later")
		s := steeredAgent(t, newAffinities(), filepath.Join(folder, "originals"), steerBoth)
		defer s.stop()
		s.synchronize()
		pinned := s.pin("a")
		s.passes()
		if _, writes := s.kernel.calls(); writes > 0 {
			t.Error("an affinity is written whose original is not on disk")
		}
		s.want(cpuset.Set{}, cpuset.Set{}, status.Steering{})
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		s.passes()
		s.want(pinned, pinned, status.Steering{CPUs: pinned, Skipped: 1})
	})
}
