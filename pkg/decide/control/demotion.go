package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// leastQuota is below what no container is demoted: 10 ms in each 100 ms, so that
// what holds a lock can let it go.
const leastQuota workload.MilliCPU = 100

// atQuota is the part of its quota in percent from which a container is held back by it.
const atQuota = 90

// Shortage is a pool that is over its band and finds no CPUs to take.
type Shortage struct {
	Pool int // in View.Pools
	// Missing is what it lacks; 0 or less: CPUs can be taken again, and what was
	// demoted for it is given back at once.
	Missing workload.MilliCPU
	// Apart: the pool has CPUs of its own, so that a container of a lower pool has no
	// time that it could give; only those of the pool itself do.
	Apart bool
	// Crowded: the pools share their CPUs. Batch work, which its budget bounds, is left out.
	Crowded bool
}

// Demotion takes CPU time by quota where a pool is short and no CPUs are left to take:
// in the lowest pool first, there from the container furthest above its request, and
// never what it requested. It touches BE, and others that allow it
// (allow.sluice.dev: demote).
type Demotion struct {
	cfg DemotionConfig

	states     kept[demoted]
	calm       int // steps without a shortage
	patience   patience
	interval   time.Duration
	candidates []candidate
	quotas     []Quota
}

type demoted struct {
	quota workload.MilliCPU // 0: not demoted
	used  workload.MilliCPU // before
	from  workload.MilliCPU // what it used, or its limit, before
	at    time.Time         // of the look that the last cut was made from
	why   string
}

type candidate struct {
	index  int // in View.Containers
	pool   int
	beyond workload.MilliCPU // usage above its floor
	id     string
}

// NewDemotion is the demotion of containers, stepped each interval.
func NewDemotion(cfg DemotionConfig, interval time.Duration) *Demotion {
	return &Demotion{cfg: cfg, interval: interval}
}

// Check finds what is out of range.
func (c *DemotionConfig) Check() []Problem {
	p := checkPercent(nil, "stepPercent", c.StepPercent, 1, 90)
	return checkCount(p, "calmAfter", c.CalmAfter, 1, 3600)
}

// Step answers with the quotas of what is demoted, for the pools that are short now.
// The list is lent until the next step.
func (d *Demotion) Step(v *View, short []Shortage) ([]Quota, []Decision) {
	d.states.begin()
	decisions := d.keep(v)
	d.calm++
	listed := false
	for _, s := range short {
		if s.Missing > 0 {
			d.calm = 0
			d.patience.trouble()
			if !listed {
				d.list(v)
				listed = true
			}
			decisions = d.take(v, s, decisions)
		}
	}
	switch {
	case d.calm >= d.cfg.CalmAfter*d.patience.factor():
		decisions = d.restore(v, decisions)
		if len(d.states.of) == 0 && d.calm >= d.cfg.CalmAfter<<mostDoubled {
			d.patience = patience{}
		}
	case d.calm > 0:
		for _, s := range short {
			decisions = d.release(v, s.Pool, decisions)
		}
	}
	d.quotas = d.quotas[:0]
	for i := range v.Containers {
		id := v.Containers[i].ID
		if s := d.states.find(id); s != nil {
			d.quotas = append(d.quotas, Quota{id, s.quota, s.why})
		}
	}
	d.states.end()
	return d.quotas, decisions
}

// Taken is the CPU time that demoted services would use besides: those that still use
// what their quota leaves them.
func (d *Demotion) Taken(v *View) (sum workload.MilliCPU) {
	for i := range v.Containers {
		c := &v.Containers[i]
		if s := d.states.find(c.ID); s != nil && c.Class != workload.BE && c.CPU.Usage >= perCent(s.quota, atQuota) {
			sum += max(0, s.used-s.quota)
		}
	}
	return sum
}

// mayDemote reports whether a container's CPU time may be taken.
func mayDemote(v *View, c *Container) bool {
	if c.Pool < 0 || c.Class.Pinned() || c.Class == workload.System {
		return false
	}
	return permits(v, c, workload.Demote)
}

// keep gives back what may not be held any more.
func (d *Demotion) keep(v *View) (decisions []Decision) {
	for i := range v.Containers {
		c := &v.Containers[i]
		s := d.states.find(c.ID)
		switch {
		case s == nil:
		case !mayDemote(v, c):
			decisions = d.free(c, s, decisions, "it may not be demoted any more")
		case s.quota < c.Request:
			decisions = d.free(c, s, decisions, "its request has become larger than its quota")
		case c.Limit > 0 && s.quota >= c.Limit:
			decisions = d.free(c, s, decisions, "its limit has become smaller than its quota")
		}
	}
	return decisions
}

// list sorts what can be demoted: the lowest pool first, then the heaviest beyond its
// request.
func (d *Demotion) list(v *View) {
	d.candidates = d.candidates[:0]
	for i := range v.Containers {
		c := &v.Containers[i]
		if mayDemote(v, c) && uses(v, c, d.interval) {
			d.candidates = append(d.candidates, candidate{i, c.Pool, c.CPU.Usage - max(c.Request, leastQuota), c.ID})
		}
	}
	slices.SortFunc(d.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.pool, a.pool), cmp.Compare(b.beyond, a.beyond), cmp.Compare(a.id, b.id))
	})
}

// take cuts until what is missing is covered by what the cuts will free.
func (d *Demotion) take(v *View, short Shortage, decisions []Decision) []Decision {
	missing := short.Missing
	for _, one := range d.candidates {
		if missing <= 0 || one.pool < short.Pool {
			break
		}
		c := &v.Containers[one.index]
		if short.Apart && one.pool > short.Pool || short.Crowded && c.Class == workload.BE {
			continue
		}
		usage, floor := c.CPU.Usage, max(c.Request, leastQuota)
		s := d.states.find(c.ID)
		if s != nil && c.CPU.At.Equal(s.at) { // what the last cut frees is not seen yet
			missing -= max(0, usage-s.quota)
			continue
		}
		has := usage
		if s != nil {
			has = min(has, s.quota)
		}
		if c.Limit > 0 {
			has = min(has, c.Limit)
		}
		quota := max(floor, perCent(has, 100-d.cfg.StepPercent))
		if quota >= has {
			continue
		}
		from := inCPUs(has) + " CPUs in use"
		if s == nil {
			s = d.states.at(c.ID)
			s.from, s.used = usage, usage
			if c.Limit > 0 {
				s.from = c.Limit
			}
		} else {
			from = inCPUs(s.quota) + " CPUs"
		}
		s.quota, s.at = quota, c.CPU.At
		missing -= usage - quota
		s.why = fmt.Sprintf("pool %s lacks %s CPUs and finds none to take; this container of pool %s uses %s, its request is %s",
			v.Pools[short.Pool].Name, inCPUs(short.Missing), v.Pools[c.Pool].Name, inCPUs(usage), inCPUs(c.Request))
		decisions = append(decisions, Decision{
			Controller: "demotion", Object: c.Ref, Action: "demote", From: from, To: inCPUs(quota) + " CPUs", Cause: v.Pools[short.Pool].Name, Why: s.why, Moves: "quota",
			Facts: []Fact{{"missing_cpus", float64(short.Missing) / 1000}, {"usage_cpus", float64(usage) / 1000}, {"request_cpus", float64(c.Request) / 1000}},
		})
	}
	return decisions
}

// restore gives back a step to each.
func (d *Demotion) restore(v *View, decisions []Decision) []Decision {
	for i := range v.Containers {
		c := &v.Containers[i]
		s := d.states.find(c.ID)
		if s == nil {
			continue
		}
		d.patience.tried = true
		quota := max(s.quota+1, perCent(s.quota, 100+d.cfg.StepPercent))
		if quota >= s.from {
			decisions = d.free(c, s, decisions, fmt.Sprintf("no pool was short for %d steps", d.calm))
			continue
		}
		s.why = fmt.Sprintf("on its way back to %s CPUs: no pool was short for %d steps", inCPUs(s.from), d.calm)
		from, to := cpusApart(s.quota, quota)
		decisions = append(decisions, Decision{
			Controller: "demotion", Object: c.Ref, Action: "restore", From: from, To: to, Why: s.why, Moves: "quota",
			Facts: []Fact{{"calm_steps", float64(d.calm)}},
		})
		s.quota = quota
	}
	return decisions
}

// release gives all back that the pool's shortage took.
func (d *Demotion) release(v *View, pool int, decisions []Decision) []Decision {
	for i := range v.Containers {
		c := &v.Containers[i]
		if s := d.states.find(c.ID); s != nil && c.Pool >= pool {
			decisions = d.free(c, s, decisions, "pool "+v.Pools[pool].Name+" has found CPUs to take")
		}
	}
	return decisions
}

func (d *Demotion) free(c *Container, s *demoted, decisions []Decision, why string) []Decision {
	to := "no quota"
	if c.Limit > 0 {
		to = inCPUs(c.Limit) + " CPUs, its limit"
	}
	from := s.quota
	d.states.drop(c.ID)
	return append(decisions, Decision{
		Controller: "demotion", Object: c.Ref, Action: "restore", From: inCPUs(from) + " CPUs", To: to, Why: why, Moves: "quota",
		Facts: []Fact{{"quota_cpus", float64(from) / 1000}},
	})
}
