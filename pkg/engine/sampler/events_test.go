package sampler

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/perf"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// events counts 2e9 cycles and 1e9 instructions a second of each cgroup, from its start on.
type events struct {
	b       *bed
	on      map[string]time.Time
	started []string // cgroup and seconds since the test's begin
	room    int      // counts that may go on at once
	refuse  error
	asked   int              // calls of Start
	lost    map[string]error // errors of Count
	most    int              // counts at once
	closed  bool
}

func (e *events) Start(dir string) error {
	e.asked++
	if e.refuse != nil {
		return e.refuse
	}
	e.on[dir] = time.Now()
	e.started = append(e.started, fmt.Sprintf("%s %.1f", dir, time.Since(e.b.start).Seconds()))
	e.most = max(e.most, len(e.on))
	return nil
}

func (e *events) Count(dir string) (perf.Counts, error) {
	began, ok := e.on[dir]
	if !ok {
		e.b.t.Errorf("%s is read without a count", dir)
	}
	n := 1e9 * time.Since(began).Seconds()
	return perf.Counts{First: 2 * n, Second: n}, e.lost[dir]
}

func (e *events) Stop(dir string) { delete(e.on, dir) }
func (e *events) Room() bool      { return len(e.on) < e.room }
func (e *events) Close()          { e.closed = true }

// counted adds a fake of the kernel's counters, and returns n containers whose events are counted.
func (b *bed) counted(n int) (*events, []observe.Target) {
	e := &events{b: b, on: map[string]time.Time{}, room: 500, lost: map[string]error{}}
	b.Events = e
	targets := b.containers(n)
	for i := range targets {
		targets[i].CPI, targets[i].Fast = true, true
	}
	return e, targets
}

// samples takes samples for some seconds, and returns the times of new counts of a container.
func (b *bed) samples(seconds int, targets []observe.Target, of int) (at []string) {
	targets = slices.Clone(targets) // the caller changes its list
	last := time.Time{}
	for range seconds * 10 {
		b.sample(fast, targets)
		if c := b.into.Containers[of].CPI; !c.At.IsZero() && c.At != last {
			last = c.At
			at = append(at, fmt.Sprintf("%.0f for %.0f: %.2f", c.At.Sub(b.start).Seconds(), c.Over.Seconds(), c.Cycles))
		}
	}
	return at
}

// TestEventsAreCountedInTurns checks that each container is counted for ten seconds of each minute, and that
// counts don't begin in the same sample.
func TestEventsAreCountedInTurns(t *testing.T) {
	in(t, func(b *bed) {
		e, targets := b.counted(3)
		got := b.samples(150, targets, 0)
		if want := "[10 for 10: 2.00 70 for 10: 2.00 130 for 10: 2.00]"; fmt.Sprint(got) != want {
			b.t.Errorf("counted at %v, want %s", got, want)
		}
		if len(e.on) > 0 {
			b.t.Errorf("still counting: %v", e.on)
		}
		begun := strings.Join(e.started[:3], ", ")
		if want := "/pods/c0 0.1, /pods/c1 0.2, /pods/c2 0.3"; begun != want {
			b.t.Errorf("begun: %s, want %s", begun, want)
		}
		if err := b.Close(); err != nil || !e.closed {
			b.t.Errorf("closed: %v, %v", e.closed, err)
		}
	})
}

// TestEventsOfOneAllTheTime checks that the container in question is counted without a break, and no longer
// than it is asked for.
func TestEventsOfOneAllTheTime(t *testing.T) {
	in(t, func(b *bed) {
		e, targets := b.counted(2)
		b.samples(30, targets, 0)
		targets[0].CPIAlways = true
		if got := b.samples(5, targets, 0); len(got) < 4 || !strings.HasSuffix(got[2], " for 1: 2.00") {
			b.t.Errorf("counted at %v, want each second", got)
		}
		targets[0].CPIAlways = false
		b.samples(11, targets, 0)
		if len(e.on) > 0 {
			b.t.Errorf("still counting: %v", e.on)
		}
	})
}

// TestEventsHaveRoom checks that no more files are open than may be, and that each container has its turn
// nevertheless.
func TestEventsHaveRoom(t *testing.T) {
	in(t, func(b *bed) {
		e, targets := b.counted(20)
		e.room = 2
		b.samples(240, targets, 0)
		if e.most != 2 {
			b.t.Errorf("%d are counted at once, want 2", e.most)
		}
		turns := map[string]int{}
		for _, s := range e.started {
			dir, _, _ := strings.Cut(s, " ")
			turns[dir]++
		}
		for i := range targets {
			if n := turns[targets[i].Path]; n < 2 || n > 3 {
				b.t.Errorf("%s had %d turns of 10 s in 240 s, with 2 of 20 at once", targets[i].Path, n)
			}
		}
	})
}

// TestEventsEnd checks that a count ends with its container, with the wish for it, and with a failure.
func TestEventsEnd(t *testing.T) {
	in(t, func(b *bed) {
		e, targets := b.counted(4)
		b.samples(1, targets, 0)
		targets[0].CPI = false
		targets[1].Path = targets[3].Path + "/moved"
		b.kernel.Mkdir(targets[1].Path)
		b.samples(1, targets[:2], 0)
		if _, on := e.on[targets[1].Path]; len(e.on) != 1 || !on {
			b.t.Errorf("still counting: %v, want the one that moved", e.on)
		}
		e.lost[targets[1].Path] = cgroupfs.ErrGone
		if got := b.samples(12, targets[:2], 1); len(e.on) > 0 || len(got) > 0 {
			b.t.Errorf("still counting %v, counted %v", e.on, got)
		}
	})
}

// TestEventsRefused checks that a machine without counters is asked once a minute, and reported once and not
// as a failure; and that other errors are failures.
func TestEventsRefused(t *testing.T) {
	for _, test := range []struct {
		err      error
		reports  int
		failures bool
	}{
		{cgroupfs.ErrUnsupported, 1, false},
		{fs.ErrPermission, 1, false},
		{cgroupfs.ErrGone, 0, false},
		{fmt.Errorf("too many files"), 1, true},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			in(t, func(b *bed) {
				e, targets := b.counted(5)
				e.refuse = test.err
				reports := 0
				for range 1500 {
					time.Sleep(fast)
					if _, err := b.Sample(time.Now(), targets, &b.into); err != nil {
						reports += strings.Count(err.Error(), test.err.Error())
					}
				}
				if kernel := test.reports == 1 && !test.failures; kernel && e.asked > 3 {
					b.t.Errorf("asked %d times in 150 s, want once a minute", e.asked)
				}
				if failed := strings.Contains(fmt.Sprint(b.Failures()), "cycles"); reports != test.reports || failed != test.failures {
					b.t.Errorf("reported %d times, counted as a failure: %v; want %d, %v", reports, failed, test.reports, test.failures)
				}
			})
		})
	}
}
