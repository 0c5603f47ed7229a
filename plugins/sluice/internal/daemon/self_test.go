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
		before := forced()
		ctx, cancel := context.WithCancel(t.Context())
		go trimMemory(ctx)
		cancel()
		time.Sleep(time.Minute)
		if n := forced() - before; n != 0 {
			t.Errorf("%d collections although the daemon has ended", n)
		}
		go trimMemory(t.Context())
		time.Sleep(time.Hour)
		if n := forced() - before; n != 1 {
			t.Errorf("%d collections in an hour, want 1", n)
		}
	})
}
