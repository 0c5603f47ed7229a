package reclaim

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGiveWay(t *testing.T) {
	t.Parallel()
	type thread struct {
		policy uint32
		nice   int32
		id     int
	}
	here := func() thread {
		a, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Error(err)
			return thread{}
		}
		return thread{a.Policy, a.Nice, unix.Gettid()}
	}
	seen := make(chan thread)
	go func() {
		GiveWay()
		runtime.Gosched()
		seen <- here()
	}()
	low := <-seen
	if low.policy != unix.SCHED_BATCH || low.nice != lowNice {
		t.Errorf("its thread has %+v", low)
	}
	if others := here(); others.id == low.id || others.nice != 0 {
		t.Errorf("another goroutine has %+v", others)
	}
}
