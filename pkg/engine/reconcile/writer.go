package reconcile

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// writer is the record of the kernel writes that may take as long as the kernel likes: pages
// that move to other memory nodes, memory that is reclaimed below a limit, and the freeze of
// a disk's queue last as long as the write does.
//
// Each write runs in a goroutine that reports back to the Reconciler's, which alone reads and
// changes these fields. Writes to one knob of a cgroup are made in the order in which they
// were asked for, and of those that wait only the last is made.
type writer struct {
	writes  map[Key]*writing
	turn    []Key         // of those that wait for a goroutine, the oldest first
	running int           // goroutines
	spent   time.Duration // on waiting, in the present event
	stopped bool          // nothing is begun any more
}

// writing is what is under way to one knob of a cgroup.
type writing struct {
	now, next *slowWrite // under way; to be made after it
	since     time.Time
}

// slowWrite is one value on its way to the kernel.
type slowWrite struct {
	knobs.Change
	before knobs.Value // what Sluice had written before it; nil nothing
	err    error
	done   chan struct{} // closed when the kernel has answered
}

const (
	// maxWriters bounds the goroutines, each of which may hold a thread in the kernel.
	// A container that is about to start doesn't wait for one of them.
	maxWriters = 8
	// startPatience is how long Write waits, in one event, for the settings of
	// containers that are about to start. These take no time, as nothing is in use yet,
	// and hold before the first instruction, unless the kernel is kept from it by what
	// somebody else does.
	startPatience = 50 * time.Millisecond
	// longWrite is from when on status shows a write.
	longWrite = time.Second
)

func newWriter() writer { return writer{writes: map[Key]*writing{}} }

// BeginEvent starts the time that one event may wait for writes anew.
func (r *Reconciler) BeginEvent() { r.writer.spent = 0 }

// Stop has the writes that are under way begin no others.
func (r *Reconciler) Stop() { r.writer.stopped = true }

// UnderWay reports whether a write of a knob is under way, or waits.
func (r *Reconciler) UnderWay(at Key) bool { return r.writer.writes[at] != nil }

// underWay is the value that a knob has when all writes to it are made, nil where
// none is under way.
func (w *writer) underWay(at Key) knobs.Value {
	s := w.writes[at]
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
func (r *Reconciler) handOver(changes []knobs.Change) (rest, answered []knobs.Change, refused []error) {
	w := &r.writer
	slow := func(c knobs.Change) bool { return c.MayTakeLong() || w.writes[KeyOf(&c)] != nil }
	if r.Blocking || !slices.ContainsFunc(changes, slow) {
		return changes, nil, nil
	}
	var starting []*slowWrite
	for _, c := range changes {
		if !slow(c) {
			rest = append(rest, c)
			continue
		}
		urgent := r.Starting(c.Object.Path)
		if job := r.enqueue(c, urgent); urgent {
			starting = append(starting, job)
		}
	}
	for _, job := range r.awaitWrites(starting) {
		r.leaveWriter(KeyOf(&job.Change))
		answered = append(answered, job.Change)
		refused = append(refused, cgroupfs.Refusals(job.err)...)
	}
	return rest, answered, refused
}

// enqueue takes a change, in place of one to the same knob that waits.
func (r *Reconciler) enqueue(c knobs.Change, urgent bool) *slowWrite {
	w, at := &r.writer, KeyOf(&c)
	job := &slowWrite{Change: c, done: make(chan struct{})}
	if s := r.Setting(at); s != nil {
		job.before = s.before
	}
	s := w.writes[at]
	if s == nil {
		s = &writing{since: r.Now()}
		w.writes[at] = s
	}
	if s.next != nil {
		job.before = s.next.before
	}
	s.next = job
	switch {
	case s.now != nil || slices.Contains(w.turn, at):
	case urgent || w.running < maxWriters:
		r.beginWrite(at)
	default:
		w.turn = append(w.turn, at)
	}
	return job
}

// beginWrite makes the write that waits.
func (r *Reconciler) beginWrite(at Key) {
	w := &r.writer
	s := w.writes[at]
	job := s.next
	s.now, s.next, s.since = job, nil, r.Now()
	w.running++
	r.Spawn(func() {
		job.err = r.applyAlone(job.Change)
		close(job.done)
		r.Post("kernel write", func() {
			w.running--
			if s.now == job && w.writes[at] == s {
				r.written(at, job)
			}
			for len(w.turn) > 0 && w.running < maxWriters {
				next := w.turn[0]
				w.turn = w.turn[1:]
				if s := w.writes[next]; s != nil && s.now == nil && s.next != nil {
					r.beginWrite(next)
				}
			}
		})
	})
}

// applyAlone makes a change; a panic is its failure.
func (r *Reconciler) applyAlone(c knobs.Change) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Log.Errorf("panic in a write to the kernel: %v\n%s", p, debug.Stack())
			r.Post("kernel write", r.Panicked)
			err = &cgroupfs.ChangeError{Change: c, Err: fmt.Errorf("sluice failed on it (a bug; the stack is in its log): %v", p)}
		}
	}()
	return r.Kernel.Apply([]knobs.Change{c})
}

// awaitWrites waits for writes that are begun, no longer in one event than
// startPatience, and returns those that the kernel has answered.
func (r *Reconciler) awaitWrites(jobs []*slowWrite) (answered []*slowWrite) {
	if len(jobs) == 0 {
		return nil
	}
	began := time.Now()
	timeout := time.NewTimer(startPatience - r.writer.spent)
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
			r.writer.spent = startPatience
			return answered
		}
	}
	r.writer.spent += time.Since(began)
	return answered
}

// leaveWriter ends what is under way to a knob, and reports whether there was
// more to write, which begins.
func (r *Reconciler) leaveWriter(at Key) (more bool) {
	s := r.writer.writes[at]
	if s.now = nil; s.next != nil && !r.writer.stopped {
		r.beginWrite(at)
		return true
	}
	delete(r.writer.writes, at)
	return false
}

// written takes the kernel's answer to a write that Write did not wait for.
func (r *Reconciler) written(at Key, job *slowWrite) {
	changes := []knobs.Change{job.Change}
	failed, refused := r.answers(cgroupfs.Refusals(job.err))
	r.log(changes, failed, refused)
	if failed[at] != nil { // the kernel has what was written before it
		if next := r.writer.writes[at].next; next != nil {
			next.before = job.before
		} else if job.before != nil {
			r.Journal.Wrote(at.Path, at.Knob, job.before)
		}
	}
	if r.leaveWriter(at) {
		return
	}
	if failed[at] != nil {
		r.Failed(at)
	}
	original, _ := r.Journal.Kept(at.Path, at.Knob)
	if o, leaving := r.leaving[at]; leaving && job.To != original {
		r.change(r.letGo(o, at.Knob))
		return
	}
	if s := r.Setting(at); s != nil {
		s.before = job.before
	}
	r.noteAnswers(changes, failed)
}

// abandon drops what waits to be written to a knob, and reports whether something
// is under way to it. Last is what Sluice will have written last then; it is nil where
// nothing was dropped, or nothing was written before.
func (w *writer) abandon(at Key) (last knobs.Value, underWay bool) {
	s := w.writes[at]
	if s == nil {
		return nil, false
	}
	dropped := s.next
	s.next = nil
	if s.now == nil {
		delete(w.writes, at)
		w.turn = slices.DeleteFunc(w.turn, func(other Key) bool { return other == at })
		return dropped.before, false
	}
	if dropped != nil {
		last = s.now.To
	}
	return last, true
}

// abandonAll drops what waits to be written to a cgroup that is gone.
func (w *writer) abandonAll(path string) {
	for at := range w.writes {
		if at.Path == path {
			w.abandon(at)
		}
	}
}

// SlowWrites lists the writes that have taken long so far, the longest first.
func (r *Reconciler) SlowWrites() []status.SlowWrite {
	var all []status.SlowWrite
	for at, s := range r.writer.writes {
		job := s.now
		if job == nil {
			job = s.next
		}
		if took := r.Now().Sub(s.since); took >= longWrite {
			all = append(all, status.SlowWrite{
				Object: job.Object.Name, Knob: at.Knob.String(), To: job.To.String(), ElapsedSeconds: int64(took / time.Second), Waiting: s.now == nil,
			})
		}
	}
	slices.SortFunc(all, func(x, y status.SlowWrite) int {
		return cmp.Or(cmp.Compare(y.ElapsedSeconds, x.ElapsedSeconds), strings.Compare(x.Object, y.Object), strings.Compare(x.Knob, y.Knob))
	})
	return all
}
