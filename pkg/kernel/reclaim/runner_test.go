package reclaim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// fake is a set of cgroups whose memory can be reclaimed down to a floor.
type fake struct {
	mu      sync.Mutex
	cgroups map[string]Observation
	floor   map[string]knobs.Bytes
	fails   error         // error of each observation
	takes   time.Duration // duration of each reclaim
	looks   int
	most    knobs.Bytes // largest amount of one request
}

func (f *fake) Observe(dir string) (Observation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	o, ok := f.cgroups[dir]
	if !ok {
		return o, fmt.Errorf("memory.current: %w", cgroupfs.ErrGone)
	}
	return o, f.fails
}

func (f *fake) Reclaim(dir string, bytes knobs.Bytes) error {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.cgroups[dir]
	if !ok {
		return fmt.Errorf("memory.reclaim: %w", cgroupfs.ErrGone)
	}
	f.most = max(f.most, bytes)
	got := min(bytes, o.Current-f.floor[dir])
	o.Current -= got
	o.File = max(o.File-got, 0)
	f.cgroups[dir] = o
	if got < bytes {
		return fmt.Errorf("memory.reclaim: %d of %d bytes: %w", got, bytes, syscall.EAGAIN)
	}
	return nil
}

// change changes a cgroup as its tasks would.
func (f *fake) change(dir string, o Observation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cgroups[dir] = o
}

func (f *fake) looked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

func (f *fake) current(dir string) knobs.Bytes {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cgroups[dir].Current
}

// running returns a Runner that runs in a synctest bubble until the test ends.
func running(t *testing.T, f *fake) *Runner {
	t.Helper()
	if f.cgroups == nil {
		f.cgroups = map[string]Observation{}
	}
	r := New(f)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return r
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRunnerHoldsTheMark(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{takes: 10 * time.Millisecond}
		r := running(t, f)
		full := Observation{Current: 10000 * mib, Max: 10000 * mib}
		f.change("/a", full)
		f.change("/b", full)
		r.Set(map[string]Target{"/a": {StartAt: 9000 * mib, Until: 8000 * mib}, "/b": {}, "/gone": {StartAt: gib}})
		pass(10 * time.Second)
		if got := f.current("/a"); got != 8000*mib {
			t.Errorf("/a has %d", got)
		}
		if f.current("/b") != 10000*mib {
			t.Error("/b has no target")
		}
		c := r.Counters()
		if c.Reclaimed != 2000*mib || c.Failures+c.Shortfalls+c.Pauses > 0 || c.LastError != "" {
			t.Errorf("counters %+v", c)
		}
		if f.most != 100*mib {
			t.Errorf("%d bytes at once", f.most)
		}
		// After twenty steps nothing is left to do: there is one observation per second, and none
		// of cgroups that are gone.
		if c.Steps != 20 {
			t.Errorf("%d steps", c.Steps)
		}
		looks := f.looked()
		pass(10 * time.Second)
		if got := f.looked() - looks; got != 10 {
			t.Errorf("%d looks in 10 s", got)
		}

		f.change("/a", full)
		r.Set(nil)
		looks = f.looked()
		pass(time.Hour)
		if f.current("/a") != 10000*mib || f.looked() != looks {
			t.Errorf("still at work without targets: %d looks", f.looked()-looks)
		}
	})
}

func TestRunnerStopsUnderPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		r := running(t, f)
		f.change("/a", Observation{Current: gib, Max: gib, Pressure: 30})
		r.Set(map[string]Target{"/a": {StartAt: gib / 2, Until: gib / 3}})
		pass(time.Minute)
		if c := r.Counters(); f.current("/a") != gib || c.Pauses != 1 || c.Steps > 0 {
			t.Errorf("%d left, %+v", f.current("/a"), c)
		}
		f.change("/a", Observation{Current: gib, Max: gib, Pressure: 1})
		pass(time.Minute)
		if c := r.Counters(); f.current("/a") > gib/2 || c.Pauses != 1 {
			t.Errorf("%d left, %+v", f.current("/a"), c)
		}
	})
}

func TestRunnerWaitsAfterShortfalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{floor: map[string]knobs.Bytes{"/a": gib}}
		r := running(t, f)
		f.change("/a", Observation{Current: gib, Max: gib})
		r.Set(map[string]Target{"/a": {StartAt: gib / 2, Until: gib / 3}})
		pass(10 * time.Minute)
		// Attempts follow after 0, 1, 3, 7, 15, 31 and 63 s, and then each minute, at the next
		// observation.
		if c := r.Counters(); c.Shortfalls != c.Steps || c.Steps < 14 || c.Steps > 16 || c.Reclaimed > 0 || c.LastError != "" {
			t.Errorf("%+v", c)
		}
		if looks := f.looked(); looks != 601 {
			t.Errorf("%d looks", looks)
		}
		// A cgroup that was no target for a while starts from the beginning.
		steps := r.Counters().Steps
		r.Set(nil)
		synctest.Wait()
		r.Set(map[string]Target{"/a": {StartAt: gib / 2, Until: gib / 3}})
		synctest.Wait()
		if got := r.Counters().Steps; got != steps+1 {
			t.Errorf("%d steps after %d", got, steps)
		}
	})
}

func TestRunnerFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{fails: errors.New("memory.current: input/output error")}
		r := running(t, f)
		f.change("/a", Observation{Current: gib, Max: gib})
		r.Set(map[string]Target{"/a": {StartAt: gib / 2, Until: gib / 3}})
		pass(3500 * time.Millisecond)
		c := r.Counters()
		if c.Failures != 4 || c.Steps > 0 || !strings.Contains(c.LastError, "/a") || !strings.Contains(c.LastError, "memory.current") {
			t.Errorf("%+v", c)
		}
		f.fails = nil
		f.change("/a", Observation{Current: gib, Max: gib, Pressure: -1})
		pass(time.Second)
		if c := r.Counters(); c.Failures != 5 || c.Steps > 0 || c.Pauses > 0 || !strings.Contains(c.LastError, "memory.pressure") {
			t.Errorf("%+v", c)
		}
	})
}

// A step that takes long blocks neither Set nor Counters. The Runner ends when the step is done.
func TestRunnerBlocksNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{takes: time.Hour}
		r := running(t, f)
		f.change("/a", Observation{Current: gib, Max: gib})
		f.change("/b", Observation{Current: gib, Max: gib})
		targets := map[string]Target{"/a": {StartAt: gib / 2, Until: gib / 3}, "/none": {}}
		r.Set(targets)
		if len(targets) != 2 {
			t.Error("the caller's map was changed")
		}
		pass(time.Minute)
		before := time.Now()
		for range 10 {
			r.Set(map[string]Target{"/b": {StartAt: gib, Until: gib / 2}})
			r.Counters()
		}
		if time.Since(before) > 0 {
			t.Error("it was blocked")
		}
		pass(90 * time.Minute)
		if f.current("/a") != gib-64*mib {
			t.Errorf("/a is no target any more, and has %d", f.current("/a"))
		}
	})
}

func TestRunnerDropsWhatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{takes: time.Millisecond}
		r := running(t, f)
		f.change("/a", Observation{Current: gib, Max: gib})
		r.Set(map[string]Target{"/a": {StartAt: gib / 2, Until: gib / 3}})
		pass(500 * time.Millisecond)
		f.mu.Lock()
		maps.DeleteFunc(f.cgroups, func(string, Observation) bool { return true })
		f.mu.Unlock()
		pass(2 * time.Second)
		looks := f.looked()
		pass(time.Hour)
		if c := r.Counters(); f.looked() != looks || c.Failures > 0 {
			t.Errorf("%d more looks, %+v", f.looked()-looks, c)
		}
		f.change("/a", Observation{Current: gib, Max: gib})
		r.Set(map[string]Target{"/a": {StartAt: gib / 2, Until: gib / 3}})
		pass(time.Minute)
		if f.current("/a") > gib/2 {
			t.Error("a cgroup that came back is left alone")
		}
	})
}

func BenchmarkStep(b *testing.B) {
	now := start()
	o := Observation{Current: gib, Max: gib, File: gib / 2}
	target := Target{StartAt: gib / 100 * 95, Until: gib / 100 * 94, CacheMax: gib}
	var state State
	for b.Loop() {
		now = now.Add(time.Second)
		state, _ = Step(target, state, o, now)
	}
}
