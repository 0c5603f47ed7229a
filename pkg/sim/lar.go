package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/decisionlog"
)

// lar sizes exclusive pools by the rules that Meituan published of its Load Auto-Regulator
// (https://tech.meituan.com/2022/08/11/load-auto-regulator.html). A pool in descending priority has A
// CPUs, its containers request R and use U, and its band is from L to H:
//
//  1. The pools together have all CPUs.
//  2. A pool whose load U/A falls below L shrinks to U / ((L+H)/2), and the last pool has the rest.
//  3. A pool whose load rises above H grows to U / ((L+H)/2). The CPUs come from the last pool first,
//     then from the one above it, and so on.
//  4. A is at most R, except for the last pool (RCF = A/R is in (0, 1]).
//
// Not published, and therefore assumed: U is the highest mean of a second in the last minute, and a
// pool shrinks only after the first minute; it decides each second; a pool begins with what its
// containers request; each pool keeps a core. Sizes are whole cores here.
type lar struct {
	pools []larPool // the last is that of batch work
	core  int       // threads of a core
	log   *decisionlog.Log
}

type larPool struct {
	control.PoolConfig
	cpus, most int     // most: rule 4
	seconds    float64 // CPU time used since the last decision
	used       []float64
}

// larWindow is the number of seconds whose highest usage counts.
const larWindow = int(time.Minute / rivalEvery)

func newLAR(s *simulation) *lar {
	l := &lar{core: s.node.machine.ThreadsPerCore(), log: rivalLog(s)}
	for i, p := range s.config.PoolLaw() {
		l.pools = append(l.pools, larPool{PoolConfig: p, cpus: s.config.Pools.List[i].CPUs.Count})
	}
	l.restTo(unpinned(s.node.machine, s.kubelet.instances))
	return l
}

// restTo gives the last pool the CPUs of n that the others leave.
func (l *lar) restTo(n int) {
	last := len(l.pools) - 1
	for i := range last {
		n -= l.pools[i].cpus
	}
	l.pools[last].cpus = n
}

func (l *lar) step(s *simulation, now time.Duration) error {
	for _, c := range s.node.containers {
		if at := s.report.pool(c.pod); at < len(l.pools) {
			l.pools[at].seconds += c.got * s.node.step.Seconds()
		}
	}
	if now%rivalEvery >= s.node.step {
		return nil
	}
	had := make([]int, len(l.pools))
	requests := l.requests(s.kubelet.instances)
	for i := range l.pools {
		p := &l.pools[i]
		had[i] = p.cpus
		p.most = max(l.core, roundUp(requests[i], l.core))
		p.note()
	}
	l.divide()
	for i := range l.pools {
		l.log.Add(s.time(), control.On, resized("pools", "pool "+l.pools[i].Name, "shrink", float64(had[i]), float64(l.pools[i].cpus)))
	}
	l.log.EndResting(s.time())
	if slices.EqualFunc(had, l.pools, func(n int, p larPool) bool { return n == p.cpus }) {
		return nil
	}
	return l.apply(s)
}

// note enters the usage since the last decision.
func (p *larPool) note() {
	if len(p.used) == larWindow {
		p.used = slices.Delete(p.used, 0, 1)
	}
	p.used = append(p.used, p.seconds/rivalEvery.Seconds())
	p.seconds = 0
}

// divide decides the sizes.
func (l *lar) divide() {
	last := len(l.pools) - 1
	for i := range last { // rules 2 and 4
		p := &l.pools[i]
		want := p.cpus
		if load := slices.Max(p.used); len(p.used) == larWindow && load*100 < float64(p.cpus*p.Low) {
			want = min(want, p.target(load, l.core))
		}
		want = max(min(want, p.most), l.core)
		l.pools[last].cpus += p.cpus - want
		p.cpus = want
	}
	for i := range last { // rules 3 and 4
		p := &l.pools[i]
		load := slices.Max(p.used)
		if load*100 <= float64(p.cpus*p.High) {
			continue
		}
		want := min(p.target(load, l.core), p.most)
		for j := last; j > i && p.cpus < want; j-- {
			give := max(0, min(want-p.cpus, l.pools[j].cpus-l.core)) / l.core * l.core
			l.pools[j].cpus -= give
			p.cpus += give
		}
	}
}

// target returns the size that puts the load in the middle of the band.
func (p *larPool) target(load float64, core int) int {
	return roundUp(load*200/float64(p.Low+p.High), core)
}

// roundUp returns the least multiple of core that is no less than cpus.
func roundUp(cpus float64, core int) int {
	return int(math.Ceil(math.Ceil(cpus)/float64(core))) * core
}

// apply gives the pools their sizes, by another configuration of the agent.
func (l *lar) apply(s *simulation) error {
	c := *s.config
	c.Pools.List = slices.Clone(c.Pools.List)
	for i := range len(l.pools) - 1 {
		c.Pools.List[i].CPUs = config.PoolSize(placement.Size{Count: l.pools[i].cpus})
	}
	if _, err := s.agent.Reconfigure(agent.Reload{Config: &c}); err != nil {
		return fmt.Errorf("sizes by LAR's rules: %w", err)
	}
	return nil
}

// requests returns the CPUs that the running containers of each pool request.
func (l *lar) requests(all []*instance) []float64 {
	sums := make([]float64, len(l.pools))
	for _, in := range all {
		at := slices.IndexFunc(l.pools, func(p larPool) bool { return p.Name == in.pool })
		if in.running != nil && !in.class.Pinned() && at >= 0 {
			sums[at] += float64(in.Requests.CPU)
		}
	}
	return sums
}
