package e2e

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestNormalization checks that CPU limits of services are divided at the first instruction, and
// follow resizes in both directions and a restart of the plugin. The runtime's record keeps what the
// kubelet asks for, and the kernel gets it back.
func TestNormalization(t *testing.T) {
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			rt := start(t, runtime.Options{Containerd: version})
			s := startSluice(t, rt, runtime.SluiceOptions{Config: "cpuNormalization: {ratio: 1.25}"})
			pods := map[string]*runtime.Pod{
				"LS": run(t, rt, classed("ls", "LS", runtime.Whole(500, 64*mib))),
				"no": run(t, rt, runtime.PodSpec{Name: "plain", Containers: []runtime.ContainerSpec{{Name: "c", Resources: runtime.Whole(500, 64*mib)}}}),
			}
			divided := func(when string, class string, asked workload.MilliCPU) {
				t.Helper()
				c, want := pods[class].Container("c"), asked*100/125
				await(t, when+", the limits of class "+class+" are divided", func() bool {
					return limit(t, c.File) == want && limit(t, pods[class].File) == want
				})
				if recorded, err := c.Recorded(); err != nil || version != "1.7" && recorded.GetCpuQuota() != int64(asked)*100 {
					t.Errorf("%s, the runtime's record of class %s has a quota of %d, %v; the kubelet asked for %d", when, class, recorded.GetCpuQuota(), err, asked*100)
				}
			}
			for class, pod := range pods {
				first, err := pod.Container("c").First()
				must(t, err)
				seen := func(name string) (string, error) {
					text, ok := first.Files[name]
					if !ok {
						return "", fs.ErrNotExist
					}
					return text, nil
				}
				if got := limit(t, seen); got != 400 {
					t.Errorf("class %s: the first instruction sees a limit of %d milli, want 400", class, got)
				}
				divided("at the start", class, 500)
			}
			for _, to := range []workload.MilliCPU{1000, 450} {
				for class, pod := range pods {
					must(t, pod.Container("c").Resize(runtime.Whole(to, 64*mib)))
					divided("after a resize", class, to)
				}
			}
			must(t, s.Kill())
			must(t, s.Restart())
			for class := range pods {
				divided("after a restart", class, 450)
			}
			must(t, s.Stop())
			told, err := s.Restore()
			must(t, err)
			for class, pod := range pods {
				if c, p := limit(t, pod.Container("c").File), limit(t, pod.File); c != 450 || p != 450 {
					t.Errorf("given back, class %s has limits of %d and %d milli, want 450; it told:\n%s", class, c, p, told)
				}
			}
			if strings.Contains(s.Log(), "level=error") {
				t.Errorf("the log has errors:\n%s", s.Log())
			}
		})
	}
}
