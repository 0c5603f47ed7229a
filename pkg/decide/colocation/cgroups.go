package colocation

import (
	"path"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Above is the cgroup that holds another.
func Above(cgroup string) string { return path.Dir(cgroup) }

// IsBestEffort reports whether a cgroup is the kubelet's for BestEffort pods.
func IsBestEffort(cgroup string) bool { return isClass(cgroup, "besteffort") }

// IsBurstable reports whether a cgroup is the kubelet's for Burstable pods.
func IsBurstable(cgroup string) bool { return isClass(cgroup, "burstable") }

// isClass knows both cgroup drivers' names: "/kubepods/besteffort" and
// "/kubepods.slice/kubepods-besteffort.slice".
func isClass(cgroup, class string) bool {
	name, ok := strings.CutSuffix(strings.TrimSuffix(path.Base(cgroup), ".slice"), class)
	return ok && (name == "" || strings.HasSuffix(name, "-"))
}

// AllPodsCgroup is the cgroup that holds all pods and the kubelet's cgroups of their
// classes, by a cgroup that holds a pod's; "" where there is none.
func AllPodsCgroup(abovePod string) string {
	if IsBestEffort(abovePod) || IsBurstable(abovePod) {
		abovePod = Above(abovePod)
	}
	if abovePod == "/" {
		return ""
	}
	return abovePod
}

// BestEffortCgroup is the path that the kubelet gives the cgroup of BestEffort pods, below
// the cgroup of all pods.
func BestEffortCgroup(allPods string) string {
	name := "besteffort"
	if slice, ok := strings.CutSuffix(path.Base(allPods), ".slice"); ok {
		name = slice + "-besteffort.slice"
	}
	return path.Join(allPods, name)
}

// BatchCgroups are the cgroups at which batch work is bounded as a whole: the kubelet's
// cgroup of BestEffort pods, on a node where all BestEffort pods are batch.
type BatchCgroups struct {
	Dirs    []string // hold batch pods and nothing else; sorted
	Limited []string // those, and Inventory.BestEffortCgroup: where batch work's memory is limited
	Mixed   []string // hold batch pods and others, or others alone
	MixedBy []string // "namespace/name" of the pods in Mixed that are not batch work
}

// Holds reports whether a cgroup holds batch pods and nothing else.
func (b *BatchCgroups) Holds(cgroup string) bool { return slices.Contains(b.Dirs, cgroup) }

// FindBatchCgroups finds the cgroups that hold batch pods and nothing else.
func FindBatchCgroups(inv *Inventory) (b BatchCgroups) {
	for i := range inv.Containers {
		c := &inv.Containers[i]
		switch {
		case c.Request == nil || !IsBestEffort(c.Above):
		case c.Is(workload.BE) && c.Reachable:
			if !slices.Contains(b.Dirs, c.Above) {
				b.Dirs = append(b.Dirs, c.Above)
			}
		default:
			b.Mixed = append(b.Mixed, c.Above)
			if !slices.Contains(b.MixedBy, c.PodRef) {
				b.MixedBy = append(b.MixedBy, c.PodRef)
			}
		}
	}
	b.Dirs = slices.DeleteFunc(b.Dirs, func(dir string) bool { return slices.Contains(b.Mixed, dir) })
	slices.Sort(b.Dirs)
	b.Limited = slices.Clone(b.Dirs)
	if dir := inv.BestEffortCgroup; dir != "" && !b.Holds(dir) && !slices.Contains(b.Mixed, dir) {
		b.Limited = append(b.Limited, dir)
	}
	return b
}
