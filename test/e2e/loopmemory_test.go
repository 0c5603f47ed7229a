package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/runtime"
)

// testMemory has services that leave batch work nearly no memory: its page cache is reclaimed, its
// limit follows, and no process is killed for it. In the end everything is restored.
func testMemory(t *testing.T, rt *runtime.Runtime) {
	const cached = 200 * mib
	spec := classed("batch", "BE", runtime.Resources{})
	fill := "fill"
	if inGuest() { // a guest's root file system is in memory
		fill, spec.Containers[0].Disk = "cache", "/dev/vda"
	}
	spec.Containers[0].Args = []string{fmt.Sprintf("%s=%d", fill, cached/mib), "first", "sleep"}
	batch := run(t, rt, spec)
	c := batch.Container("c")
	_, err := c.First()
	must(t, err)
	if held := memory(t, c.File, "memory.current", "memory.usage_in_bytes"); held < cached*9/10 { // some pages may be charged to others, or not yet charged
		t.Fatalf("batch holds %d bytes: there is nothing to take back", held)
	}
	before, err := rt.Dump()
	must(t, err)
	unlimited := memory(t, batch.ClassFile, "memory.max", "memory.limit_in_bytes")
	s := loopSluice(t, rt, "control: {mode: on, memory: {safePercent: 1, evictPercent: 99}}")
	await(t, "batch has given its page cache back", func() bool {
		return memory(t, c.File, "memory.current", "memory.usage_in_bytes") < cached/2
	})
	await(t, "batch's memory is limited", func() bool {
		limit := memory(t, batch.ClassFile, "memory.max", "memory.limit_in_bytes")
		return limit < unlimited && limit < cached
	})
	if state, err := c.State(); err != nil || state != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("batch is %s, %v", state, err)
	}
	events, err := either(c.File, "memory.events", "memory.oom_control")
	must(t, err)
	if !strings.Contains(events+"\n", "\noom_kill 0\n") {
		t.Errorf("the kernel has killed:\n%s", events)
	}
	sound(t, s)
	restores(t, rt, s, before)
}

// memory returns a number of bytes in a file of cgroup v2 or, if it doesn't exist, of v1; "max" is
// larger than any number.
func memory(t *testing.T, file func(string) (string, error), v2, v1 string) int64 {
	t.Helper()
	text, err := either(file, v2, v1)
	must(t, err)
	if text == "max" {
		return 1 << 62
	}
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}

func either(file func(string) (string, error), v2, v1 string) (string, error) {
	text, err := file(v2)
	if errors.Is(err, fs.ErrNotExist) {
		return file(v1)
	}
	return text, err
}
