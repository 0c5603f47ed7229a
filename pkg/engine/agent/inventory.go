package agent

import (
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// isStale reports whether what runs has changed since the controllers' view was made.
func (a *Agent) isStale() bool { return a.loop.changes != a.Changes }

// look makes the controllers' view of what exists.
func (a *Agent) look() {
	l := &a.loop
	l.changes, l.looked, l.sized, l.shareOf = a.Changes, a.Ledger.Version(), a.Ledger.Version(), notShared
	l.view.SetInventory(a.podsettings.Collect())
}

// measurePools enters the CPUs that the pools have now.
func (a *Agent) measurePools() {
	a.loop.sized = a.Ledger.Version()
	a.loop.view.SetPoolCPUs(a.Ledger.Pools())
}

// limitOfAllPods is the memory that all pods together may hold; 0 for no limit.
func (a *Agent) limitOfAllPods() knobs.Bytes {
	dir := a.AllPods()
	if dir == "" || a.Kernel == nil {
		return 0
	}
	limit, err := a.Kernel.Read(dir, knobs.MemoryMax)
	if err != nil {
		return 0
	}
	return max(0, limit.(knobs.Bytes))
}
