package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// What is given wrongly is said with the flag, its value and the fix, and nothing starts.
func TestWrongFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	broken := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(broken, []byte("\x1b{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		exit int
		says string
	}{
		{"run", cli.ExitFailure, "--node-name"},
		{"uninstall", cli.ExitFailure, "--node-name"},
		{"run --node-name n --resources volcano", cli.ExitFailure, "koordinator"},
		{"run --node-name n --pins --dra", cli.ExitFailure, "leave one of them out"},
		{"run --node-name n --topology", cli.ExitFailure, "add --pins"},
		{"run --node-name n --log-level loud", cli.ExitFailure, "--log-level"},
		{"run --node-name n --kubeconfig " + broken, cli.ExitFailure, "--kubeconfig"},
		{"run --node-name n", cli.ExitFailure, "mount a token"},
		{"run n", cli.ExitUsage, "sluice-kube run --help"},
		{"publish", cli.ExitUsage, "publish"},
		{"version", 0, ""},
	} {
		var out, errs bytes.Buffer
		if exit := execute(t.Context(), strings.Fields(test.args), &out, &errs); exit != test.exit || !strings.Contains(errs.String(), test.says) || strings.Contains(errs.String(), "\x1b") {
			t.Errorf("sluice-kube %s: exit status %d, want %d; %q lacks %q", test.args, exit, test.exit, errs.String(), test.says)
		}
	}
}
