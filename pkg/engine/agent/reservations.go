package agent

import (
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// limitsMemory reports whether batch work's memory is limited here and now.
func (a *Agent) limitsMemory() bool {
	may := a.Authority()
	return a.loop.made && may.Cgroups && may.Acts(a.Config.Control.Memory.Mode) && a.loop.memory.Known
}

// mayHold refuses a batch container which would start in less memory than it needs.
func (a *Agent) mayHold(c *node.Container, r *workload.Request) error {
	l := &a.loop
	if !a.limitsMemory() {
		return nil
	}
	need := colocation.MemoryToStart(c.Resources.MemoryLimit, r)
	room := l.memory.Room - l.limiter.reserved.Admitted
	if room < need {
		room += a.freed()
	}
	return colocation.RefuseMemory(need, room, l.memory.Goal)
}

// freed is what batch work has given back since the controller looked: the memory of a
// container that crashed is there for its successor.
func (a *Agent) freed() int64 {
	l := &a.loop
	if a.options.MemoryUse == nil || l.view.BatchMemory.At.IsZero() {
		return 0
	}
	freed := int64(0)
	for cgroup, held := range l.view.Held {
		var use observe.ContainerMemoryCounters
		if a.options.MemoryUse(cgroup, &use) == nil {
			freed += max(0, held.Kept()-(use.Current-use.ActiveFile-use.InactiveFile))
		}
	}
	return freed
}

// reserveMemory keeps memory for a batch container that is being created.
func (a *Agent) reserveMemory(c *node.Container, r *workload.Request) {
	if r.Class == workload.BE && a.limitsMemory() {
		a.loop.limiter.reserved.Reserve(a.Now(), c.ID, c.Above, c.PodPath, colocation.MemoryToStart(c.Resources.MemoryLimit, r))
	}
}

// begun prepares memory limits for a container's first instruction: what is reserved for it
// holds from now on, and the limits above it leave room to start. A container that isn't
// batch lifts the limit of a cgroup that held batch pods alone.
func (a *Agent) begun(c *node.Container) {
	l := &a.loop
	p := l.limiter
	if l.made && a.isStale() {
		a.look()
	}
	if !a.limitsMemory() {
		return
	}
	a.wantLimit()
	p.reserved.Started(a.Now(), c.ID)
	if !p.busy {
		a.releaseLimits(a.claims())
	}
	a.keepReservations()
}

// wantLimit asks for a limit where the controller has set none, since the first cgroup on
// which one can be set has just come.
func (a *Agent) wantLimit() {
	l := &a.loop
	if w := &l.limiter.want; w.BatchLimit <= 0 {
		w.BatchLimit = l.memory.Goal
	}
}

// keepReservations raises the limits of all cgroups in which containers start, and sets one
// where there is none: neither makes the kernel reclaim, and so neither waits.
func (a *Agent) keepReservations() {
	a.sumReservations()
	p := a.loop.limiter
	var changes []knobs.Change
	var made []limitChange
	for _, c := range a.claims() {
		if a.reservedIn(c.Path) == 0 {
			continue
		}
		has, limited := p.limits[c.Path]
		least := a.inUse(c.Path) + a.reservedIn(c.Path)
		if limited && has >= least {
			continue
		}
		if change, ok := a.limitOf(&c, max(knobs.Bytes(a.loop.limiter.want.BatchLimit-c.others), least)); ok {
			changes, made = append(changes, change.Change), append(made, change)
		}
	}
	if len(changes) == 0 {
		return
	}
	failed, _ := a.Reconciler.Write(changes) // told, and tried again by the next step
	for i := range made {
		if failed[reconcile.KeyOf(&changes[i])] != nil || a.Reconciler.Unsaved() {
			a.unlimit(&made[i])
		}
	}
}

// sumReservations sums up what is reserved for containers that start and not held yet, in all
// and for each cgroup whose limit has to leave room for it.
func (a *Agent) sumReservations() (owed int64) {
	l := &a.loop
	owed, by := l.limiter.reserved.Owed(a.Now(), &l.view, func(id string) bool { return a.Containers[id] != nil })
	p := l.limiter
	p.mu.Lock()
	p.promised = by
	p.mu.Unlock()
	return owed
}

// reservedIn is what containers that start in a cgroup have reserved and don't hold. Any
// goroutine may ask.
func (a *Agent) reservedIn(cgroup string) knobs.Bytes {
	p := a.loop.limiter
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.promised[cgroup]
}
