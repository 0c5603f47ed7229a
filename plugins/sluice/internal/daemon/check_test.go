package daemon

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/topology/synth"
)

// Check examines a configuration by itself and, if they are given, on a machine and on a node.
func TestCheckConfiguration(t *testing.T) {
	t.Parallel()
	m, err := synth.Machine("4 cores")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(text string) *config.Config {
		c, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if _, err := Check(parse("reserved: 0-3\n"), nil, ""); err != nil {
		t.Errorf("without a machine: %v", err)
	}
	if _, err := Check(parse("reserved: 0-3\n"), m, ""); err == nil || !strings.Contains(err.Error(), "leave no CPU") {
		t.Errorf("all CPUs are reserved: %v", err)
	}
	if warnings, err := Check(parse("reserved: 0,9\n"), m, ""); err != nil || !strings.Contains(strings.Join(warnings, "\n"), "no CPUs 9") {
		t.Errorf("a CPU is missing: %q, %v", warnings, err)
	}
	cri := parse("control: {mode: preview, eviction: {mode: preview, by: cri}}\n")
	if warnings, err := Check(cri, m, t.TempDir()); err != nil || !strings.Contains(strings.Join(warnings, "\n"), "does not work on this node") {
		t.Errorf("no runtime's socket: %q, %v", warnings, err)
	}
}
