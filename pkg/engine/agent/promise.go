package agent

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// promise is memory that a batch container was promised as it was created. Until it holds
// that, or should, no limit takes it away.
type promise struct {
	bytes   int64
	until   time.Time
	started bool
}

const (
	// leastStart is what a container needs to start that doesn't say what it needs.
	leastStart = 128 << 20
	// startTime is how long a container may take, from its first instruction, until it
	// holds what it was promised.
	startTime = 30 * time.Second
)

// memoryToStart is the memory that a batch container needs to start: what it was granted.
// Without a grant it is little, at most its limit.
func memoryToStart(c *container, r *workload.Request) int64 {
	if _, granted := r.Grant(); granted > 0 {
		return granted
	}
	if limit := colocation.MemoryLimit(c.Resources.MemoryLimit, r); limit > 0 {
		return min(limit, leastStart)
	}
	return leastStart
}

// limitsMemory reports whether batch work's memory is limited here and now.
func (a *Agent) limitsMemory() bool {
	may := a.authority()
	return a.loop.made && may.Cgroups && may.Acts(a.Config.Control.Memory.Mode) && a.loop.memory.Known
}

// mayHold refuses a batch container which would start in less memory than it needs.
func (a *Agent) mayHold(c *container, r *workload.Request) error {
	l := &a.loop
	if !a.limitsMemory() {
		return nil
	}
	need := memoryToStart(c, r)
	room := l.memory.Room - l.press.admitted
	if room < need {
		room += a.freed()
	}
	if room >= need {
		return nil
	}
	return fmt.Errorf("no batch container starts on this node now that needs %s of memory: batch work may hold %s beside what services use, and %s of that are left; the kubelet tries again",
		control.MemoryText(need), control.MemoryText(l.memory.Goal), control.MemoryText(max(room, 0)))
}

// freed is what batch work has given back since the controller looked: the memory of a
// container that crashed is there for its successor.
func (a *Agent) freed() int64 {
	l := &a.loop
	if a.MemoryUse == nil || l.view.BatchMemory.At.IsZero() {
		return 0
	}
	freed := int64(0)
	for cgroup, held := range l.view.Held {
		var use observe.ContainerMemoryCounters
		if a.MemoryUse(cgroup, &use) == nil {
			freed += max(0, held.Kept()-(use.Current-use.ActiveFile-use.InactiveFile))
		}
	}
	return freed
}

// promise keeps the memory for a batch container that is being created.
func (a *Agent) promise(c *container, r *workload.Request) {
	if r.Class != workload.BE || !a.limitsMemory() {
		return
	}
	p := a.loop.press
	bytes := memoryToStart(c, r)
	p.promises[c.ID] = promise{bytes: bytes, until: a.now().Add(creationTime)}
	p.admitted += bytes
}

// begun has the promise to a container hold from its first instruction on, and gives it a
// limit that lets it start. Where a container is no batch work, what held batch alone
// opens.
func (a *Agent) begun(c *container) {
	l := &a.loop
	p := l.press
	if l.made && l.stale {
		a.look()
	}
	if !a.limitsMemory() {
		return
	}
	a.wantLimit()
	if of, ok := p.promises[c.ID]; ok {
		of.until, of.started = a.now().Add(startTime), true
		p.promises[c.ID] = of
	}
	if !p.busy {
		a.unpress(a.claims())
	}
	a.keepPromises()
}

// wantLimit has a limit wanted where the first cgroup that one can be set on has just
// come.
func (a *Agent) wantLimit() {
	l := &a.loop
	if w := &l.press.want; w.BatchLimit <= 0 {
		w.BatchLimit = l.memory.Goal
	}
}

// keepPromises raises the limits of all cgroups in which containers start, and sets one
// where there is none: neither makes the kernel reclaim, and so neither waits.
func (a *Agent) keepPromises() {
	a.sumPromises()
	p := a.loop.press
	var changes []knobs.Change
	var made []limitChange
	for _, c := range a.claims() {
		if a.promisedTo(c.Path) == 0 {
			continue
		}
		has, limited := p.limits[c.Path]
		least := a.inUse(c.Path) + a.promisedTo(c.Path)
		if limited && has >= least {
			continue
		}
		if change, ok := a.limitOf(&c, max(knobs.Bytes(a.loop.press.want.BatchLimit-c.others), least)); ok {
			changes, made = append(changes, change.Change), append(made, change)
		}
	}
	if len(changes) == 0 {
		return
	}
	failed, _ := a.reconciler.Write(changes) // told, and tried again by the next step
	for i := range made {
		if failed[reconcile.KeyOf(&changes[i])] != nil || a.reconciler.Unsaved() {
			a.unlimit(&made[i])
		}
	}
}

// sumPromises forgets promises that are kept, and sums up the others by the cgroup whose
// limit has to keep them. It returns what of them isn't held yet.
func (a *Agent) sumPromises() (owed int64) {
	l := &a.loop
	p, now := l.press, a.now()
	by := map[string]knobs.Bytes{}
	for id, of := range p.promises {
		c := a.containers[id]
		if c == nil || now.After(of.until) {
			delete(p.promises, id)
			continue
		}
		left := of.bytes
		if seen := l.view.Container(id); seen != nil {
			left -= seen.Container.Memory.Current
		}
		if left > 0 {
			owed += left
			by[c.box] += knobs.Bytes(left)
			by[c.podPath] += knobs.Bytes(left)
		}
	}
	p.mu.Lock()
	p.promised = by
	p.mu.Unlock()
	return owed
}

// promisedTo is what containers that start in a cgroup were promised and don't hold. Any
// goroutine may ask.
func (a *Agent) promisedTo(cgroup string) knobs.Bytes {
	p := a.loop.press
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.promised[cgroup]
}
