package slices

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Reserved names a claim for which a node has reserved CPUs.
type Reserved struct{ UID, Namespace, Name string }

// Unused lists the claims of which no container has a CPU, by the plugin's status: none while the plugin may not know
// all containers and their CPUs. A claim that lacks CPUs counts as used, because its containers may have others then.
func Unused(s *status.Status) []Reserved {
	if s.Claims == nil || len(s.Claims.Reserved) == 0 || !s.Runtime.Connected {
		return nil
	}
	var busy cpuset.Set
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.Class.Pinned() && c.CPUs.IsEmpty() {
			return nil
		}
		busy = cpuset.Union(busy, c.CPUs)
	}
	var all, used []Reserved
	for i := range s.Claims.Reserved {
		part := &s.Claims.Reserved[i]
		r, ok := reserved(part)
		switch {
		case !ok:
		case part.Problem != "" || part.CPUs.IsEmpty() || part.CPUs.Overlaps(busy):
			used = append(used, r)
		case !slices.Contains(all, r):
			all = append(all, r)
		}
	}
	return slices.DeleteFunc(all, func(r Reserved) bool { return slices.Contains(used, r) })
}

// reserved is the claim that a part belongs to.
func reserved(part *status.Claim) (r Reserved, ok bool) {
	names, ok := strings.CutPrefix(part.Ref, "claim ")
	if !ok {
		return r, false
	}
	r.UID = part.ID[:max(0, strings.LastIndexByte(part.ID, '-'))]
	r.Namespace, r.Name, ok = strings.Cut(names, "/")
	return r, ok && claim.IsOf(part.ID, r.UID)
}
