package reconcile

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// refusals are the values that the kernel has refused, and how many writes it has refused of
// each kind.
type refusals struct {
	values map[Key]*refusal
	counts map[writeError]int
}

func newRefusals() refusals {
	return refusals{values: map[Key]*refusal{}, counts: map[writeError]int{}}
}

// refusal is a value that the kernel has refused.
type refusal struct {
	value  knobs.Value
	logged string // the reason that was logged last
	wait   Backoff
}

// longestWait is the longest delay before a refused value is tried again.
const longestWait = 5 * time.Minute

// add records that the kernel has refused a change, and reports whether the reason is new to
// the log. Passes, which are the time pass apart, try again after one pass, two, four, and so
// on, up to longestWait; events try again at once.
func (r *refusals) add(c *knobs.Change, reason string, now time.Time, pass time.Duration) (isNew bool) {
	at := KeyOf(c)
	known := r.values[at]
	if isNew = known == nil || known.logged != reason; isNew {
		known = &refusal{value: c.To, logged: reason}
		r.values[at] = known
	}
	if !known.wait.Waits(now) {
		// Subtract half a pass: the delay starts at a write within a pass, and must have ended
		// when a later pass comes to the same cgroup.
		known.wait.add(now.Add(-pass/2), policy{atOnce: 1, first: pass, longest: longestWait})
	}
	return isNew
}

// waiting returns the value of a knob that the kernel refused and that waits to be tried again,
// or nil.
func (r *refusals) waiting(at Key, now time.Time) knobs.Value {
	if known := r.values[at]; known != nil && known.wait.Waits(now) {
		return known.value
	}
	return nil
}

// forget drops the refusals of a cgroup.
func (r *refusals) forget(path string) {
	maps.DeleteFunc(r.values, func(at Key, _ *refusal) bool { return at.Path == path })
}

// writeError is a kind of write that the kernel refused. There are at most as many kinds as
// knobs times errnos.
type writeError struct{ knob, errno string }

// count counts a write that the kernel refused, under the knob that the error names or, if it
// names none, under the given name.
func (r *refusals) count(err error, knob string) {
	at := writeError{knob, "other"}
	if change, ok := errors.AsType[*cgroupfs.ChangeError](err); ok {
		at.knob = change.Change.Knob.String()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		at.errno = cmp.Or(unix.ErrnoName(errno), at.errno)
	}
	r.counts[at]++
}

// list lists how many writes the kernel refused, by knob and errno, and the total.
func (r *refusals) list() (all []status.KnobErrors, total int) {
	all = make([]status.KnobErrors, 0, len(r.counts))
	for at, n := range r.counts {
		all = append(all, status.KnobErrors{Knob: at.knob, Errno: at.errno, Count: n})
		total += n
	}
	slices.SortFunc(all, func(x, y status.KnobErrors) int {
		return cmp.Or(cmp.Compare(x.Knob, y.Knob), cmp.Compare(x.Errno, y.Errno))
	})
	return all, total
}
