package memorylimit

import (
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// killWatch detects OOM kills that the memory limits should prevent.
type killWatch struct {
	counted  map[string]int64 // OOM kills at the limit of each cgroup
	services map[string]int64 // OOM kills in services' containers, by ID, when all pods together last reached their limit
	ended    struct {         // numbers of containers that ended since the last check
		batch, services int
	}
}

// Ended counts a container that has ended, by class: the container's own counter of kills may
// be gone before it could be read.
func (l *Limiter) Ended(class workload.Class) {
	if class == workload.BE {
		l.kills.ended.batch++
	} else {
		l.kills.ended.services++
	}
}

// oomsSince is the increase of a cgroup's count of OOM kills since the last check; 0 at the
// first check.
func (l *Limiter) oomsSince(cgroup string) int64 {
	if l.host.OOMs == nil || cgroup == "" {
		return 0
	}
	k := &l.kills
	now, err := l.host.OOMs(cgroup)
	if err != nil {
		return 0
	}
	before, known := k.counted[cgroup]
	if k.counted == nil {
		k.counted = map[string]int64{}
	}
	k.counted[cgroup] = now
	if !known {
		return 0
	}
	return max(0, now-before)
}

// unwatch ends the count of OOM kills at a cgroup's limit. On cgroup v1 the driver keeps a file open for
// it, which no later event closes if the cgroup's pod has ended.
func (l *Limiter) unwatch(cgroup string) {
	delete(l.kills.counted, cgroup)
	l.Kernel.Forget(cgroup)
}

// watchKills counts and logs the OOM kills that must not happen: of batch work at a limit of
// Sluice's, although batch work was allowed more memory both before and after the last
// decision; and of services at the limit of all pods, while batch work held memory. goal is
// what batch work was allowed by the decision before the last one. It must run before the
// limits change.
func (l *Limiter) watchKills(goal int64) {
	ended := l.kills.ended
	l.kills.ended.batch, l.kills.ended.services = 0, 0
	all := l.oomsSince(l.AllPods())
	for _, cgroup := range slices.Sorted(maps.Keys(l.limits)) {
		n := l.oomsSince(cgroup)
		if !l.QoS.Features.Knobs[knobs.MemoryMax].V2 {
			n = max(0, n-all) // v1 also counts kills at the limits of parent cgroups
		}
		limit := int64(l.limits[cgroup])
		may := min(goal, l.decided.Goal) - l.view.HeldOutside(cgroup)
		if n == 0 || goal == 0 || limit+l.view.MemoryTotal/50 >= may {
			continue
		}
		l.Counters.BatchKills += int(n)
		l.Log.WithField("cgroup", cgroup).Warnf("The kernel killed in a batch cgroup at its memory limit of %s, while batch work might hold %s there: the limit should have been higher", control.MemoryText(limit), control.MemoryText(may))
	}
	held := l.view.BatchMemory.NonCache()
	if all == 0 || l.host.Use == nil || held <= colocation.LeastStart {
		return
	}
	killed := l.servicesKilled()
	if killed == 0 && ended.batch == 0 {
		killed = ended.services // a container that is gone took its counter with it
	}
	killed = min(killed, int(all)) // some containers may have ended without a kill
	if killed > 0 {
		l.Counters.ServiceKills += killed
		l.Log.Warnf("The kernel killed %d containers of services at the memory limit of all pods, while batch work held %s", killed, control.MemoryText(held))
	}
}

// servicesKilled counts the services' containers that still exist and in which the kernel has
// killed since the last check.
func (l *Limiter) servicesKilled() (killed int) {
	counts := make(map[string]int64, len(l.view.Containers))
	for i := range l.view.Containers {
		c := &l.view.Containers[i]
		var use observe.ContainerMemoryCounters
		if c.Class == workload.BE || c.Unseen || c.Container.Memory.At.IsZero() || l.host.Use(l.view.Members[i].Path, &use) != nil {
			continue
		}
		counts[c.ID] = use.OOMKills
		if use.OOMKills > max(c.Container.Memory.OOMKills, l.kills.services[c.ID]) {
			killed++
		}
	}
	l.kills.services = counts
	return killed
}
