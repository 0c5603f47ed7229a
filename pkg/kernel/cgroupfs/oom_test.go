package cgroupfs

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// TestOOMs makes the real kernel kill a process at a cgroup's limit. The kill counts in that
// cgroup and not in the one above, because the kernel passes notifications downwards.
func TestOOMs(t *testing.T) {
	k := realV1(t)
	if k.memory == nil || k.memory.v2 {
		t.Skip("SKIPPED, the memory controller is not on v1")
	}
	dir := k.dir + "/box"
	if err := k.memory.tree.Mkdir(relative(dir)); err != nil {
		t.Fatal(err)
	}
	if err := k.Apply([]knobs.Change{{Object: knobs.Object{Path: dir}, Knob: knobs.MemoryMax, To: knobs.Bytes(16 << 20)}}); err != nil {
		t.Fatal(err)
	}
	count := func(dir string) int64 {
		t.Helper()
		n, err := k.OOMs(dir)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if above, own := count(k.dir), count(dir); above != 0 || own != 0 {
		t.Fatalf("before anything was killed %d and %d", above, own)
	}
	procs := filepath.Join(k.memory.tree.(mounted).root.Name(), dir, "cgroup.procs")
	// tail has to store the last line of its input, which never ends here.
	out, err := exec.Command("/bin/sh", "-c", "echo $$ > "+procs+" && exec tail /dev/zero").CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the kernel kills nobody: %v\n%s", err, out)
	}
	if above, own := count(k.dir), count(dir); above != 0 || own != 1 {
		t.Errorf("after one kill %d above and %d in the cgroup itself", above, own)
	}
	k.Forget(dir)
	if n := count(dir); n != 0 {
		t.Errorf("counted anew: %d", n)
	}
}
