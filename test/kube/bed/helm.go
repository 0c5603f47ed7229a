package bed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Helm runs a command of Helm with the rights of an administrator, in the namespace, with values as YAML if values is
// not "". The word CHART stands for the folder of Sluice's chart. It returns Helm's error with what Helm printed.
func (c *Cluster) Helm(t testing.TB, namespace, values string, args ...string) error {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	words := []string{"--namespace", namespace, "--kubeconfig", c.Kubeconfig(t, "helm", c.Admin())}
	if values != "" {
		file := filepath.Join(home, "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		words = append(words, "--values", file)
	}
	for _, arg := range args {
		if arg == "CHART" {
			arg = filepath.Join(root, "configs/helm/sluice")
		}
		words = append(words, arg)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin/tools/helm"), words...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("helm %s took %s", args[0], time.Since(began).Round(100*time.Millisecond))
	if err != nil {
		return fmt.Errorf("helm %q: %w: %s", args, err, out)
	}
	return nil
}
