package memorylimit

import (
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// acts reports whether the Limiter may limit batch work's memory now.
func (l *Limiter) acts() bool {
	may := l.Authority()
	return may.Cgroups && may.Acts(l.Config.Control.Memory.Mode) && l.decided.Known
}

// MayStart refuses a batch container that would start with less memory than it needs.
func (l *Limiter) MayStart(c *node.Container, r *workload.Request) error {
	if !l.acts() {
		return nil
	}
	need := colocation.MemoryToStart(c.Resources.MemoryLimit, r)
	room := l.decided.Room - l.reserved.Admitted
	if room < need {
		room += l.freed()
	}
	return colocation.RefuseMemory(need, room, l.decided.Goal)
}

// freed is the memory, in bytes, that batch work has returned since the controller's last step:
// the successor of a container that crashed can have the crashed container's memory.
func (l *Limiter) freed() int64 {
	if l.host.Use == nil || l.view.BatchMemory.At.IsZero() {
		return 0
	}
	freed := int64(0)
	for cgroup, held := range l.view.Held {
		var use observe.ContainerMemoryCounters
		if l.host.Use(cgroup, &use) == nil {
			freed += max(0, held.NonCache()-(use.Current-use.ActiveFile-use.InactiveFile))
		}
	}
	return freed
}

// Reserve reserves memory for a batch container that is being created. It does nothing for
// other containers.
func (l *Limiter) Reserve(c *node.Container, r *workload.Request) {
	if r.Class == workload.BE && l.acts() {
		l.reserved.Reserve(l.Now(), c.ID, c.Above, c.PodPath, colocation.MemoryToStart(c.Resources.MemoryLimit, r))
	}
}

// Start prepares the memory limits for a container's first instruction. The container's
// reservation takes effect, and the limits above the container leave room for it to start. If
// the container isn't batch work, Start lifts the limit of a cgroup that contained only batch
// pods. The view must contain the container.
func (l *Limiter) Start(id string) {
	if !l.acts() {
		return
	}
	if l.want.BatchLimit <= 0 { // the container's cgroup may be the first one that can be limited
		l.want.BatchLimit = l.decided.Goal
	}
	l.reserved.Started(l.Now(), id)
	if !l.IsBusy() {
		l.releaseAllBut(l.limitable())
	}
	l.keepReservations()
}

// keepReservations raises the limits of all cgroups in which containers start, and sets a limit
// where there is none. Neither makes the kernel reclaim, so neither blocks.
func (l *Limiter) keepReservations() {
	l.Owed()
	var changes []knobs.Change
	var limits []limitChange
	for _, c := range l.limitable() {
		if l.reservedIn(c.Path) == 0 {
			continue
		}
		has, set := l.limits[c.Path]
		least := l.inUse(c.Path) + l.reservedIn(c.Path)
		if set && has >= least {
			continue
		}
		if change, ok := l.limitOf(&c, max(knobs.Bytes(l.want.BatchLimit-c.others), least)); ok {
			changes, limits = append(changes, change.Change), append(limits, change)
		}
	}
	if len(changes) == 0 {
		return
	}
	failed, _ := l.Reconciler.Write(changes) // Write logs the error, and the next step tries again
	for i := range limits {
		if failed[reconcile.KeyOf(&changes[i])] != nil || l.Reconciler.Unsaved() {
			l.undo(&limits[i])
		}
	}
}

// Owed drops the reservations that have ended, and returns how many bytes are reserved for
// containers that start and don't use them yet.
func (l *Limiter) Owed() (bytes int64) {
	bytes, by := l.reserved.Owed(l.Now(), l.view, func(id string) bool { return l.Containers[id] != nil })
	l.mu.Lock()
	l.promised = by
	l.mu.Unlock()
	return bytes
}

// reservedIn is the sum of the reservations in a cgroup that the starting containers don't use
// yet. Any goroutine may call it.
func (l *Limiter) reservedIn(cgroup string) knobs.Bytes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.promised[cgroup]
}
