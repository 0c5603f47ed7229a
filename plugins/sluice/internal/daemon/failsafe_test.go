package daemon

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// The failsafe executes the plan of a plugin that has ended, unless another plugin holds the lock.
func TestFailsafe(t *testing.T) {
	t.Parallel()
	for _, successor := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dir, root := t.TempDir(), t.TempDir()
			machine(t, root)
			plan := []knobs.Change{{Object: knobs.Object{Path: "/gone", Name: "gone"}, Knob: knobs.Weight, To: knobs.Shares(1024), Why: "LS"}}
			if err := failsafe.Save(dir, "", plan); err != nil {
				t.Fatal(err)
			}
			if successor {
				unlock, err := statedir.Lock(t.Context(), dir, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer unlock()
			}
			pulse, alive := io.Pipe()
			ended := make(chan error, 1)
			at := statedir.Dirs{State: dir, Runtime: dir}
			go func() { ended <- Failsafe(t.Context(), at, root, pulse) }()
			for range 3 {
				alive.Write([]byte("."))
				time.Sleep(failsafe.Silence / 2)
			}
			if _, acted := failsafe.TakeReport(dir); acted {
				t.Error("it acts beside a living plugin")
			}
			alive.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if _, acted := failsafe.TakeReport(dir); acted == successor {
				t.Errorf("with a successor (%v) it acts: %v", successor, acted)
			}
			if err := FailsafeNow(at, root, false); successor != (err != nil && strings.Contains(err.Error(), "a plugin runs")) {
				t.Errorf("at once: %v", err)
			}
			if err := FailsafeNow(at, root, true); err != nil {
				t.Errorf("after an end that went well: %v", err)
			}
		})
	}
}
