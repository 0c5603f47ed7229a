package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/pkg/status"
)

// cutGrants are the IDs of the containers with an annotation that claims more batch resources than the kubelet granted.
type cutGrants map[string]bool

// tell sends an event about the pod of each such container of a status that was not in the status before, and returns
// those of this status.
func (g cutGrants) tell(s *status.Status, events *Events) cutGrants {
	var now cutGrants
	for i := range s.Containers {
		c := &s.Containers[i]
		namespace, rest, _ := strings.Cut(c.Ref, "/")
		name, _, ok := strings.Cut(rest, "/")
		if c.GrantCut == "" || !ok {
			continue
		}
		if now == nil {
			now = cutGrants{}
		}
		now[c.ID] = true
		if !g[c.ID] {
			pod := &Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(c.PodUID)}}
			events.Pod(pod, corev1.EventTypeWarning, "GrantCut", c.GrantCut)
		}
	}
	return now
}
