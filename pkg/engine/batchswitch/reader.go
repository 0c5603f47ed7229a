package batchswitch

import (
	"fmt"
	"time"
)

// Reader has what the switch of a state folder says. The folder's disk may hang, so goroutines
// read the file. A Reader is for use by one goroutine.
type Reader struct {
	read  func() (Setting, error)
	spawn func(work func()) // nil: read in the caller's goroutine

	said    Setting   // by the last read that succeeded
	saidAt  time.Time // when that read began; zero if none has succeeded
	err     error     // of the last read that ended
	reading *reading  // the read under way, or nil
}

// reading is a read that has begun.
type reading struct {
	began time.Time
	done  chan struct{} // closed when the other fields are set
	said  Setting
	err   error
}

// readTime is how long Read waits for a read: the file is small and in memory, unless its disk
// hangs. The runtime's requests wait as long at most.
const readTime = 50 * time.Millisecond

// firstReadTime is how long Read waits while nothing is known of the switch yet. The runtime drops
// a plugin that takes 2 s for a request.
const firstReadTime = time.Second

// hangTime is how long a read takes on a disk that hangs. On a busy node, a read that takes less
// only waits for a CPU.
const hangTime = 2 * time.Second

// NewReader makes a Reader. read reads the file, as Read does for a folder; spawn runs work in a
// goroutine, and a Reader without it (nil) reads in the caller's, for virtual time, in which
// nothing blocks.
func NewReader(read func() (Setting, error), spawn func(work func())) *Reader {
	return &Reader{read: read, spawn: spawn}
}

// Read returns what the switch says at the present time. If the disk does not answer within
// readTime, it returns what it returned last, and once the disk has not answered for hangTime, an
// error that is the same until the cause changes. If the file can't be read, it returns the error
// with what the switch said last. Later calls do not wait for the same read again, and take over
// its result.
func (r *Reader) Read(now time.Time) (Setting, error) {
	if r.reading != nil {
		if !r.ended(0) {
			return r.said, r.pending(now)
		}
		r.take() //nolint:errcheck // the file is read again: it may have changed since that read began
	}
	r.begin(now)
	wait := readTime
	if r.saidAt.IsZero() {
		wait = firstReadTime
	}
	if !r.ended(wait) {
		return r.said, r.pending(now)
	}
	return r.take()
}

// begin begins a read.
func (r *Reader) begin(now time.Time) {
	reading := &reading{began: now, done: make(chan struct{})}
	r.reading = reading
	work := func() {
		defer close(reading.done)
		reading.said, reading.err = r.read()
	}
	if r.spawn == nil {
		work()
		return
	}
	r.spawn(work)
}

// ended reports whether the read under way has ended, and waits for that up to the given time.
func (r *Reader) ended(wait time.Duration) bool {
	select {
	case <-r.reading.done:
		return true
	default:
	}
	if wait == 0 {
		return false
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case <-r.reading.done:
		return true
	case <-timeout.C:
		return false
	}
}

// take takes over the result of the read that has ended.
func (r *Reader) take() (Setting, error) {
	reading := r.reading
	r.reading = nil
	if r.err = reading.err; r.err == nil {
		r.said, r.saidAt = reading.said, reading.began
	}
	return r.said, r.err
}

// pending is the error while the disk does not answer.
func (r *Reader) pending(now time.Time) error {
	if now.Sub(r.reading.began) < hangTime && !r.saidAt.IsZero() {
		return r.err
	}
	since := r.reading.began.UTC().Format(time.RFC3339)
	if r.saidAt.IsZero() {
		return fmt.Errorf("%s: the disk has not answered since %s, and the switch was never read before: thaw or repair the disk of the state folder", File, since)
	}
	return fmt.Errorf("%s: the disk has not answered since %s, and the switch was last read at %s: thaw or repair the disk of the state folder",
		File, since, r.saidAt.UTC().Format(time.RFC3339))
}
