package e2e

import (
	"testing"

	"github.com/sluice-dev/sluice/test/knobs"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestKnobs checks every knob on both runtimes: at the first instruction, through resizes, beside
// other writers, and restored at the end. The runtimes' tests mostly wait, so they run at the same time.
func TestKnobs(t *testing.T) {
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			t.Parallel()
			b := &knobs.Bed{RT: start(t, runtime.Options{Containerd: version})}
			t.Run("restore", func(t *testing.T) { knobs.Restore(t, b) })
			t.Run("drift", func(t *testing.T) { knobs.Drift(t, b) })
			b.Sluice = startSluice(t, b.RT, runtime.SluiceOptions{})
			t.Run("first instruction", func(t *testing.T) { knobs.First(t, b) })
			t.Run("what this kernel lacks", func(t *testing.T) { knobs.Missing(t, b) })
			t.Run("resize", func(t *testing.T) { knobs.Resize(t, b) })
			t.Run("bursts are counted", func(t *testing.T) { knobs.Bursts(t, b) })
			consistent(t, b.RT, b.Sluice)
		})
	}
}
