package knobs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/runtime"
)

// Bursts runs a container that now and then works for longer than its quota permits. The kernel's
// counters show that it could.
func Bursts(t *testing.T, b *Bed) {
	spec := pod("bursting", limited(200, 200), class, "LS", burst, "100%")
	spec.Containers[0].Args = []string{"first", "pulse=100"}
	bursting := b.run(t, spec)
	await(t, func() error {
		text, err := bursting.Container("c").File("cpu.stat")
		if err == nil && stat(text, "nr_bursts") == 0 {
			err = fmt.Errorf("no burst is counted: %s", text)
		}
		return err
	})
	must(t, bursting.Remove())
}

// Reclaim lets a batch container fill its limit with page cache. What exceeds its watermark is
// reclaimed, by Sluice on a kernel without watermarks. cgroup v1 offers no way to do so.
func Reclaim(t *testing.T, b *Bed) {
	const limit, ratio, read = 256 * mib, 50, 200
	spec := pod("caching", runtime.Resources{CPURequest: 100, MemoryLimit: limit}, class, "BE", memoryQoS, fmt.Sprintf("{wmarkRatio: %d}", ratio))
	spec.Containers[0].Disk = "/dev/vda"
	spec.Containers[0].Args = []string{fmt.Sprintf("cache=%d", read), "first", "sleep"}
	caching := b.run(t, spec)
	c := caching.Container("c")
	_, err := c.First()
	must(t, err)
	if peak, err := c.File("memory.peak"); err != nil || bytes(peak) < limit*ratio/100 {
		t.Fatalf("the container has used %s bytes (%v): there was nothing to reclaim", peak, err)
	}
	await(t, func() error {
		used, err := c.File("memory.current")
		if err == nil && bytes(used) > limit*ratio/100 {
			err = fmt.Errorf("the container uses %s bytes, more than %d %% of its limit", used, ratio)
		}
		return err
	})
	events, err := c.File("memory.events")
	must(t, errors.Join(err, contains(events, "oom_kill 0")))
	must(t, caching.Remove())
}

// stat returns a number from a file of names and numbers, or 0 without that name.
func stat(text, name string) int64 {
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			return bytes(value)
		}
	}
	return 0
}

// bytes returns the number in a file, or -1 if it has none.
func bytes(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
