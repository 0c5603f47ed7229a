package controlloop

import (
	"maps"
	"math"
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Status is the loop's part of the status; nil without a loop. It copies the controllers'
// results, which they reuse at the next step.
func (l *Loop) Status() *status.Loop {
	if l.Failures == nil && l.Clock == nil {
		return nil
	}
	cfg := &l.Config.Control
	s := &status.Loop{
		Mode: l.Authority().Of(""), Problem: l.failed, MeasuredAt: l.View.Now, Interval: cfg.Interval, StateDir: l.StateDir,
		Node:   nodeUsage(&l.View.View),
		Batch:  l.BatchStatus(),
		Memory: l.Memory.Status(),
		Offer:  l.offer, Advice: slices.Clone(l.advice),
		Refusal:          l.refusalStatus(),
		Evictions:        l.evictionStatus(),
		HostApplications: l.hostStatus(),
		Decisions:        l.Decisions.Recent(),
		Counts:           l.Decisions.Counts(),

		DroppedAuditEntries: l.Decisions.Dropped(),
	}
	if l.begun {
		s.Problem = ""
		s.Egress = l.egressStatus()
		s.Benefit = l.Controllers.Benefit.Report(l.View.Now)
		s.Notices = l.noticeStatus()
		if l.learns() {
			s.Forecasts = l.Controllers.Prediction.Report(&l.View.View)
		}
	}
	s.Offer.FreeCPUs = slices.Clone(l.offer.FreeCPUs)
	s.Disturbed = slices.Clone(l.disturbed)
	for i := range s.Disturbed {
		d := &s.Disturbed[i]
		d.Suspects, d.Bounds = slices.Clone(d.Suspects), slices.Clone(d.Bounds) // and Objective is new in each step
	}
	s.Controllers = l.ControllerStatus()
	if l.Failures != nil {
		s.Failures = l.Failures()
	}
	return s
}

func (l *Loop) evictionStatus() status.Evictions {
	s := status.Evictions{By: l.Config.Control.Eviction.By}
	if l.begun {
		n := l.Controllers.Eviction.Counts()
		s.Evicted, s.Failed, s.Refused, s.Reported = n.Evicted, n.Failed, n.Refused, n.Reported
	}
	if l.Now().Before(l.refusal.Until) {
		s.CoolDownEndsAt, s.CoolDownWhy = l.refusal.Until, l.refusal.Why
	}
	if l.EvictorProblem != nil {
		s.Problem = l.EvictorProblem()
	}
	return s
}

// ControllerStatus lists the controllers by the names that their decisions have.
func (l *Loop) ControllerStatus() []status.Controller {
	may := l.Authority()
	cfg := &l.Config.Control
	apart := l.Config.Pools.Mode == config.Exclusive
	steps := func(does bool, own control.Mode) control.Mode {
		if !does {
			return control.Off
		}
		return may.Of(own)
	}
	all := []status.Controller{
		{Name: "windows", Mode: may.Of("")},
		{Name: "notices", Mode: steps(cfg.Notices.Within > 0, "")},
		{Name: "pools", Mode: steps(apart, cfg.Pools.Mode)},
		{Name: "batch", Mode: steps(!apart, cfg.Batch.Mode)},
		{Name: "interference", Mode: may.Of(cfg.Interference.Mode)},
		{Name: "cache", Mode: may.Of(cfg.Cache.Mode), Note: l.cacheNote()},
		{Name: "burst", Mode: may.Of(cfg.Burst.Mode)},
		{Name: "demotion", Mode: may.Of(cfg.Demotion.Mode)},
		{Name: "culprit", Mode: may.Of(cfg.Culprit.Mode)},
		{Name: "noisy", Mode: may.Of(cfg.Noisy.Mode)},
		{Name: "slo", Mode: may.BoundsMode(cfg, apart)},
		{Name: "egress", Mode: steps(l.Shaper != nil, cfg.Egress.Mode)},
		{Name: "memory", Mode: may.Of(cfg.Memory.Mode)},
		{Name: "rules", Mode: steps(len(cfg.Rules) > 0, control.On)},
		{Name: "eviction", Mode: may.Of(cfg.Eviction.Mode)},
	}
	for i := range all {
		if d, ok := l.Decisions.Last(all[i].Name); ok {
			all[i].Last = &d
		}
	}
	return all
}

// cacheNote explains why the cache controller can't decide; "" if it can.
func (l *Loop) cacheNote() string {
	if !l.begun || !l.Authority().Decides(l.Config.Control.Cache.Mode) {
		return ""
	}
	return l.Controllers.Cache.Blind()
}

// BatchStatus reports what batch work may use, and the mechanisms that bound it.
func (l *Loop) BatchStatus() status.Batch {
	may := l.Authority()
	state, budget := &l.View.Batch, &l.budget
	s := status.Batch{
		State: batchWord(state), Why: state.Why, KeptPercent: state.Percent,
		Switch:    status.Switch{State: l.batchSwitch.To, Evict: l.batchSwitch.Evict, EndsAt: l.batchSwitch.Until, Problem: l.switchProblem},
		Mechanism: status.ByPools,
	}
	if l.View.Share.Why != "" {
		s.BoundsPercent, s.BoundsWhy = l.View.Share.Percent, l.View.Share.Why
	}
	if l.FleetSwitch != nil {
		fleet := l.FleetSwitch()
		s.FleetSwitch = &fleet
	}
	if l.begun {
		s.NextChangeAt = l.Controllers.Windows.Next()
		s.Floor = l.Config.Control.Batch.Floor(&l.View.View)
		if l.Config.Pools.Mode != config.Exclusive {
			s.ThresholdPercent, s.ThresholdWhy = l.Config.Control.Batch.Threshold(&l.View.View)
		}
	}
	for i := range l.View.Containers {
		if c := &l.View.Containers[i]; c.Class == workload.BE {
			s.Used += c.CPU.Usage
			s.Requested += c.Request
		}
	}
	for i := range l.View.HostApplications {
		s.Used += l.View.HostApplications[i].CPU.Usage
	}
	pools := l.View.Pools
	switch {
	case l.Config.Pools.Mode == config.Exclusive && len(pools) > 0:
		s.Known = true
		for i := range pools {
			s.BudgetCPUs += pools[i].Spare
		}
		s.BudgetCPUs += pools[len(pools)-1].Size
		s.Budget, s.Floor = l.apartCPU(), workload.MilliCPU(l.poolSizes.Least)*1000
		s.Unlimited = may.Acts(l.Config.Control.Pools.Mode) && l.poolSizes.CPUs != nil && len(l.poolSizes.CPUs) == 0 // there are too few CPUs to divide
	case l.Config.Pools.Mode != config.Exclusive:
		s.Mechanism = status.Mechanism(l.Settings.Mechanism())
		s.Known = !budget.Hold && budget.Amount > 0
		s.Unlimited, s.Budget = budget.Unlimited, budget.Amount
		if s.Mechanism != status.ByQuota {
			s.BudgetCPUs = budget.CPUs
		}
	}
	s.Cgroups = l.cgroupStatus()
	if l.begun && (may.Acts(l.Config.Control.Memory.Mode) || l.Settings.BoundsByQuota()) && l.View.HasBatch() {
		s.MixedPods = slices.Clone(l.View.BatchCgroups.MixedBy)
	}
	return s
}

func batchWord(b *control.BatchState) status.BatchState {
	switch {
	case b.Evict:
		return status.BatchEvicting
	case b.Squeeze && b.Closed:
		return status.BatchClosed
	case b.Squeeze:
		return status.BatchSqueezed
	case b.Closed:
		return status.BatchNoNew
	}
	return status.BatchOpen
}

// cgroupStatus lists the cgroups whose limits bound batch work now.
func (l *Loop) cgroupStatus() []status.BatchCgroup {
	boxes := map[string]*status.BatchCgroup{}
	box := func(name string) *status.BatchCgroup {
		if boxes[name] == nil {
			boxes[name] = &status.BatchCgroup{Name: name}
		}
		return boxes[name]
	}
	for _, quotas := range []map[string]qos.Loop{l.Settings.InForce().BatchCgroups, l.Settings.InForce().Pods} {
		for name, q := range quotas {
			box(name).Quota = workload.MilliCPU(q.Quota.Milli())
		}
	}
	for name, limit := range l.Memory.Limits() {
		if uid, within := l.batchPodAt(name); uid != "" && !within {
			name = uid
		}
		box(name).MemoryLimitBytes = int64(limit)
	}
	var all []status.BatchCgroup
	for _, name := range slices.Sorted(maps.Keys(boxes)) {
		all = append(all, *boxes[name])
	}
	return all
}

// refusalStatus reports which pods MayStart refuses at present, and why.
func (l *Loop) refusalStatus() *status.Refusal {
	now := l.Now()
	none := l.noBatch(now)
	s := status.Refusal{NewBatch: none.NewBatch, EndsAt: none.Until, Why: none.Why}
	for _, p := range l.refusal.Pods {
		if now.Before(p.Until) {
			s.PodUIDs = append(s.PodUIDs, p.UID)
			if !s.NewBatch && p.Until.After(s.EndsAt) {
				s.EndsAt, s.Why = p.Until, p.Why
			}
		}
	}
	if !s.NewBatch && s.PodUIDs == nil {
		return nil
	}
	return &s
}

// Room is how much CPU new containers can request beside what the pools need; nil, with the
// reason, if it is not known. Pools that overlap have no CPUs of their own, so that what a pool
// has says nothing about its load. Pools whose sizes nobody changes do not stay in their bands,
// and the sizes that the loop would give them in preview are not those that they have.
func (l *Loop) Room() (room *workload.MilliCPU, why string) {
	may, mode := l.Authority(), l.Config.Control.Pools.Mode
	switch {
	case l.Failures == nil && l.Clock == nil:
		return nil, "the plugin runs without a control loop"
	case l.Config.Pools.Mode != config.Exclusive:
		return nil, "the pools share their CPUs (pools.mode: overlap): the offer to batch work says what their load leaves"
	case may.Foreign:
		return nil, "the kubelet's static CPU manager sets the pools' CPUs"
	case !may.Acts(mode):
		return nil, "the pools' sizes do not follow their load: control.pools is in mode " + string(may.Of(mode))
	case l.poolSizes.CPUs == nil:
		return nil, "the pools' load has not been measured yet"
	case len(l.poolSizes.CPUs) == 0:
		return nil, "there is less than a core for each pool, so that they share their CPUs"
	}
	return new(l.poolSizes.Room), ""
}

// PoolLoad is the load of the pool at that index; nil before the first step.
func (l *Loop) PoolLoad(at int) *status.PoolLoad {
	if at >= len(l.View.Pools) || l.View.Now.IsZero() {
		return nil
	}
	p := &l.View.Pools[at]
	s := &status.PoolLoad{MeasuredAt: p.At, Usage: p.Usage, SizeCPUs: p.Size, PressureFraction: p.Pressure}
	if p.Size > 0 {
		s.LoadFraction = float64(p.Usage) / 1000 / float64(p.Size)
	}
	if l.Config.Pools.Mode == config.Exclusive && l.Authority().Decides(l.Config.Control.Pools.Mode) {
		law := l.Config.PoolLaw()[at]
		s.BandLowPercent, s.BandHighPercent = law.Low, law.High
		if sizes := &l.poolSizes; at < len(sizes.CPUs) {
			s.WantedCPUs, s.ShortCPUs, s.Small = sizes.CPUs[at], sizes.Short[at], sizes.Small[at]
		}
	}
	return s
}

// Usage is a container's resource usage; known is false until the loop has measured it.
func (l *Loop) Usage(id string) (u status.Usage, cache observe.Cache, known bool) {
	c := l.View.Container(id)
	if c == nil {
		return u, cache, false
	}
	if l.Authority().RDT && l.Config.RDT.Monitor {
		cache = c.Cache
	}
	if c.CPU.At.IsZero() && c.Container.Memory.At.IsZero() {
		return u, cache, false
	}
	u = status.Usage{
		CPU: status.CPUUsage{MeasuredAt: c.CPU.At, Usage: c.CPU.Usage, Limit: c.Limit, LoopLimit: workload.MilliCPU(l.Settings.InForce().Containers[id].Quota.Milli())},
		Memory: status.MemoryUsage{
			MeasuredAt: c.Container.Memory.At, WorkingSetBytes: c.Container.Memory.WorkingSet, CurrentBytes: c.Container.Memory.Current,
			RequestedBytes: c.Memory, LimitBytes: c.MemoryLimit, OOMKills: int(c.Container.Memory.OOMKills),
		},
		Pressure:       pressureUsage(&c.Pressure),
		WaitingThreads: c.RunDelay.Waiting,
	}
	if c.CPU.Periods > 0 {
		u.CPU.ThrottledFraction = float64(c.CPU.Throttled) / float64(c.CPU.Periods)
	}
	return u, cache, true
}

// Tier is the tier of a BE container's pod; nil until the loop knows the container.
func (l *Loop) Tier(id string) *workload.Tier {
	c := l.View.Container(id)
	if c == nil || c.Class != workload.BE {
		return nil
	}
	return new(l.View.Pods[c.Pod].Tier)
}

func pressureUsage(p *observe.Pressure) status.PressureUsage {
	return status.PressureUsage{MeasuredAt: p.At, CPUFraction: p.CPU, MemoryFraction: p.Memory, IOFraction: p.IO}
}

func nodeUsage(v *control.View) status.NodeUsage {
	n := &v.Node
	return status.NodeUsage{
		CPU:       status.CPUUsage{MeasuredAt: n.CPU.At, Usage: n.CPU.Usage, Limit: v.Allocatable},
		Memory:    status.NodeMemory{MeasuredAt: n.Memory.At, TotalBytes: n.Memory.Total, AvailableBytes: n.Memory.Available, FreeBytes: n.Memory.Free, DirectReclaimPagesPerSecond: n.Memory.Direct},
		Pressure:  pressureUsage(&n.Pressure),
		StealCPUs: n.Steal, LoadAverage: n.Load.Tasks, DiskUsedFraction: n.Disk.Used,
		CPULoadPercent: cpuLoad(v.CPUs),
	}
}

// cpuLoad lists each CPU's load in percent, rounded to a tenth; -1 if it is not known.
func cpuLoad(cpus []observe.CPU) []float64 {
	if len(cpus) == 0 {
		return nil
	}
	load := make([]float64, len(cpus))
	for i, c := range cpus {
		load[i] = -1
		if c.Known {
			load[i] = math.Round(c.Busy*1000) / 10
		}
	}
	return load
}
