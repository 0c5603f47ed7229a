package thread

import (
	"errors"
	"runtime"
	"sync/atomic"
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
		return sleepFor(time.Minute)
	})
	if !errors.Is(err, unix.EBUSY) || calls != 4 {
		t.Errorf("%d calls, %v; want 3 that are interrupted, and the error of the last one", calls, err)
	}
}

// TestLateCallIsInterrupted makes calls that enter the kernel only after the turn's first signal, as on a busy CPU.
func TestLateCallIsInterrupted(t *testing.T) {
	t.Parallel()
	calls := 0
	err := InTurns(func() error {
		if calls++; calls > 2 {
			return unix.EBUSY
		}
		for begin := time.Now(); time.Since(begin) < 2*Turn; {
		}
		return sleepFor(time.Minute)
	})
	if !errors.Is(err, unix.EBUSY) || calls != 3 {
		t.Errorf("%d calls, %v; want 2 that are interrupted, and the error of the last one", calls, err)
	}
}

// TestTurnsEnd makes calls until InTurns no longer interrupts them.
func TestTurnsEnd(t *testing.T) {
	t.Parallel()
	const turn, most = time.Millisecond, 3
	calls := 0
	if err := inTurns(func() error { calls++; return sleepFor(50 * turn) }, turn, most); err != nil || calls <= most {
		t.Errorf("%d calls, %v; want at least %d that are interrupted, and one that is not", calls, err, most)
	}
}

// sleepFor makes a system call that a signal ends early, with EINTR.
func sleepFor(d time.Duration) error {
	pause := unix.NsecToTimespec(int64(d))
	return unix.Nanosleep(&pause, nil)
}

// TestRestsBesideBusyThreads makes calls that a signal interrupts, while more threads want to run than there are CPUs.
// It is not parallel, because it sets GOMAXPROCS for the whole process.
func TestRestsBesideBusyThreads(t *testing.T) {
	busy := runtime.NumCPU() + 1
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(busy + 1))
	var stop atomic.Bool
	defer stop.Store(true)
	for range busy {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	for runnable() <= runtime.NumCPU() {
		time.Sleep(time.Millisecond)
	}
	const times = 3
	calls := 0
	begin := time.Now()
	err := InTurns(func() error {
		if calls++; calls <= times {
			return unix.EINTR
		}
		return nil
	})
	if took := time.Since(begin); err != nil || took < times*rest {
		t.Errorf("%d interrupted calls beside %d busy threads took %v, %v; want a pause of %v after each", times, busy, took, err, rest)
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
		if err := sleepFor(3 * Turn); err != nil {
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
