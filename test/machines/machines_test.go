// Package machines holds machines by name, a line of topology/synth's text
// each, and beside it the tree that shows what the line models.
package machines

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/topology/synth"
)

var update = flag.Bool("update", false, "write the .tree files anew")

func TestTrees(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("no machines: %v", err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			m, err := synth.Machine(string(text))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if err := m.Tree(&got); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(got.String()) {
				if len(strings.TrimSuffix(line, "\n")) > 80 {
					t.Errorf("wider than 80 columns: %s", line)
				}
			}
			golden := strings.TrimSuffix(name, ".txt") + ".tree"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("differs from %s (go test ./test/machines -update writes it):\n%s", golden, got.String())
			}
		})
	}
}
