package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/pkg/status"
)

// cutGrants are those of the latest status.
type cutGrants map[status.CutGrant]bool

// tell sends an event about each cut grant that the latest status did not have, and returns those of this one that an
// event tells of: one that was dropped comes again.
func (g cutGrants) tell(cut []status.CutGrant, events *Events) cutGrants {
	var now cutGrants
	for _, c := range cut {
		namespace, rest, _ := strings.Cut(c.Container, "/")
		name, container, ok := strings.Cut(rest, "/")
		if !ok {
			continue
		}
		pod := &Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(c.PodUID)}}
		if !g[c] && !events.Container(pod, container, corev1.EventTypeWarning, "GrantCut", c.Why) {
			continue
		}
		if now == nil {
			now = cutGrants{}
		}
		now[c] = true
	}
	return now
}
