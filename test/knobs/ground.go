package knobs

import (
	"path/filepath"
	"strings"
	"testing"
)

// Ground checks the assumptions of the other tests without Sluice: the container's first program
// sees its pod's cgroup and the one above it as the host does, the kernel accepts every value of
// the tables, a dump shows each of them, and they can be restored.
func Ground(t *testing.T, b *Bed) {
	pod := b.run(t, pod("ground", limited(500, 1000)))
	c := pod.Container("c")
	first, err := c.First()
	must(t, err)
	if len(first.Pod) < 10 || len(first.Class) < 10 {
		t.Errorf("it sees only %d files of its pod and %d above", len(first.Pod), len(first.Class))
	}
	for name, got := range first.Pod {
		if err := says(pod.File, name, got); err != nil && strings.HasPrefix(name, "cpu.") {
			t.Errorf("it sees %q: %v", got, err)
		}
	}

	before := b.dump(t)
	values := b.values(t)
	for name, value := range values {
		must(t, c.WriteFile(name, value))
	}
	after := b.dump(t)
	changed := after.Changed(before)
	for _, file := range changed {
		name := filepath.Base(file)
		if _, written := values[name]; !written && !follows(file) || filepath.Base(filepath.Dir(file)) != filepath.Base(c.Cgroup) {
			t.Errorf("%s was not written, and is now %q", file, after[file])
		}
		if follows(file) {
			continue
		}
		delete(values, name)
		must(t, put(file, before[file]))
	}
	for name, value := range values {
		t.Errorf("%s = %q is not in the dump", name, value)
	}
	if left := before.Differences(b.dump(t)); len(left) > 0 {
		t.Errorf("what was put back is not as it was: %q", left)
	}
	must(t, pod.Remove())
}

// values returns a value for each kind of file, which a container doesn't have by itself.
func (b *Bed) values(t *testing.T) map[string]string {
	t.Helper()
	numbers := disks(t)
	if len(numbers) == 0 {
		t.Fatal("the machine has no disk")
	}
	if b.RT.V2() {
		return map[string]string{
			"cpu.max.burst": "50000", "cpu.weight": "7", "memory.min": "4096", "memory.low": "8192", "memory.high": "67108864",
			"memory.oom.group": "1", "io.bfq.weight": "300", "io.max": numbers[0] + " rbps=10485760",
		}
	}
	return map[string]string{
		"cpu.cfs_burst_us": "50000", "cpu.shares": "7", "memory.soft_limit_in_bytes": "67108864",
		"blkio.throttle.read_bps_device": numbers[0] + " 10485760", "blkio.throttle.write_iops_device": numbers[0] + " 100",
	}
}
