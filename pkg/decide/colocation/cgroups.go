package colocation

import (
	"path"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Above returns the parent of a cgroup.
func Above(cgroup string) string { return path.Dir(cgroup) }

// IsBestEffort reports whether a cgroup is the one that the kubelet makes for BestEffort pods.
func IsBestEffort(cgroup string) bool { return isClass(cgroup, "besteffort") }

// IsBurstable reports whether a cgroup is the one that the kubelet makes for Burstable pods.
func IsBurstable(cgroup string) bool { return isClass(cgroup, "burstable") }

// isClass matches the names of both cgroup drivers: "/kubepods/besteffort" and
// "/kubepods.slice/kubepods-besteffort.slice".
func isClass(cgroup, class string) bool {
	name, ok := strings.CutSuffix(strings.TrimSuffix(path.Base(cgroup), ".slice"), class)
	return ok && (name == "" || strings.HasSuffix(name, "-"))
}

// AllPodsCgroup returns the cgroup that holds all pods and the kubelet's cgroups of QoS
// classes, given a cgroup that holds a pod's. It is empty if there is none.
func AllPodsCgroup(abovePod string) string {
	if IsBestEffort(abovePod) || IsBurstable(abovePod) {
		abovePod = Above(abovePod)
	}
	if abovePod == "/" {
		return ""
	}
	return abovePod
}

// BestEffortCgroup returns the path of the kubelet's cgroup of BestEffort pods, which is below
// the cgroup of all pods.
func BestEffortCgroup(allPods string) string {
	name := "besteffort"
	if slice, ok := strings.CutSuffix(path.Base(allPods), ".slice"); ok {
		name = slice + "-besteffort.slice"
	}
	return path.Join(allPods, name)
}

// BatchCgroups are the cgroups at which batch work is limited as a whole. On a node where all
// BestEffort pods are batch work, that is the kubelet's cgroup of BestEffort pods, with those of
// host applications.
type BatchCgroups struct {
	Dirs    []string // cgroups that hold batch pods and nothing else, sorted
	Hosts   []string // cgroups of host applications
	Limited []string // where the memory of batch work is limited: Dirs, Inventory.BestEffortCgroup, and those of Hosts with a memory limit
	Mixed   []string // cgroups that hold other pods, with or without batch pods
	MixedBy []string // "namespace/name" of the pods in Mixed that are not batch work
}

// Holds reports whether a cgroup holds batch pods and nothing else.
func (b *BatchCgroups) Holds(cgroup string) bool { return slices.Contains(b.Dirs, cgroup) }

// Bounds reports whether batch work is limited at a cgroup as a whole.
func (b *BatchCgroups) Bounds(cgroup string) bool {
	return b.Holds(cgroup) || slices.Contains(b.Hosts, cgroup)
}

// FindBatchCgroups returns the cgroups of batch work.
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
	for i := range inv.HostApplications {
		a := &inv.HostApplications[i]
		b.Hosts = append(b.Hosts, a.Cgroup)
		if a.HoldsMemory {
			b.Limited = append(b.Limited, a.Cgroup)
		}
	}
	return b
}
