package e2e

import (
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestEvict evicts pods through the runtime's CRI socket: exactly the named one, with all its
// containers, and once.
func TestEvict(t *testing.T) {
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			rt := start(t, runtime.Options{Containerd: version})
			evictor := evict.CRI{Socket: rt.Socket(), Timeout: time.Minute}
			spec := runtime.PodSpec{Name: "p", Containers: []runtime.ContainerSpec{{Name: "a"}, {Name: "b"}}}
			other := run(t, rt, spec)
			for _, grace := range []time.Duration{0, time.Second} {
				pod := run(t, rt, runtime.PodSpec{Name: "q", Containers: spec.Containers})
				meant := evict.Pod{UID: pod.UID, Ref: "default/q", Grace: grace}
				must(t, evictor.Evict(t.Context(), meant))
				for _, name := range []string{"a", "b"} {
					must(t, pod.Container(name).Await(cri.ContainerState_CONTAINER_EXITED))
				}
				must(t, evictor.Evict(t.Context(), meant))
				must(t, pod.Remove())
				must(t, evictor.Evict(t.Context(), meant))
			}
			for _, name := range []string{"a", "b"} {
				if state, err := other.Container(name).State(); err != nil || state != cri.ContainerState_CONTAINER_RUNNING {
					t.Errorf("container %s of another pod is %s, %v", name, state, err)
				}
			}
			must(t, rt.Kill())
			if err := evictor.Evict(t.Context(), evict.Pod{UID: other.UID, Ref: "default/p"}); err == nil {
				t.Error("a runtime that is away ended a pod")
			}
			must(t, rt.Restart())
			must(t, evictor.Evict(t.Context(), evict.Pod{UID: other.UID, Ref: "default/p"}))
			must(t, other.Remove())
		})
	}
}
