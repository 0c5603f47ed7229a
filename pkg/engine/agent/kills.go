package agent

import (
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// killWatch looks for kills by the kernel that the memory loop is there to prevent.
type killWatch struct {
	seen     map[string]int64 // OOM kills at the limit of a cgroup
	services map[string]int64 // and in services' containers, by id, when all pods were at their limit
	ended    [2]int           // containers since the last look: services, batch
}

// stopped notes that a container has ended: one that the kernel killed may be gone before
// anybody could look at its counter.
func (k *killWatch) stopped(class workload.Class) {
	if class == workload.BE {
		k.ended[1]++
	} else {
		k.ended[0]++
	}
}

// oomsSince is by how much a cgroup's count rose since the look before; 0 at the first one.
func (a *Agent) oomsSince(cgroup string) int64 {
	if a.options.OOMs == nil || cgroup == "" {
		return 0
	}
	k := &a.loop.kills
	now, err := a.options.OOMs(cgroup)
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

// watchKills counts the kills that must not be, with a line in the log for each: of batch
// work at a limit of Sluice's while batch work might hold more, before and after; and of
// services at the limit of all pods while batch work held memory. goal is what batch work
// might hold at the look before. It looks at the limits before they are moved.
func (a *Agent) watchKills(goal int64) {
	l := &a.loop
	services, batch := l.kills.ended[0], l.kills.ended[1]
	l.kills.ended = [2]int{}
	all := a.oomsSince(a.AllPods())
	for _, cgroup := range slices.Sorted(maps.Keys(l.limiter.limits)) {
		n := a.oomsSince(cgroup)
		if !a.QoS.Features.Knobs[knobs.MemoryMax].V2 {
			n = max(0, n-all) // v1 gives notice of kills at the limits above, too
		}
		limit := int64(l.limiter.limits[cgroup])
		may := min(goal, l.memory.Goal) - l.view.HeldOutside(cgroup)
		if n == 0 || goal == 0 || limit+l.view.MemoryTotal/50 >= may {
			continue
		}
		a.Counters.BatchKills += int(n)
		a.Log.WithField("cgroup", cgroup).Warnf("The kernel killed in a batch cgroup at its memory limit of %s, while batch work might hold %s there: the limit should have been higher", control.MemoryText(limit), control.MemoryText(may))
	}
	held := l.view.BatchMemory.Kept()
	if all == 0 || a.options.MemoryUse == nil || held <= colocation.LeastStart {
		return
	}
	killed := a.servicesKilled()
	if killed == 0 && batch == 0 {
		killed = services // one that is gone with its counter
	}
	killed = min(killed, int(all)) // some may have ended by themselves
	if killed > 0 {
		a.Counters.ServiceKills += killed
		a.Log.Warnf("The kernel killed %d containers of services at the memory limit of all pods, while batch work held %s", killed, control.MemoryText(held))
	}
}

// servicesKilled counts kills in services' containers that are there, since they were
// looked at before.
func (a *Agent) servicesKilled() (killed int) {
	l := &a.loop
	counts := make(map[string]int64, len(l.view.Containers))
	for i := range l.view.Containers {
		c := &l.view.Containers[i]
		var use observe.ContainerMemoryCounters
		if c.Class == workload.BE || c.Unseen || c.Container.Memory.At.IsZero() || a.options.MemoryUse(l.view.Members[i].Path, &use) != nil {
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
