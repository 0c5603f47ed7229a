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

// killWatch looks for kills by the kernel that the memory limits are there to prevent.
type killWatch struct {
	seen     map[string]int64 // OOM kills at the limit of a cgroup
	services map[string]int64 // OOM kills in services' containers, by ID, when all pods were at their limit last
	ended    struct {         // numbers of containers that ended since the last look
		batch, services int
	}
}

// Ended takes note that a container of a class has ended: one that the kernel killed may be
// gone before anybody could read its counter.
func (l *Limiter) Ended(class workload.Class) {
	if class == workload.BE {
		l.kills.ended.batch++
	} else {
		l.kills.ended.services++
	}
}

// oomsSince is by how much a cgroup's count of kills rose since the last look; 0 at the first
// one.
func (l *Limiter) oomsSince(cgroup string) int64 {
	if l.host.OOMs == nil || cgroup == "" {
		return 0
	}
	k := &l.kills
	now, err := l.host.OOMs(cgroup)
	if err != nil {
		return 0
	}
	before, known := k.seen[cgroup]
	if k.seen == nil {
		k.seen = map[string]int64{}
	}
	k.seen[cgroup] = now
	if !known {
		return 0
	}
	return max(0, now-before)
}

// watchKills counts and logs the kills that must not happen: of batch work at a limit of
// Sluice's while batch work might hold more, both before and after; and of services at the
// limit of all pods while batch work held memory. Goal is what batch work might hold by the
// controller's decision before this one. The limits must not have been changed since then.
func (l *Limiter) watchKills(goal int64) {
	ended := l.kills.ended
	l.kills.ended.batch, l.kills.ended.services = 0, 0
	all := l.oomsSince(l.AllPods())
	for _, cgroup := range slices.Sorted(maps.Keys(l.limits)) {
		n := l.oomsSince(cgroup)
		if !l.QoS.Features.Knobs[knobs.MemoryMax].V2 {
			n = max(0, n-all) // v1 gives notice of kills at the limits above, too
		}
		limit := int64(l.limits[cgroup])
		may := min(goal, l.decided.Goal) - l.view.HeldOutside(cgroup)
		if n == 0 || goal == 0 || limit+l.view.MemoryTotal/50 >= may {
			continue
		}
		l.Counters.BatchKills += int(n)
		l.Log.WithField("cgroup", cgroup).Warnf("The kernel killed in a batch cgroup at its memory limit of %s, while batch work might hold %s there: the limit should have been higher", control.MemoryText(limit), control.MemoryText(may))
	}
	held := l.view.BatchMemory.Kept()
	if all == 0 || l.host.Use == nil || held <= colocation.LeastStart {
		return
	}
	killed := l.servicesKilled()
	if killed == 0 && ended.batch == 0 {
		killed = ended.services // one that is gone with its counter
	}
	killed = min(killed, int(all)) // some may have ended by themselves
	if killed > 0 {
		l.Counters.ServiceKills += killed
		l.Log.Warnf("The kernel killed %d containers of services at the memory limit of all pods, while batch work held %s", killed, control.MemoryText(held))
	}
}

// servicesKilled counts the services' containers that are there and in which the kernel has
// killed since the last look.
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
