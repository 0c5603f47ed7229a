package main

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// After a successful end, ExecStopPost leaves the plan to the failsafe's process, because it may
// be a restart.
func TestFailsafeAfterStop(t *testing.T) {
	dir := t.TempDir()
	unlock, err := statedir.Lock(t.Context(), dir, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for _, c := range []struct {
		result string
		exit   int
	}{{"success", 0}, {"signal", exitFailure}, {"", exitFailure}} {
		t.Setenv("SERVICE_RESULT", c.result)
		if r := run(t, "", "failsafe", "--now", "--state-dir", dir); r.exit != c.exit {
			t.Errorf("beside a running plugin after %q: exit status %d, want %d: %s", c.result, r.exit, c.exit, r.errs)
		}
	}
}
