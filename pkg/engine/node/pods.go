package node

import (
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

// Sandbox is a pod with the number of its containers that are tracked. The containers share the
// pod, since each event has another copy of its annotations, and a tenant may write 256 KiB of
// them.
type Sandbox struct {
	pod        *workload.Pod
	containers int
}

// podOf returns the pod that a container shares with the others of its sandbox, with the data
// of the present event and the resources that it was last resized to.
func (n *Node) podOf(event *workload.Pod) *workload.Pod {
	s := n.Sandboxes[event.ID]
	if s == nil {
		s = &Sandbox{pod: slim(event)}
		n.Sandboxes[event.ID] = s
	} else if s.pod != event {
		resources := s.pod.Resources
		*s.pod = *slim(event)
		s.pod.Resources = resources
	}
	s.containers++
	return s.pod
}

// leavePod removes a container from its sandbox.
func (n *Node) leavePod(pod *workload.Pod) {
	if s := n.Sandboxes[pod.ID]; s != nil && s.pod == pod {
		if s.containers--; s.containers == 0 {
			delete(n.Sandboxes, pod.ID)
		}
	}
}

// maxLabels bounds the labels that are stored of a pod, in bytes. Kubernetes only bounds an
// object as a whole, at 1.5 MiB and more.
const maxLabels = 32 << 10

// slim copies a pod without the annotations and labels that no class, rule or dialect reads. It
// copies labels in alphabetical order, the dialects' first, up to maxLabels.
func slim(event *workload.Pod) *workload.Pod {
	pod := *event
	pod.Annotations = make(map[string]string, len(event.Annotations))
	for key, value := range event.Annotations {
		if annotation.Concerns(key) {
			pod.Annotations[key] = value
		}
	}
	size := 0
	for key, value := range event.Labels {
		size += len(key) + len(value)
	}
	if size <= maxLabels {
		return &pod
	}
	pod.Labels = map[string]string{}
	keys := slices.Sorted(maps.Keys(event.Labels))
	slices.SortStableFunc(keys, func(a, b string) int {
		return boolRank(annotation.Concerns(a)) - boolRank(annotation.Concerns(b))
	})
	room := maxLabels
	for _, key := range keys {
		if room -= len(key) + len(event.Labels[key]); room < 0 {
			break
		}
		pod.Labels[key] = event.Labels[key]
	}
	return &pod
}

func boolRank(first bool) int {
	if first {
		return 0
	}
	return 1
}
