package bed

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
)

// Sluice reads the CPU time from the text that a node has in place of /proc/stat, and every text
// is as long as the one before.
func TestOwnLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "proc"), 0o700); err != nil {
		t.Fatal(err)
	}
	load := ownLoad{began: time.Now().Add(-time.Hour), before: 5 * time.Second, rest: "intr 7\nbtime 1\n"}
	first, later := load.stat(5*time.Second), load.stat(5*time.Second+1500*time.Millisecond)
	if len(first) != len(later) {
		t.Errorf("the text has %d bytes at first and %d later", len(first), len(later))
	}
	if err := os.WriteFile(filepath.Join(dir, "proc", "stat"), []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	fs, err := procfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	cpus, err := fs.CPUTimes(nil)
	if err != nil {
		t.Fatal(err)
	}
	var busy time.Duration
	for i, cpu := range cpus {
		busy += cpu.Busy
		if all := cpu.Busy + cpu.Idle; all < time.Hour || all > time.Hour+time.Minute {
			t.Errorf("CPU %d was there for %s, want an hour", i, all)
		}
	}
	if busy != 1500*time.Millisecond {
		t.Errorf("the CPUs were busy for %s, want 1.5 s", busy)
	}
}
