package thread

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestInTurns(t *testing.T) {
	t.Parallel()
	calls := 0
	err := InTurns(func() error {
		if calls++; calls > 3 {
			return unix.EBUSY
		}
		minute := unix.NsecToTimespec(int64(time.Minute))
		return unix.Nanosleep(&minute, nil)
	})
	if !errors.Is(err, unix.EBUSY) || calls != 4 {
		t.Errorf("%d calls, %v; want 3 that are interrupted, and the error of the last one", calls, err)
	}
}

// TestShortCallIsNotInterrupted makes calls that end before a turn does, and then one beyond it, which a signal that is
// still under way would interrupt.
func TestShortCallIsNotInterrupted(t *testing.T) {
	t.Parallel()
	Run(func() {
		for range 100 {
			if err := InTurns(func() error { return nil }); err != nil {
				t.Error(err)
			}
		}
		pause := unix.NsecToTimespec(int64(3 * Turn))
		if err := unix.Nanosleep(&pause, nil); err != nil {
			t.Errorf("a call after the turns: %v", err)
		}
	})
}

func TestRunnable(t *testing.T) {
	t.Parallel()
	if n := runnable(); n < 1 {
		t.Errorf("%d threads run or want to, and this one does", n)
	}
}
