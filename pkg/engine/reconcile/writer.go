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

// writer makes the kernel writes that may take arbitrarily long: moving pages to other memory
// nodes, reclaiming memory below a limit, and changes that freeze a disk's queue.
//
// Each write runs in a goroutine that reports its result to the Reconciler's goroutine, which
// alone uses these fields. Writes to one knob of a cgroup run in the order in which they were
// requested; of those that wait, only the last is made.
type writer struct {
	writes  map[Key]*writing
	queue   []Key         // the writes that wait for a goroutine, the oldest first
	running int           // number of goroutines
	waited  time.Duration // how long the present event has waited for writes
	stopped bool          // no further write may begin
}

// writing is the state of the writes to one knob of a cgroup.
type writing struct {
	now, next *slowWrite // the write under way, and the one to make after it
	since     time.Time
}

// slowWrite is the write of one value.
type slowWrite struct {
	knobs.Change
	before knobs.Value // what Sluice had written before; nil for nothing
	err    error
	done   chan struct{} // closed when the kernel has answered
}

const (
	// maxWriters bounds the goroutines, each of which may block a thread in the kernel. The
	// settings of a container that is about to start don't wait for a free one.
	maxWriters = 8
	// startPatience is how long Write waits, in one event, for the settings of containers that
	// are about to start. These writes are fast since the container uses nothing yet, and they
	// apply from its first instruction, unless another program's actions delay the kernel.
	startPatience = 50 * time.Millisecond
	// longWrite is how long a write takes before the status shows it.
	longWrite = time.Second
)

func newWriter() writer { return writer{writes: map[Key]*writing{}} }

// BeginEvent resets the time that one event may wait for writes.
func (r *Reconciler) BeginEvent() { r.writer.waited = 0 }

// Stop prevents further writes from beginning after those that are under way.
func (r *Reconciler) Stop() { r.writer.stopped = true }

// UnderWay reports whether a write of a knob is under way or waits.
func (r *Reconciler) UnderWay(at Key) bool { return r.writer.writes[at] != nil }

// underWay returns the value that a knob has once all writes to it are made, or nil if there
// are none.
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

// handOver starts the changes that may take long, and waits a moment for those of containers
// that are about to start. It returns the changes that the caller has to make, those that the
// kernel has answered, and its refusals.
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
		r.finishWrite(KeyOf(&job.Change))
		answered = append(answered, job.Change)
		refused = append(refused, cgroupfs.Refusals(job.err)...)
	}
	return rest, answered, refused
}

// enqueue adds a change; it replaces a waiting one to the same knob.
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
	case s.now != nil || slices.Contains(w.queue, at):
	case urgent || w.running < maxWriters:
		r.beginWrite(at)
	default:
		w.queue = append(w.queue, at)
	}
	return job
}

// beginWrite starts the waiting write of a knob.
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
			for len(w.queue) > 0 && w.running < maxWriters {
				next := w.queue[0]
				w.queue = w.queue[1:]
				if s := w.writes[next]; s != nil && s.now == nil && s.next != nil {
					r.beginWrite(next)
				}
			}
		})
	})
}

// applyAlone makes one change, and turns a panic into an error.
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

// awaitWrites waits for writes that have begun, for at most startPatience per event, and
// returns those that the kernel has answered.
func (r *Reconciler) awaitWrites(jobs []*slowWrite) (answered []*slowWrite) {
	if len(jobs) == 0 {
		return nil
	}
	began := time.Now()
	timeout := time.NewTimer(startPatience - r.writer.waited)
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
			r.writer.waited = startPatience
			return answered
		}
	}
	r.writer.waited += time.Since(began)
	return answered
}

// finishWrite removes the write that has ended and, if another one to the knob waits, begins
// it; more reports whether there was one.
func (r *Reconciler) finishWrite(at Key) (more bool) {
	s := r.writer.writes[at]
	if s.now = nil; s.next != nil && !r.writer.stopped {
		r.beginWrite(at)
		return true
	}
	delete(r.writer.writes, at)
	return false
}

// written handles the kernel's answer to a write that Write did not wait for.
func (r *Reconciler) written(at Key, job *slowWrite) {
	changes := []knobs.Change{job.Change}
	failed, refused := r.countRefusals(cgroupfs.Refusals(job.err))
	r.log(changes, failed, refused)
	if failed[at] != nil { // the kernel still has the value written before
		if next := r.writer.writes[at].next; next != nil {
			next.before = job.before
		} else if job.before != nil {
			r.Journal.Wrote(at.Path, at.Knob, job.before)
		}
	}
	if r.finishWrite(at) {
		return
	}
	if failed[at] != nil {
		r.Failed(at)
	}
	original, _ := r.Journal.Kept(at.Path, at.Knob)
	if o, leaving := r.unrestored[at]; leaving && job.To != original {
		r.change(r.restoreKnob(o, at.Knob))
		return
	}
	if s := r.Setting(at); s != nil {
		s.before = job.before
	}
	r.noteResults(changes, failed)
}

// abandon drops the waiting write of a knob, and reports whether another is under way. last is
// the value that Sluice will have written last then; it is nil if no write was dropped, or
// Sluice wrote nothing before it.
func (w *writer) abandon(at Key) (last knobs.Value, underWay bool) {
	s := w.writes[at]
	if s == nil {
		return nil, false
	}
	dropped := s.next
	s.next = nil
	if s.now == nil {
		delete(w.writes, at)
		w.queue = slices.DeleteFunc(w.queue, func(other Key) bool { return other == at })
		return dropped.before, false
	}
	if dropped != nil {
		last = s.now.To
	}
	return last, true
}

// abandonAll drops the waiting writes to a cgroup that is gone.
func (w *writer) abandonAll(path string) {
	for at := range w.writes {
		if at.Path == path {
			w.abandon(at)
		}
	}
}

// SlowWrites lists the writes that have taken longer than longWrite, the longest first.
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
