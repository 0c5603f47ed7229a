package observe

import "time"

// Delays adds up how long the threads of a container waited for a CPU since the first
// look. Threads come and go: one that is new counts from its start, one that has ended
// keeps what it had at the look before. So the sum goes back only after Drop.
type Delays struct {
	total     time.Duration
	based     bool          // there was a look
	last, now []threadDelay // in the kernel's order
	next      int           // in last, where the next thread is likely
}

type threadDelay struct {
	id    int
	delay time.Duration
}

// Begin starts a look.
func (d *Delays) Begin() {
	d.last, d.now = d.now, d.last[:0]
	d.next = 0
}

// Add takes a thread's delay since its start. Threads mostly come in the order of the
// look before, so that finding each is one step.
func (d *Delays) Add(thread int, delay time.Duration) {
	if d.based {
		before, known := d.before(thread)
		if !known || delay < before {
			before = 0 // a new thread, or another with the ID of one that ended
		}
		d.total += delay - before
	}
	d.now = append(d.now, threadDelay{thread, delay})
}

// End is the end of a look at all threads, and the sum.
func (d *Delays) End() time.Duration {
	d.based = true
	return d.total
}

// Drop is the end of a look that missed threads: the next is the first again.
func (d *Delays) Drop() { d.total, d.based, d.now = 0, false, d.now[:0] }

func (d *Delays) before(thread int) (time.Duration, bool) {
	n := len(d.last)
	for i := range n {
		at := d.next + i
		if at >= n {
			at -= n
		}
		if d.last[at].id == thread {
			d.next = at + 1
			return d.last[at].delay, true
		}
	}
	return 0, false
}
