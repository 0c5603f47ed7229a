package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/runtime/inspect"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestAsk checks what real containerds report about themselves, about NRI, and about what runs
// pods.
func TestAsk(t *testing.T) {
	for _, version := range []string{"2", "1.7"} {
		t.Run("containerd "+version, func(t *testing.T) {
			rt := start(t, runtime.Options{Containerd: version})
			f := inspect.Ask(t.Context(), rt.Socket())
			t.Logf("%+v", f)
			if f.Name != "containerd" || !strings.HasPrefix(strings.TrimPrefix(f.Version, "v"), version) || f.NRI.State != inspect.Loaded || len(f.Problems) > 0 {
				t.Errorf("%+v", f)
			}
			if len(f.Handlers) == 0 || !slices.Contains(f.Handlers, runtime.Broken) {
				t.Errorf("handlers %q, want %q among them", f.Handlers, runtime.Broken)
			}
			if version == "2" && f.Driver == "" {
				t.Error("the cgroup driver is not told")
			}
		})
	}
}
