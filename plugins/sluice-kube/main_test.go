package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		{"run", exitFailure, "--node-name"},
		{"uninstall", exitFailure, "--node-name"},
		{"run --node-name n --resources volcano", exitFailure, "koordinator"},
		{"run --node-name n --log-level loud", exitFailure, "--log-level"},
		{"run --node-name n --kubeconfig " + broken, exitFailure, "--kubeconfig"},
		{"run --node-name n", exitFailure, "mount a token"},
		{"run n", exitUsage, "sluice-kube run --help"},
		{"publish", exitUsage, "publish"},
		{"version", 0, ""},
	} {
		var out, errs bytes.Buffer
		if exit := execute(t.Context(), strings.Fields(test.args), &out, &errs); exit != test.exit || !strings.Contains(errs.String(), test.says) || strings.Contains(errs.String(), "\x1b") {
			t.Errorf("sluice-kube %s: exit status %d, want %d; %q lacks %q", test.args, exit, test.exit, errs.String(), test.says)
		}
	}
}
