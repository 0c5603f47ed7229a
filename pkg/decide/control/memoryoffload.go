package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Offload is the step between dropping page cache and evicting: batch work's other memory goes to
// swap. Two bounds come from Meta's TMO (Weiner et al., Transparent Memory Offloading, ASPLOS 2022):
// what may be written to a disk in the long run, since a disk wears out, and the pressure at which a
// container gives no more, since it would read its memory back at once.
const (
	swapBudgetTime  = time.Hour        // time over which writes to a disk are bounded
	firstSwapBudget = 10 * time.Minute // budget at the start, so that restarts don't add up to more
	keptSwapPercent = 10               // percent of swap that stays free for others
	mostSwapMBps    = 10000
	offloadPressure = 0.10 // memory pressure above which a container's memory stays
)

// Taken is the memory that batch work gave back on request, in bytes.
type Taken struct {
	PageCache int64
	Swap      int64 // memory that went to swap
}

// offloading is what has been learned of the node's swap.
type offloading struct {
	budget float64 // bytes that may be written to a disk now
	asked  int64   // bytes of the last step
	giving bool    // the last step moved memory to swap
	taken  Taken
}

// learnSwap counts the writes to swap since the previous measurement of the node, whoever caused
// them, against the budget.
func (m *Memory) learnSwap(n *observe.NodeMemory, took time.Duration) {
	most := swapBudget(&m.cfg, swapBudgetTime)
	now := m.offload.budget + swapBudget(&m.cfg, took) - n.SwapWrites*took.Seconds()
	m.offload.budget = min(max(now, -most), most)
}

// swapBudget returns how many bytes may be written to a disk in that time.
func swapBudget(cfg *MemoryConfig, over time.Duration) float64 {
	return float64(cfg.SwapMBps) * float64(mib) * over.Seconds()
}

// swapRoom returns how many bytes may go to swap now.
func (m *Memory) swapRoom(n *observe.NodeMemory) int64 {
	room := n.SwapFree - bytesPart(n.SwapTotal, keptSwapPercent)
	if !n.SwapInMemory {
		room = min(room, int64(m.offload.budget))
	}
	return max(room, 0)
}

// takeToSwap requests memory that has to go to swap: at most a tenth of a container's, or a quarter
// while online work grows, since a slower answer would end the container.
func (m *Memory) takeToSwap(v *View, left int64, pressing bool) (asked int64) {
	part := int64(10)
	if pressing {
		part = 4
	}
	room := m.swapRoom(&v.Node.Memory)
	for _, c := range m.candidates {
		one := &v.Containers[c.container]
		if one.Class != workload.BE || !knownSlowly(v.Now, one.Swap.At, m.pace.interval) || one.Pressure.Memory > offloadPressure {
			continue
		}
		bytes := min(c.rest/part, left-asked, room-asked, one.Swap.Free)
		if bytes < mib {
			continue
		}
		m.reclaimFrom(v, c.container, bytes)
		asked += bytes
	}
	return asked
}

// measureTaken records what the last step gave, by kind. Memory that zram holds has not become
// free.
func (m *Memory) measureTaken() (freed int64) {
	r, o, s := &m.release, &m.offload, &m.sum
	cache := max(r.before.Cache-s.batch.Cache, 0)
	swapped := max(s.batch.Swap-r.before.Swap, 0)
	o.taken.PageCache += cache
	o.taken.Swap += swapped
	held := max(s.swapHeld-r.swapHeld, 0)
	o.giving = o.asked > 0 && swapped-held >= o.asked/4
	return max(r.before.Current-s.batch.Current-held, 0)
}

// offloads reports whether memory goes to swap as requested, or whether that has just been tried
// for the first time, so that an eviction can wait.
func (m *Memory) offloads() bool {
	return m.offload.giving || m.requested && m.offload.asked > 0 && m.release.misses == 0
}
