package agent

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// writer makes the kernel writes that may take as long as the kernel likes, outside
// of the loop: pages that move to other memory nodes, memory that is reclaimed below
// a limit, and the freeze of a disk's queue last as long as the write does.
//
// The loop alone reads and changes these fields. Each write runs in a goroutine that
// reports back to the loop. Writes to one setting are made in the order in which the
// loop asked for them, and of those that wait only the last is made.
type writer struct {
	settings map[reconcile.Key]*writing
	turn     []reconcile.Key // of those that wait for a goroutine, the oldest first
	running  int             // goroutines
	spent    time.Duration
}

// writing is what is under way to one setting.
type writing struct {
	now, next *write // under way; to be made after it
	since     time.Time
}

// write is one value on its way to the kernel.
type write struct {
	knobs.Change
	before knobs.Value // what Sluice had written before it; nil nothing
	err    error
	done   chan struct{} // closed when the kernel has answered
}

const (
	// maxWriters bounds the goroutines, each of which may hold a thread in the kernel.
	// A container that is about to start doesn't wait for one of them.
	maxWriters = 8
	// startPatience is how long the loop waits, in one event, for the settings of
	// containers that are about to start. These take no time, as nothing is in use yet,
	// and hold before the first instruction, unless the kernel is kept from it by what
	// somebody else does.
	startPatience = 50 * time.Millisecond
	// longWrite is from when on status shows a write.
	longWrite = time.Second
)

func newWriter() writer { return writer{settings: map[reconcile.Key]*writing{}} }

// mayTakeLong reports whether the kernel may take long over a write:
//
//   - cpuset.mems moves the pages of all processes (cpuset_write_resmask in
//     kernel/cgroup/cpuset.c waits for them);
//   - memory.max and memory.high, before Linux 6.16, and v1's limit reclaim what is
//     above them (memory_high_write in mm/memcontrol.c), as do limits of page cache;
//   - io.max and io.weight may freeze the disk's queue (blk_mq_freeze_queue), which
//     waits for what a slow disk has in hand.
func mayTakeLong(c *knobs.Change) bool {
	switch c.Knob {
	case knobs.Mems, knobs.IOMax, knobs.IOWeight, knobs.PageCacheMax:
		return true
	case knobs.MemoryMax, knobs.MemoryHigh, knobs.PageCache:
		from, known := c.From.(knobs.Bytes)
		to, bytes := c.To.(knobs.Bytes)
		return !known || !bytes || to >= 0 && (from < 0 || to < from)
	}
	return false
}

// underWay is the value that a setting has when all writes to it are made, nil where
// none is under way.
func (w *writer) underWay(at reconcile.Key) knobs.Value {
	s := w.settings[at]
	switch {
	case s == nil:
		return nil
	case s.next != nil:
		return s.next.To
	}
	return s.now.To
}

// handOver gives the writer what may take long, and waits a moment for containers
// that are about to start. It returns the changes that are left to make, those that
// the kernel has answered, and its refusals.
func (a *Agent) handOver(changes []knobs.Change) (rest, answered []knobs.Change, refused []error) {
	w := &a.writer
	slow := func(c knobs.Change) bool { return mayTakeLong(&c) || w.settings[reconcile.KeyOf(&c)] != nil }
	if a.Clock != nil || !slices.ContainsFunc(changes, slow) {
		return changes, nil, nil
	}
	var starting []*write
	for _, c := range changes {
		if !slow(c) {
			rest = append(rest, c)
			continue
		}
		urgent := a.isAboutToStart(c.Object.Path)
		if job := a.enqueue(c, urgent); urgent {
			starting = append(starting, job)
		}
	}
	for _, job := range a.awaitWrites(starting) {
		a.leaveWriter(reconcile.KeyOf(&job.Change))
		answered = append(answered, job.Change)
		refused = append(refused, cgroupfs.Refusals(job.err)...)
	}
	return rest, answered, refused
}

// isAboutToStart reports whether no process of a cgroup has run yet, but for the
// runtime's own, which waits to become the container's first.
func (a *Agent) isAboutToStart(path string) bool {
	if c := a.byPath[path]; c != nil {
		return !c.ran
	}
	found := false
	for _, c := range a.order {
		if c.podPath == path {
			if c.ran {
				return false
			}
			found = true
		}
	}
	return found
}

// enqueue takes a change, in place of one to the same setting that waits.
func (a *Agent) enqueue(c knobs.Change, urgent bool) *write {
	w, at := &a.writer, reconcile.KeyOf(&c)
	job := &write{Change: c, done: make(chan struct{})}
	if k := a.knob(at); k != nil {
		job.before = k.before
	}
	s := w.settings[at]
	if s == nil {
		s = &writing{since: a.now()}
		w.settings[at] = s
	}
	if s.next != nil {
		job.before = s.next.before
	}
	s.next = job
	switch {
	case s.now != nil || slices.Contains(w.turn, at):
	case urgent || w.running < maxWriters:
		a.beginWrite(at)
	default:
		w.turn = append(w.turn, at)
	}
	return job
}

// beginWrite makes the write that waits.
func (a *Agent) beginWrite(at reconcile.Key) {
	w := &a.writer
	s := w.settings[at]
	job := s.next
	s.now, s.next, s.since = job, nil, a.now()
	w.running++
	a.spawn(func() {
		job.err = a.applyAlone(job.Change)
		close(job.done)
		a.post("kernel write", func() {
			w.running--
			if s.now == job && w.settings[at] == s {
				a.written(at, job)
			}
			for len(w.turn) > 0 && w.running < maxWriters {
				next := w.turn[0]
				w.turn = w.turn[1:]
				if s := w.settings[next]; s != nil && s.now == nil && s.next != nil {
					a.beginWrite(next)
				}
			}
		})
	})
}

// applyAlone makes a change; a panic is its failure.
func (a *Agent) applyAlone(c knobs.Change) (err error) {
	defer func() {
		if p := recover(); p != nil {
			a.Log.Errorf("panic in a write to the kernel: %v\n%s", p, debug.Stack())
			a.post("kernel write", func() { a.counters.Panics++ })
			err = &cgroupfs.ChangeError{Change: c, Err: fmt.Errorf("sluice failed on it (a bug; the stack is in its log): %v", p)}
		}
	}()
	return a.Kernel.Apply([]knobs.Change{c})
}

// awaitWrites waits for writes that are begun, no longer in one event than
// startPatience, and returns those that the kernel has answered.
func (a *Agent) awaitWrites(jobs []*write) (answered []*write) {
	if len(jobs) == 0 {
		return nil
	}
	began := time.Now()
	timeout := time.NewTimer(startPatience - a.writer.spent)
	defer timeout.Stop()
	for _, job := range jobs {
		select {
		case <-job.done:
			answered = append(answered, job)
			continue
		default:
		}
		select {
		case <-job.done:
			answered = append(answered, job)
		case <-timeout.C:
			a.writer.spent = startPatience
			return answered
		}
	}
	a.writer.spent += time.Since(began)
	return answered
}

// leaveWriter ends what is under way to a setting, and reports whether there was
// more to write, which begins.
func (a *Agent) leaveWriter(at reconcile.Key) (more bool) {
	s := a.writer.settings[at]
	if s.now = nil; s.next != nil && !a.stopping {
		a.beginWrite(at)
		return true
	}
	delete(a.writer.settings, at)
	return false
}

// written takes the kernel's answer to a write that the loop did not wait for.
func (a *Agent) written(at reconcile.Key, job *write) {
	a.moves++
	changes := []knobs.Change{job.Change}
	failed, refused := a.answers(cgroupfs.Refusals(job.err))
	a.tell(changes, failed, refused)
	if s := a.writer.settings[at]; s.next != nil && failed[at] != nil {
		s.next.before = job.before // what failed is not what comes before it
	}
	if a.leaveWriter(at) {
		return
	}
	if c := a.byPath[at.Path]; c != nil && failed[at] != nil {
		a.observe(c, at.Knob)
	}
	if o, leaving := a.leaving[at]; leaving && job.To != a.original(at) {
		a.change(a.letGo(o, at.Knob))
		return
	}
	if k := a.knob(at); k != nil {
		k.before = job.before
	}
	a.noteAnswers(changes, failed)
}

// original is the value that a setting had before Sluice, nil where none is kept.
func (a *Agent) original(at reconcile.Key) knobs.Value {
	value, _ := a.book.Kept(at.Path, at.Knob)
	return value
}

// abandon drops what waits to be written to a setting, and reports whether something
// is under way to it.
func (w *writer) abandon(at reconcile.Key) bool {
	s := w.settings[at]
	if s == nil {
		return false
	}
	if s.next = nil; s.now == nil {
		delete(w.settings, at)
		w.turn = slices.DeleteFunc(w.turn, func(other reconcile.Key) bool { return other == at })
		return false
	}
	return true
}

// abandonAll drops what waits to be written to a cgroup that is gone.
func (w *writer) abandonAll(path string) {
	for at := range w.settings {
		if at.Path == path {
			w.abandon(at)
		}
	}
}

// slowWrites are those that take long, for status.
func (a *Agent) slowWrites() []status.SlowWrite {
	var all []status.SlowWrite
	for at, s := range a.writer.settings {
		job := s.now
		if job == nil {
			job = s.next
		}
		if took := a.now().Sub(s.since); took >= longWrite {
			all = append(all, status.SlowWrite{
				Object: job.Object.Name, Setting: at.Knob.String(), To: job.To.String(), Seconds: int64(took / time.Second), Waiting: s.now == nil,
			})
		}
	}
	slices.SortFunc(all, func(x, y status.SlowWrite) int {
		return cmp.Or(cmp.Compare(y.Seconds, x.Seconds), strings.Compare(x.Object, y.Object), strings.Compare(x.Setting, y.Setting))
	})
	return all
}
