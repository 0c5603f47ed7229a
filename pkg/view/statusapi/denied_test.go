package statusapi

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
)

func TestDenialLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, logged := test.NewNullLogger()
		d := NewDenialLog(log)
		for range 1000 {
			d.Denied(1000)
		}
		if got := len(logged.AllEntries()); got != 1 {
			t.Fatalf("%d lines, want 1", got)
		}
		time.Sleep(denialInterval)
		d.Denied(1001)
		if last := logged.LastEntry(); len(logged.AllEntries()) != 2 || last.Data["user"] != uint32(1001) || last.Data["unlogged"] != int64(999) {
			t.Errorf("%d lines, the last one with %v", len(logged.AllEntries()), last.Data)
		}
	})
}
