package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSizes prints the sizes of the binaries as they are released.
func TestSizes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it links each program")
	}
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", dir+"/", "./plugins/...")
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	programs, err := filepath.Glob("../plugins/*/main.go")
	if err != nil || len(programs) < 2 {
		t.Fatalf("there are %d programs: %v", len(programs), err)
	}
	for _, program := range programs {
		name := filepath.Base(filepath.Dir(program))
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		const most = 33 // MiB
		size := float64(info.Size()) / (1 << 20)
		t.Logf("%s has %.1f MiB", name, size)
		if size > most {
			t.Errorf("%s has %.1f MiB, want %d at most", name, size, most)
		}
	}
}
