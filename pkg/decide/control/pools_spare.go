package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// riseTime is for how long a pool keeps CPUs for another rise like the largest that it had.
	riseTime = time.Minute
	// spareTime is for how long a pool must not have needed its spare CPUs.
	spareTime = 5 * time.Second
	// spareGrowth is the part of a pool, in percent, by which its spare CPUs must be able to grow
	// before they do, so that a load that varies a little moves no batch work.
	spareGrowth = 10
	// sideEffect is the time after CPUs were lent in which a rise of the load counts as their effect.
	sideEffect = time.Second
	// longestSpareWait is longer than the slow window, so that the pool can shrink in it.
	longestSpareWait = 2 * time.Minute
)

// spare decides which part of each pool batch work may use too. A pool keeps for itself its
// configured minimum, and the CPUs that have its highest load of the last spareTime in the band
// together with another rise like the largest of the last riseTime. What
// it keeps grows with the load in the same step; what is spare grows only if the load has stayed
// low for spareTime. The sizes of the pools, and the CPUs of their containers, do not depend on
// it: a service finds batch work on spare CPUs, which must therefore yield at once.
func (p *Pools) spare(v *View) {
	last := len(p.state) - 1
	lends := p.cfg.Lend && v.Isolated && !v.Batch.Squeeze && !v.Share.limits() && !v.Pools[last].Empty
	for i := range last {
		s := &p.state[i]
		if !s.known {
			s.recent.reset()
		} else {
			s.recent.add(v.Now, s.fast)
			s.rises.add(v.Now, s.rise)
		}
		may := 0
		if lends && s.known {
			keep := max(p.atPercent(s.recent.max()+s.rises.max(), p.pools[i].High), roundUp(p.pools[i].Min, p.core))
			may = max(0, p.sizeOf(i)-keep) / p.core * p.core
		}
		s.lendSpare(v.Now, may, max(p.core, p.sizeOf(i)*spareGrowth/100))
		p.sizes.Spare[i] = s.spare
	}
}

// lendSpare changes the spare CPUs towards those that may be lent. Where the load rises as soon as
// CPUs are lent, because batch work takes memory bandwidth, say, the pool waits twice as long for
// the next time, so that its load is known without batch work meanwhile.
func (s *poolState) lendSpare(now time.Time, may, least int) {
	switch {
	case may < s.spare:
		if s.spareWait /= 2; now.Sub(s.lentAt) < sideEffect {
			s.spareWait = min(max(4*s.spareWait, 2*spareTime), longestSpareWait)
		}
		s.spare, s.returnedAt = may, now
	case may >= s.spare+least && s.recent.full(now) && now.Sub(s.returnedAt) >= s.spareWait:
		s.spare, s.lentAt = may, now
	}
}

// Idle returns the part of the pools' spare CPUs that the pools themselves do not use.
func (v *View) Idle() workload.MilliCPU {
	sum := workload.MilliCPU(0)
	for i := range v.Pools {
		p := &v.Pools[i]
		sum += max(0, min(workload.MilliCPU(p.Spare)*1000, workload.MilliCPU(p.Size)*1000-p.Usage))
	}
	return sum
}
