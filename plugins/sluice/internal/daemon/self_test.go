package daemon

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// This test isn't parallel, because it would count the collections of other tests.
//
//nolint:paralleltest // see above
func TestTrimMemory(t *testing.T) {
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	synctest.Test(t, func(t *testing.T) {
		want := forced()
		check := func(when string) {
			t.Helper()
			if got := forced(); got != want {
				t.Errorf("%s: %d collections more than expected", when, int(got)-int(want))
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		go trimMemory(ended)
		cancel()
		time.Sleep(time.Minute)
		check("the daemon has ended at once")

		running, cancel := context.WithCancel(t.Context())
		go trimMemory(running)
		time.Sleep(10*time.Minute + time.Second)
		want += 20 // after 10 s, 40 s, 70 s ...
		check("after ten minutes")
		cancel()
		time.Sleep(time.Hour)
		check("the daemon has ended")
	})
}
