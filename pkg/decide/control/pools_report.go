package control

import (
	"fmt"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// decisions returns the decisions of the step. The pools had divided CPUs together before it, and
// squeezed is set if the last pool is or was squeezed.
func (p *Pools) decisions(v *View, divided int, squeezed bool) []Decision {
	var decisions []Decision
	for i := range p.state {
		s := &p.state[i]
		if size := p.sizeOf(i); size != s.had {
			d := p.decision(v, i, "grow", humanize.Count(s.had, "CPU"), humanize.Count(size, "CPU"), p.why(v, i, divided))
			if squeezed && i >= len(p.state)-2 { // the last two pools are the ones that a squeeze concerns
				d.Why = p.whySqueezed(&v.Batch, &v.Share)
			}
			if d.Moves = "size"; size < s.had {
				d.Action = "shrink"
			}
			decisions = append(decisions, d)
		}
		if s.spare != s.spared {
			decisions = append(decisions, p.reportSpare(v, i))
		}
		if s.outage.observe(v.Now, s.lost) {
			d := p.decision(v, i, "stale", "", "", p.whyLost(i))
			if !s.outage.on {
				d = p.decision(v, i, "fresh", "", "", "its load is known again: "+cpus(s.fast)+" CPUs")
			}
			decisions = append(decisions, d)
		}
		if i == len(p.state)-1 {
			break
		}
		decisions = p.reportShort(v, i, decisions)
		decisions = p.reportSmall(v, i, decisions)
	}
	return decisions
}

func (p *Pools) whyLost(i int) string {
	if i == len(p.state)-1 {
		return "its load is not known any more: pools over their band leave it its minimum"
	}
	return "its load is not known any more: it shrinks no further, and has what its containers request, " + cpus(p.state[i].request.max()) + " CPUs, as far as the batch pool can give"
}

// reportShort reports a pool as short once, and the end of the shortage when it has been over for
// a while.
func (p *Pools) reportShort(v *View, i int, decisions []Decision) []Decision {
	s, missing := &p.state[i], p.sizes.Short[i]
	switch {
	case missing > 0:
		if s.shortAt = v.Now; !s.reportedShort {
			s.reportedShort = true
			reason := "the pools below have nothing left to give"
			if s.size >= s.cap {
				reason = "it may have no more (its requests, or what it was found to use)"
			}
			decisions = append(decisions, p.decision(v, i, "short", "", humanize.Count(missing, "CPU")+" short",
				fmt.Sprintf("its load of %s CPUs is %s of %d, over %d%%, and %s", cpus(s.fast), share(s.fast, s.capacity()), s.size, p.pools[i].High, reason)))
		}
	case s.reportedShort && v.Now.Sub(s.shortAt) >= p.cfg.ShrinkPause:
		s.reportedShort = false
		decisions = append(decisions, p.decision(v, i, "enough", "", "", fmt.Sprintf("its load of %s CPUs is %s of %d", cpus(s.fast), share(s.fast, s.capacity()), s.size)))
	}
	return decisions
}

// reportSmall marks a pool whose load is so low that no size in whole cores has it in the band,
// because load/high and load/low are less than a core apart.
func (p *Pools) reportSmall(v *View, i int, decisions []Decision) []Decision {
	s, cfg := &p.state[i], &p.pools[i]
	bound := workload.MilliCPU(p.core * 10 * cfg.Low * cfg.High / max(cfg.High-cfg.Low, 1))
	small := p.sizes.Small[i]
	switch {
	case !s.known || small && s.fast*100 > bound*smallPoolHold:
		small = false
	case s.slow.full(v.Now) && s.lowest < bound:
		small = true
	}
	if small != p.sizes.Small[i] {
		p.sizes.Small[i] = small
		d := p.decision(v, i, "small", "", "", fmt.Sprintf("its load of at most %s CPUs is less than the %s that it takes to be within %d%% to %d%% of whole cores: it should share with the batch pool", cpus(s.lowest), cpus(bound), cfg.Low, cfg.High))
		if !small {
			d.Action, d.Why = "large", "its load of "+cpus(s.fast)+" CPUs is enough for a pool of its own"
			if !s.known {
				d.Why = "its load is not known any more"
			}
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// reportSpare returns the decision that changed a pool's spare CPUs.
func (p *Pools) reportSpare(v *View, i int) Decision {
	s, cfg := &p.state[i], &p.pools[i]
	d := p.decision(v, i, "lend", humanize.Count(s.spared, "spare CPU"), humanize.Count(s.spare, "spare CPU"), "")
	d.Moves = "spare"
	switch {
	case s.spare > s.spared:
		d.Why = fmt.Sprintf("for %s its load was at most %s CPUs, %d%% of %d: batch work may use the others until the load rises", spareTime, cpus(s.recent.max()), cfg.High, p.sizeOf(i)-s.spare)
		return d
	case v.Pools[len(v.Pools)-1].Empty:
		d.Why = "there is no batch work"
	case v.Batch.Squeeze:
		d.Why = v.Batch.Why
	case v.Share.limits():
		d.Why = v.Share.Why
	case !v.Isolated:
		d.Why = "not all batch work yields at once: " + v.Stays
	case !s.known:
		d.Why = "its load is not known"
	default:
		d.Why = fmt.Sprintf("its load of %s CPUs needs %d of its %d CPUs", cpus(s.fast), p.sizeOf(i)-s.spare, p.sizeOf(i))
	}
	d.Action = "return"
	return d
}

func (p *Pools) decision(v *View, i int, action, from, to, why string) Decision {
	s := &p.state[i]
	d := Decision{Controller: "pools", Object: "pool " + p.pools[i].Name, Action: action, From: from, To: to, Why: why}
	d.Facts = []Fact{
		{"size_cpus", float64(p.sizeOf(i))}, cpuFact("request_cpus", v.Pools[i].Request), {"minimum_cpus", float64(s.minimum)},
		{"floor_cpus", float64(s.floor)}, {"cap_cpus", float64(s.cap)},
	}
	if s.expected > 0 {
		d.Facts = append(d.Facts, cpuFact("forecast_cpus", v.Forecasts.pool(i)))
	}
	if s.known {
		d.Facts = append(d.Facts, cpuFact("load_cpus", s.fast), cpuFact("slow_load_cpus", s.lowest), cpuFact("usage_cpus", v.Pools[i].Usage), Fact{"pressure", v.Pools[i].Pressure})
	}
	return d
}

// why returns the reason for the change of the pool's size.
func (p *Pools) why(v *View, i, divided int) string {
	s, cfg := &p.state[i], &p.pools[i]
	if s.size == s.before || (s.size > s.before) != (p.sizeOf(i) > s.had) {
		return p.whyLent(v, i)
	}
	was := workload.MilliCPU(s.before) * 1000
	switch s.cause {
	case causeBegin:
		return fmt.Sprintf("the sizes found don't divide the %d CPUs: it begins with what its containers request, or its load needs", p.total)
	case causeLoad:
		return fmt.Sprintf("its load of %s CPUs is %s of %d, over %d%%", cpus(s.fast), share(s.fast, was), s.before, cfg.High)
	case causeFloor:
		return fmt.Sprintf("its floor is %d: its minimum, its largest CPU limit, or its least part of its requests", s.floor)
	case causeForecast:
		return p.whyForecast(v, i)
	case causeStale:
		return "its load is not known: it has what its containers request, " + cpus(s.request.max()) + " CPUs"
	case causeCalm:
		return fmt.Sprintf("for %s its load was at most %s CPUs, %s of %d, under %d%%", p.cfg.SlowWindow, cpus(s.lowest), share(s.lowest, was), s.before, cfg.Low)
	case causeSeen:
		return fmt.Sprintf("its load of %s CPUs shows now, and is %s of %d", cpus(s.fast), share(s.fast, was), s.before)
	case causeCap:
		return fmt.Sprintf("it may have %d: its requests of %s CPUs, its minimum, or what it was found to use", s.cap, cpus(s.request.max()))
	case causeTaken:
		taker := &p.state[s.taker]
		return fmt.Sprintf("pool %s needs them: %s", p.pools[s.taker].Name, p.need(v, taker, s.taker))
	}
	if p.total != divided {
		return fmt.Sprintf("the pools divide %d CPUs now, %d before", p.total, divided)
	}
	return "the pools above leave them"
}

// whyForecast returns the forecast that enlarged a pool.
func (p *Pools) whyForecast(v *View, i int) string {
	peak := v.Forecasts.pool(i)
	return fmt.Sprintf("its load is expected to reach %s CPUs in the next %s, %d%% of %d", cpus(peak), soon, p.pools[i].High, p.state[i].expected)
}

func (p *Pools) need(v *View, s *poolState, i int) string {
	switch s.cause {
	case causeForecast:
		return p.whyForecast(v, i)
	case causeStale:
		return "its load is not known"
	case causeFloor:
		return fmt.Sprintf("its floor is %d", s.floor)
	}
	return fmt.Sprintf("its load of %s CPUs was over %d%% of %d", cpus(s.fast), p.pools[i].High, s.before)
}
