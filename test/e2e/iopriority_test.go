package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/probe/sight"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestIOPriority checks the I/O priority of a batch container's threads: at the first instruction,
// if it ran before the plugin, after a reload, a stop and a restore, and of another user's. A service
// has none.
func TestIOPriority(t *testing.T) {
	const idle = 3<<13 | 5 // pkg/kernel/ioprio tells it by the level from what processes set
	config := func(priority string) string {
		return "driftInterval: 1s\nclasses: {BE: {io: {priority: " + priority + "}}}\n"
	}
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			rt := start(t, runtime.Options{Containerd: version})
			earlier := run(t, rt, classed("earlier", "BE", runtime.Resources{}))
			s := startSluice(t, rt, runtime.SluiceOptions{Config: config("idle")})
			job := run(t, rt, classed("job", "BE", runtime.Resources{}))
			web := run(t, rt, classed("web", "LS", runtime.Whole(100, 64*mib)))
			spec := classed("user", "BE", runtime.Resources{})
			spec.Containers[0].User = 1000
			user := run(t, rt, spec)
			for pod, want := range map[*runtime.Pod]int{job: idle, user: idle, web: 0} {
				first, err := pod.Container("c").First()
				must(t, err)
				if first.IOPriority != want {
					t.Errorf("the first instruction in %s has the priority %#x, want %#x", pod.Cgroup, first.IOPriority, want)
				}
			}
			all := func(when string, want int) {
				t.Helper()
				for _, pod := range []*runtime.Pod{earlier, job, user} {
					var got string
					await(t, fmt.Sprintf("%s, all threads have the priority %#x", when, want), func() bool {
						got = ioPriorities(t, pod.Container("c"))
						return got == fmt.Sprintf("%#x", want)
					})
				}
				if got := ioPriorities(t, web.Container("c")); got != "0x0" {
					t.Errorf("%s, the service's threads have the priorities %s", when, got)
				}
			}
			all("at the start", idle)
			replace(t, s, config("normal"))
			all("no longer asked for", 0)
			replace(t, s, config("idle"))
			all("after a reload", idle)
			must(t, s.Stop())
			all("after a stop", idle)
			told, err := s.Restore()
			must(t, err)
			all("after a restore, which told "+told, 0)
			if strings.Contains(s.Log(), "level=error") {
				t.Errorf("the log has errors:\n%s", s.Log())
			}
		})
	}
}

// ioPriorities lists the different priorities of a container's threads.
func ioPriorities(t *testing.T, c *runtime.Container) string {
	t.Helper()
	pids, err := c.PIDs()
	must(t, err)
	var found []string
	for _, pid := range pids {
		tids, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		must(t, err)
		for _, entry := range tids {
			tid, err := strconv.Atoi(entry.Name())
			must(t, err)
			priority, err := sight.IOPriority(tid)
			must(t, err)
			if text := fmt.Sprintf("%#x", priority); !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
	}
	return strings.Join(found, " ")
}
