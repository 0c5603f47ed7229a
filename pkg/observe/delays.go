package observe

import "time"

// Delays adds up how long the threads of a container have waited for a CPU since the first
// measurement. A new thread counts from its start, and one that has ended keeps its value from
// the previous measurement. So the sum goes back only after Drop.
type Delays struct {
	total     time.Duration
	based     bool          // there was a measurement before
	last, now []threadDelay // in the kernel's order
	next      int           // index in last where the next thread is likely
}

type threadDelay struct {
	id    int
	delay time.Duration
}

// Begin starts a measurement.
func (d *Delays) Begin() {
	d.last, d.now = d.now, d.last[:0]
	d.next = 0
}

// Add adds the delay of a thread since its start. Threads mostly come in the order of the
// previous measurement, so that finding each is one step.
func (d *Delays) Add(thread int, delay time.Duration) {
	if d.based {
		before, known := d.before(thread)
		if !known || delay < before {
			before = 0 // a new thread, or another one with the ID of a thread that has ended
		}
		d.total += delay - before
	}
	d.now = append(d.now, threadDelay{thread, delay})
}

// End ends a measurement of all threads and returns the sum.
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
