package agent

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// heap returns the bytes in use after a garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Annotations that no rule uses take no memory, and others take it once per pod, however many
// containers it has.
func TestAnnotationsDontFillTheMemory(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	const pods, containers, each = 20, 50, 250 << 10
	for _, domain := range []string{"example.com", "koordinator.sh"} {
		t.Run(domain, func(t *testing.T) {
			n := newNode(t, setup{})
			defer n.stop()
			n.connect("")
			n.synchronize()
			before := heap()
			for p := range pods {
				name := fmt.Sprintf("p%d", p)
				for c := range containers {
					n.pod(fmt.Sprintf("%s/c%d", name, c), "", 0)
					spec := n.specs[fmt.Sprintf("%s/c%d", name, c)]
					pod := *n.pods[name]
					pod.Annotations = map[string]string{domain + "/x": strings.Repeat("x", each)} // decoded again for each event
					if _, _, err := n.agent.CreateContainer(context.Background(), &pod, *spec); err != nil {
						t.Fatal(err)
					}
				}
			}
			grown := heap() - before
			t.Logf("%d containers, heap grew by %d KiB", pods*containers, grown>>10)
			if limit := int64(pods*each + pods*containers*(16<<10)); grown > limit {
				t.Errorf("the heap grew by %d MiB, more than %d", grown>>20, limit>>20)
			}
			if got := len(n.agent.Sandboxes); got != pods {
				t.Errorf("%d pods are kept", got)
			}
			for p := range pods {
				if err := n.agent.RemovePod(fmt.Sprintf("sandbox-p%d", p), ""); err != nil {
					t.Error(err)
				}
			}
			if left := len(n.agent.Sandboxes) + len(n.agent.ByPath); left > 0 {
				t.Errorf("%d pods and cgroups are left", left)
			}
		})
	}
}
