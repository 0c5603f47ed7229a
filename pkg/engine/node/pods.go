package node

import (
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

// Sandbox is a pod with the number of its containers that are tracked. They share it:
// each event brings the pod's annotations anew, of which a tenant may write 256 KiB.
type Sandbox struct {
	pod        *workload.Pod
	containers int
}

// podOf is the pod that a container shares with the others of its sandbox, as the event
// tells it, and with the resources that it has been resized to.
func (n *Node) podOf(told *workload.Pod) *workload.Pod {
	s := n.Sandboxes[told.ID]
	if s == nil {
		s = &Sandbox{pod: slim(told)}
		n.Sandboxes[told.ID] = s
	} else if s.pod != told {
		resources := s.pod.Resources
		*s.pod = *slim(told)
		s.pod.Resources = resources
	}
	s.containers++
	return s.pod
}

// leavePod ends a container's share of its pod.
func (n *Node) leavePod(pod *workload.Pod) {
	if s := n.Sandboxes[pod.ID]; s != nil && s.pod == pod {
		if s.containers--; s.containers == 0 {
			delete(n.Sandboxes, pod.ID)
		}
	}
}

// maxLabels bounds the labels that are kept of a pod, in bytes. Kubernetes bounds an
// object as a whole alone, at 1.5 MiB and more.
const maxLabels = 32 << 10

// slim is a pod without what no class, rule or dialect asks for. Labels are kept in
// alphabetical order, the dialects' before the others, as far as there is room.
func slim(told *workload.Pod) *workload.Pod {
	pod := *told
	pod.Annotations = make(map[string]string, len(told.Annotations))
	for key, value := range told.Annotations {
		if annotation.Concerns(key) {
			pod.Annotations[key] = value
		}
	}
	size := 0
	for key, value := range told.Labels {
		size += len(key) + len(value)
	}
	if size <= maxLabels {
		return &pod
	}
	pod.Labels = map[string]string{}
	keys := slices.Sorted(maps.Keys(told.Labels))
	slices.SortStableFunc(keys, func(a, b string) int {
		return boolRank(annotation.Concerns(a)) - boolRank(annotation.Concerns(b))
	})
	room := maxLabels
	for _, key := range keys {
		if room -= len(key) + len(told.Labels[key]); room < 0 {
			break
		}
		pod.Labels[key] = told.Labels[key]
	}
	return &pod
}

func boolRank(first bool) int {
	if first {
		return 0
	}
	return 1
}
