package batchswitch

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// slowDisk is a file whose reads wait until the test lets them through.
type slowDisk struct {
	mu      sync.Mutex
	has     Setting
	err     error
	hanging chan struct{} // nil: reads end at once
	reads   int
}

func (d *slowDisk) read() (Setting, error) {
	d.mu.Lock()
	d.reads++
	hanging := d.hanging
	d.mu.Unlock()
	if hanging != nil {
		<-hanging
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.has, d.err
}

// set changes the file.
func (d *slowDisk) set(has Setting, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.has, d.err = has, err
}

func (d *slowDisk) hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hanging = make(chan struct{})
}

func (d *slowDisk) thaw() {
	d.mu.Lock()
	close(d.hanging)
	d.hanging = nil
	d.mu.Unlock()
	synctest.Wait()
}

func (d *slowDisk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

// TestReader: a disk that hangs delays one call, once, and no setting is lost: the last one
// holds meanwhile, and the file's own afterwards.
func TestReader(t *testing.T) {
	t.Parallel()
	off, on := Setting{To: control.SwitchOff}, Setting{To: control.SwitchOn}
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{has: off}
		r := NewReader(d.read, func(work func()) { go work() })
		read := func(want Setting, words string, within time.Duration) error {
			t.Helper()
			began := time.Now()
			got, err := r.Read(began)
			if took := time.Since(began); got != want || took != within {
				t.Errorf("it says %+v after %s, want %+v after %s", got, took, want, within)
			}
			if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
				t.Errorf("error %v, want %q", err, words)
			}
			return err
		}
		read(off, "", 0)
		d.set(on, nil)
		read(on, "", 0)
		d.hang()
		time.Sleep(time.Minute)
		read(on, "", readTime)
		time.Sleep(hangTime - readTime - time.Nanosecond)
		read(on, "", 0)
		time.Sleep(time.Nanosecond)
		first := read(on, "last read at 2000-01-01T00:00:00Z", 0)
		for range 3 {
			time.Sleep(time.Minute)
			if again := read(on, "has not answered since 2000-01-01T00:01:00Z", 0); again.Error() != first.Error() {
				t.Errorf("the log would tell of it again: %v, then %v", first, again)
			}
		}
		if n := d.count(); n != 3 {
			t.Errorf("%d reads, want one that hangs", n)
		}
		d.set(off, nil)
		d.thaw()
		read(off, "", 0)
		d.set(off, errors.New("no permission"))
		read(off, "no permission", 0)
		d.hang()
		read(off, "no permission", readTime)
		time.Sleep(hangTime)
		read(off, "last read", 0)
		d.thaw()
		read(off, "no permission", 0)
		d.set(off, nil)
		read(off, "", 0)
	})
}

// TestReaderOfAFrozenDisk: a disk that hangs from the start leaves the switch as if there was
// none.
func TestReaderOfAFrozenDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{has: Setting{To: control.SwitchOff}}
		d.hang()
		r := NewReader(d.read, func(work func()) { go work() })
		if got, err := r.Read(time.Now()); got != (Setting{}) || err == nil || !strings.Contains(err.Error(), "never read") {
			t.Errorf("%+v, %v", got, err)
		}
		d.thaw()
		if got, err := r.Read(time.Now()); got.To != control.SwitchOff || err != nil {
			t.Errorf("thawed: %+v, %v", got, err)
		}
	})
}
