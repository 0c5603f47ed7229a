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

// slowWrites makes the kernel writes that may take arbitrarily long: moving pages to other
// memory nodes, reclaiming memory below a limit, and changes that freeze a disk's queue.
//
// Each write runs in a goroutine that reports its result to the owner's goroutine, which alone
// uses these fields. Writes to one knob of a cgroup run in the order in which they were
// requested; of those that wait, only the last is made.
type slowWrites struct {
	*Options
	ended func(*slowWrite) // called with a write that the kernel has answered after begin had returned

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
	// startPatience is how long await waits, in one event, for the settings of containers that
	// are about to start. These writes are fast since the container uses nothing yet, and they
	// apply from its first instruction, unless another program's actions delay the kernel.
	startPatience = 50 * time.Millisecond
	// longWrite is how long a write takes before the status shows it.
	longWrite = time.Second
)

// takes reports whether a change is to be made by slowWrites: it may take long, or follows a
// write to the same knob that has not ended.
func (w *slowWrites) takes(c knobs.Change) bool { return c.MayTakeLong() || w.writes[KeyOf(&c)] != nil }

// underWay returns the value that a knob has once all writes to it are made, or nil if there
// are none.
func (w *slowWrites) underWay(at Key) knobs.Value {
	s := w.writes[at]
	switch {
	case s == nil:
		return nil
	case s.next != nil:
		return s.next.To
	}
	return s.now.To
}

// begin begins the write of a change, or replaces the one to the same knob that waits to begin.
// before is what Sluice had written to the knob; nil for nothing. An urgent write waits for no
// free goroutine.
func (w *slowWrites) begin(c knobs.Change, before knobs.Value, urgent bool) *slowWrite {
	at := KeyOf(&c)
	job := &slowWrite{Change: c, before: before, done: make(chan struct{})}
	s := w.writes[at]
	if s == nil {
		s = &writing{since: w.Now()}
		w.writes[at] = s
	}
	if s.next != nil {
		job.before = s.next.before
	}
	s.next = job
	switch {
	case s.now != nil || slices.Contains(w.queue, at):
	case urgent || w.running < maxWriters:
		w.run(at)
	default:
		w.queue = append(w.queue, at)
	}
	return job
}

// run runs the waiting write of a knob in a goroutine.
func (w *slowWrites) run(at Key) {
	s := w.writes[at]
	job := s.next
	s.now, s.next, s.since = job, nil, w.Now()
	w.running++
	w.Spawn(func() {
		job.err = w.applyAlone(job.Change)
		close(job.done)
		w.Post("kernel write", func() {
			w.running--
			if s.now == job && w.writes[at] == s {
				w.ended(job)
			}
			for len(w.queue) > 0 && w.running < maxWriters {
				next := w.queue[0]
				w.queue = w.queue[1:]
				if s := w.writes[next]; s != nil && s.now == nil && s.next != nil {
					w.run(next)
				}
			}
		})
	})
}

// applyAlone makes one change, and turns a panic into an error.
func (w *slowWrites) applyAlone(c knobs.Change) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.Log.Errorf("panic in a write to the kernel: %v\n%s", p, debug.Stack())
			w.Post("kernel write", w.Panicked)
			err = &cgroupfs.ChangeError{Change: c, Err: fmt.Errorf("sluice failed on it (a bug; the stack is in its log): %v", p)}
		}
	}()
	return w.Kernel.Apply([]knobs.Change{c})
}

// await waits for writes that have begun, for at most startPatience per event, and returns
// those that the kernel has answered.
func (w *slowWrites) await(jobs []*slowWrite) (answered []*slowWrite) {
	if len(jobs) == 0 {
		return nil
	}
	began := time.Now()
	timeout := time.NewTimer(startPatience - w.waited)
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
			w.waited = startPatience
			return answered
		}
	}
	w.waited += time.Since(began)
	return answered
}

// finish removes the write of a knob that has ended and, if another one to the knob waits,
// begins it; more reports whether there was one.
func (w *slowWrites) finish(at Key) (more bool) {
	s := w.writes[at]
	if s.now = nil; s.next != nil && !w.stopped {
		w.run(at)
		return true
	}
	delete(w.writes, at)
	return false
}

// abandon drops the waiting write of a knob, and reports whether another is under way. last is
// the value that Sluice will have written last then; it is nil if no write was dropped, or
// Sluice wrote nothing before it.
func (w *slowWrites) abandon(at Key) (last knobs.Value, underWay bool) {
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
func (w *slowWrites) abandonAll(path string) {
	for at := range w.writes {
		if at.Path == path {
			w.abandon(at)
		}
	}
}

// long lists the writes that have taken longer than longWrite, the longest first.
func (w *slowWrites) long() []status.SlowWrite {
	var all []status.SlowWrite
	for at, s := range w.writes {
		job := s.now
		if job == nil {
			job = s.next
		}
		if took := w.Now().Sub(s.since); took >= longWrite {
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
