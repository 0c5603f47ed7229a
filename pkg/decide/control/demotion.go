package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// leastQuota is the lowest quota of a demoted container: 10 ms in each 100 ms, enough to
// release a lock that it holds.
const leastQuota workload.MilliCPU = 100

// atQuota is the percentage of its quota from which a container counts as limited by it.
const atQuota = 90

// Shortage is a pool that is over its band and finds no CPUs to take.
type Shortage struct {
	Pool    int               // index in View.Pools
	Missing workload.MilliCPU // the CPU that the pool lacks, above 0
	// Apart is set if the pool has CPUs of its own. Demoting containers of a lower pool would
	// not help it then; only its own containers can be demoted.
	Apart bool
	// Crowded is set if the pools share their CPUs. Batch work is not demoted then, since the
	// budget bounds it.
	Crowded bool
}

// Demotion lowers CPU limits where a pool is short and no CPUs are left to take. It starts in
// the lowest pool with the container furthest above its request, and never goes below a
// request. It demotes BE pods and others that permit it (allow.sluice.dev: demote).
type Demotion struct {
	cfg DemotionConfig

	states     perID[demoted]
	calm       int // steps without a shortage
	patience   patience
	interval   time.Duration
	candidates []candidate
	quotas     []Quota
}

type demoted struct {
	quota workload.MilliCPU // 0 if not demoted
	used  workload.MilliCPU // usage before the first cut
	from  workload.MilliCPU // usage or limit before the first cut
	at    time.Time         // time of the measurement behind the last cut
	why   string
}

type candidate struct {
	index  int // index in View.Containers
	pool   int
	beyond workload.MilliCPU // usage above its floor
	id     string
}

// NewDemotion returns the controller of demotions. Step must be called once per interval.
func NewDemotion(cfg DemotionConfig, interval time.Duration) *Demotion {
	return &Demotion{cfg: cfg, interval: interval}
}

// Check returns the values that are out of range.
func (c *DemotionConfig) Check() []Problem {
	p := checkPercent(nil, "stepPercent", c.StepPercent, 1, 90)
	return checkCount(p, "calmAfter", c.CalmAfter, 1, 3600)
}

// Step returns the quotas of demoted containers, for the pools that are short now. The list is
// valid until the next step.
func (d *Demotion) Step(v *View, short []Shortage) ([]Quota, []Decision) {
	d.states.begin()
	decisions := d.endForbidden(v)
	d.calm++
	if len(short) > 0 {
		d.calm = 0
		d.patience.trouble()
		d.list(v)
	}
	for _, s := range short {
		decisions = d.cut(v, s, decisions)
	}
	if d.calm >= d.cfg.CalmAfter*d.patience.factor() {
		decisions = d.restore(v, decisions)
		if len(d.states.of) == 0 && d.calm >= d.cfg.CalmAfter<<mostDoubled {
			d.patience = patience{}
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

// Taken returns the additional CPU that demoted services would use without their quotas. It
// counts those that still use up their quota, or that a lower limit of their pod keeps from it.
func (d *Demotion) Taken(v *View) (sum workload.MilliCPU) {
	for i := range v.Containers {
		c := &v.Containers[i]
		if s := d.states.find(c.ID); s != nil && c.Class != workload.BE && (v.Pods[c.Pod].Squeezed || c.CPU.Usage >= perCent(s.quota, atQuota)) {
			sum += max(0, s.used-s.quota)
		}
	}
	return sum
}

// mayDemote reports whether the container may be demoted.
func mayDemote(v *View, c *Container) bool {
	if c.Pool < 0 || c.Class.Pinned() || c.Class == workload.System {
		return false
	}
	return permits(v, c, workload.Demote)
}

// endForbidden ends the demotions that are no longer permitted.
func (d *Demotion) endForbidden(v *View) (decisions []Decision) {
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

// list sorts the containers that may be demoted: the lowest pool first, then the one furthest
// above its request.
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

// cut lowers quotas until they free what the pool lacks.
func (d *Demotion) cut(v *View, short Shortage, decisions []Decision) []Decision {
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
		if s != nil && c.CPU.At.Equal(s.at) { // the effect of the last cut is not measured yet
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

// restore raises every demoted container's quota by one step.
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
		from, to := distinctCPUs(s.quota, quota)
		decisions = append(decisions, Decision{
			Controller: "demotion", Object: c.Ref, Action: "restore", From: from, To: to, Why: s.why, Moves: "quota",
			Facts: []Fact{{"calm_steps", float64(d.calm)}},
		})
		s.quota = quota
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
