package controlloop

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// stuckTime is how long a pod counts as stuck after the last refusal. The kubelet tries at least
// once a minute.
const stuckTime = 2 * time.Minute

// stuckPods are the pods of which a container was refused and has not been admitted since, by
// UID.
type stuckPods struct {
	of     map[string]control.StuckPod
	listed []control.StuckPod // for the view; replaced, never changed
}

// admitted records that a container may start, or why not. Only refusals of batch work and of
// CPUs of a pod's own count: these may be granted elsewhere, while a pod whose annotations are
// wrong would fail on any node.
func (s *stuckPods) admitted(c *node.Container, r *workload.Request, err error, now time.Time) {
	uid := c.Pod.UID
	if err == nil || r.Class != workload.BE && !r.Class.Pinned() {
		if _, was := s.of[uid]; was {
			delete(s.of, uid)
			s.renew()
		}
		return
	}
	was, known := s.of[uid]
	if !known {
		if len(s.of) >= evictorder.MaxPods {
			return
		}
		was.Since = now
	}
	next := control.StuckPod{UID: uid, Ref: c.PodRef, Pinned: r.Class.Pinned(), Never: r.Evict.Never, Since: was.Since, Last: now, Why: err.Error()}
	if s.of == nil {
		s.of = map[string]control.StuckPod{}
	}
	s.of[uid] = next
	s.renew()
}

func (s *stuckPods) renew() {
	s.listed = slices.SortedFunc(maps.Values(s.of), func(a, b control.StuckPod) int {
		if order := a.Since.Compare(b.Since); order != 0 {
			return order
		}
		return strings.Compare(a.UID, b.UID)
	})
}

// list returns the pods that are stuck, the longest first. Refusals that ended without a start,
// because the pod was deleted, are forgotten.
func (s *stuckPods) list(now time.Time) []control.StuckPod {
	before := len(s.of)
	maps.DeleteFunc(s.of, func(_ string, p control.StuckPod) bool { return now.Sub(p.Last) > stuckTime || p.Last.After(now) })
	if len(s.of) != before {
		s.renew()
	}
	return s.listed
}
