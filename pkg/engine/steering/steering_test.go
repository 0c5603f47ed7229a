package steering

import (
	"maps"
	"path/filepath"
	"syscall"
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// affinities is a kernel that manages interrupt 3 itself.
type affinities struct {
	files  map[irq.File]cpuset.Set
	writes int
}

func (f *affinities) Read() (map[irq.File]cpuset.Set, error) { return maps.Clone(f.files), nil }

func (f *affinities) Write(w irq.Write) (cpuset.Set, error) {
	f.writes++
	if w.File == "3" {
		return cpuset.Set{}, syscall.EIO
	}
	f.files[w.File] = w.CPUs
	return w.CPUs, nil
}

func (f *affinities) Balancer() string { return "" }

var all = cpuset.MustParse("0-7")

func newAffinities() *affinities {
	return &affinities{files: map[irq.File]cpuset.Set{irq.Default: all, "1": all, "3": all}}
}

func open(t *testing.T, file string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(file, "boot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// steerer returns a Steerer whose slow work the test runs.
func steerer(kernel *affinities, j *journal.Journal) (s *Steerer, run func()) {
	log, _ := logtest.NewNullLogger()
	var waiting []func()
	s = New(kernel, j, func(work, then func()) { waiting = append(waiting, work, then) }, log)
	return s, func() {
		for len(waiting) > 0 {
			next := waiting[0]
			waiting = waiting[1:]
			next()
		}
	}
}

// Another agent that sets affinities may appear while the files are being read.
func TestNothingIsWrittenOnceForbidden(t *testing.T) {
	t.Parallel()
	kernel := newAffinities()
	s, run := steerer(kernel, open(t, ""))
	allowed := true
	want := irq.Desire{IRQs: cpuset.MustParse("2-3"), Online: all}
	s.Steer(want, func() bool { return allowed })
	allowed = false
	run()
	if kernel.writes > 0 || !s.Status().CPUs.IsEmpty() {
		t.Errorf("%d writes, status %+v", kernel.writes, s.Status())
	}
	allowed = true
	s.Steer(want, func() bool { return allowed })
	run()
	if got := s.Status(); got.CPUs != want.IRQs || got.Skipped != 1 || kernel.files["1"] != cpuset.MustParse("0-1,4-7") {
		t.Errorf("status %+v, files %v", got, kernel.files)
	}
}

func TestOneChangeAtATime(t *testing.T) {
	t.Parallel()
	kernel := newAffinities()
	s, run := steerer(kernel, open(t, ""))
	always := func() bool { return true }
	s.Steer(irq.Desire{IRQs: cpuset.Of(2), Online: all}, always)
	s.Steer(irq.Desire{IRQs: cpuset.Of(5), Online: all}, always)
	run()
	if got := s.Status().CPUs; got != cpuset.Of(2) {
		t.Errorf("steered off %s, want 2", got)
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "originals")
	kernel, j := newAffinities(), open(t, file)
	s, run := steerer(kernel, j)
	s.Steer(irq.Desire{IRQs: cpuset.Of(2), Online: all}, func() bool { return true })
	run()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, file)
	if originals, err := Originals(j); err != nil || originals["1"].Original != all {
		t.Fatalf("kept %v, %v", originals, err)
	}
	if err := Restore(kernel, all, j); err != nil || kernel.files["1"] != all || kernel.files[irq.Default] != all {
		t.Errorf("files %v, %v", kernel.files, err)
	}
	if originals, err := Originals(j); err != nil || len(originals) > 0 {
		t.Errorf("still kept: %v, %v", originals, err)
	}
}
