package colocation

import (
	"errors"
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Inputs are the controllers' inputs besides the view.
type Inputs struct {
	*control.Config
	Authority
	Short     []control.Shortage     // shortages of CPUs, by pool
	Given     workload.MilliCPU      // CPU that batch work may use now; 0 if unknown
	Owed      int64                  // bytes that are reserved for starting containers and not used yet
	Resizing  map[string]bool        // UIDs of the pods that the kubelet is resizing, whose quotas must not change
	Separated []placement.Separation // pods that are kept apart
	Evicts    bool                   // evictions can be carried out

	NestedQuotas bool // cgroup v1: no quota may exceed that of a parent cgroup
}

// Desired is what the controllers want after a step. The engine carries it out in the order of
// the fields. It is valid until the next step.
type Desired struct {
	Decisions []Decided
	Disturbed []control.Disturbance
	Cache     control.CacheShare // share of batch work's RDT class; the zero value is the whole share

	Memory     *control.MemoryDesired // nil if the controller is off
	ActsMemory bool                   // whether Memory is carried out
	Reclaim    []control.Reclaim      // reclaim requested by rules

	Refusal    control.Refusal // refusal of new batch work after an eviction
	RuleRefuse string          // why a rule refuses new batch work; "" if none does
	Evict      *control.Victim // pod to evict; nil for none
}

// Decided holds the decisions of a controller with its mode.
type Decided struct {
	Mode      control.Mode
	Decisions []control.Decision
}

var (
	errPreview   = errors.New("nothing is changed here now, evictions are only reported (mode: preview)")
	errNoEvictor = errors.New("this plugin runs without an evictor")
)

// Step steps the controllers that depend on the division of the CPUs. The quotas that they want
// replace those of containers in want.
func (c *Controllers) Step(v *NodeView, in *Inputs, want CPUDesired) *Desired {
	d := &Desired{}
	for i := range v.Pods { // the inventory may be new
		p := &v.Pods[i]
		_, p.Squeezed = want.Culprits[p.UID]
		p.Separated = slices.ContainsFunc(in.Separated, func(s placement.Separation) bool { return s.Pod == p.UID && !s.CPUs.IsEmpty() })
	}
	clear(want.Containers)
	clear(want.Culprits)
	victims, decided := c.Interference.Step(&v.View)
	d.Disturbed = victims
	d.decide(in.Of(in.Interference.Mode), decided)
	if in.Decides(in.Cache.Mode) {
		share, decided := c.Cache.Step(&v.View)
		c.Cache.Tell(&v.View, d.Disturbed)
		d.decide(in.Of(in.Cache.Mode), decided)
		if in.Acts(in.Cache.Mode) {
			d.Cache = share
		}
	}
	c.stepLimits(v, in, want, d)
	requests := c.stepMemory(v, in, d)
	requests = c.stepRules(v, in, want, d, requests)
	c.stepEviction(v, in, d, requests)
	return d
}

func (d *Desired) decide(mode control.Mode, decided []control.Decision) {
	if len(decided) > 0 {
		d.Decisions = append(d.Decisions, Decided{mode, decided})
	}
}

// stepLimits raises and lowers the quotas of services.
func (c *Controllers) stepLimits(v *NodeView, in *Inputs, want CPUDesired, d *Desired) {
	if mode := in.Burst.Mode; in.Decides(mode) {
		quotas, decided := c.Burst.Step(&v.View)
		d.decide(in.Of(mode), decided)
		for _, q := range quotas {
			in.wantQuota(v, want, in.Acts(mode), q)
		}
	}
	v.Demoted = 0
	for i := range v.Pools {
		v.Pools[i].Demoted = 0
	}
	if mode := in.Demotion.Mode; in.Decides(mode) {
		quotas, decided := c.Demotion.Step(&v.View, in.Short)
		d.decide(in.Of(mode), decided)
		for _, q := range quotas {
			in.wantQuota(v, want, in.Acts(mode), q)
		}
		if in.Acts(mode) {
			v.Demoted = c.Demotion.Taken(&v.View)
		}
	}
	c.stepCulprit(v, in, want, d)
	c.stepBounds(v, in, d)
}

// stepCulprit limits the pods that make services wait.
func (c *Controllers) stepCulprit(v *NodeView, in *Inputs, want CPUDesired, d *Desired) {
	v.WatchClosely, v.WatchCycles = "", false
	mode := in.Culprit.Mode
	if !in.Decides(mode) {
		return
	}
	b := Budget{Now: v.Now, Resizing: in.Resizing, NestedQuotas: in.NestedQuotas}
	limits, decided := c.Culprit.Step(&v.View, d.Disturbed, in.Acts(mode), func(pod int) bool {
		first := &v.Members[v.Pods[pod].First]
		busy := c.Separation.Trying() && !v.Pods[pod].Squeezed
		return first.PodPath != "" && !first.SharedPodCgroup && !busy && mayLimit(v, &b, pod)
	})
	d.decide(in.Of(mode), decided)
	for _, u := range c.Culprit.Unavoidable() {
		c.Interference.Learn(u)
	}
	v.WatchClosely, v.WatchCycles = c.Culprit.Closely(), c.Culprit.Cycles()
	for _, l := range limits {
		want.Culprits[v.Pods[l.Pod].UID] = qos.Loop{Quota: Quota(l.CPU), Why: l.Why}
	}
	v.Demoted += c.Culprit.Taken(&v.View)
}

// stepBounds decides which part of its budget batch work keeps in the next step.
func (c *Controllers) stepBounds(v *NodeView, in *Inputs, d *Desired) {
	v.Share = control.BatchShare{}
	mode := in.BoundsMode(in.Config, v.rules.ExclusivePools)
	if !in.Decides(mode) {
		return
	}
	share, decided := c.Bounds.Step(&v.View, d.Disturbed, in.Acts(mode), c.Culprit.Trying() || c.Separation.Trying())
	d.decide(in.Of(mode), decided)
	if in.Acts(mode) {
		v.Share = share
	}
	if v.WatchClosely == "" {
		v.WatchClosely = c.Bounds.Closely()
	}
}

// wantQuota adds the quota that a controller wants for a container, if the controller acts.
func (in *Inputs) wantQuota(v *NodeView, want CPUDesired, acts bool, q control.Quota) {
	if c := v.Container(q.ID); acts && c != nil && !in.Resizing[v.Pods[c.Pod].UID] {
		want.WantQuota(q.ID, qos.Loop{Quota: Quota(q.CPU), Why: q.Why})
	}
}

// stepMemory decides how much memory batch work may hold.
func (c *Controllers) stepMemory(v *NodeView, in *Inputs, d *Desired) (requests []control.EvictRequest) {
	v.Granted = in.Owed
	v.NoBatchLimit = len(v.BatchCgroups.Limited) == 0 && !v.HasBatch()
	mode := in.Memory.Mode
	v.MemoryClosely = false
	if !in.Decides(mode) {
		return nil
	}
	desired, decided := c.Memory.Step(&v.View)
	d.decide(in.Of(mode), decided)
	d.Memory, d.ActsMemory, v.MemoryClosely = &desired, in.Acts(mode), desired.Closely
	if d.ActsMemory && desired.Evict != nil {
		requests = append(requests, *desired.Evict)
	}
	return requests
}

// stepRules applies the configured rules.
func (c *Controllers) stepRules(v *NodeView, in *Inputs, want CPUDesired, d *Desired, requests []control.EvictRequest) []control.EvictRequest {
	_, previewed := c.PreviewRules.Step(&v.View)
	d.decide(control.Preview, previewed)
	desired, decided := c.Rules.Step(&v.View)
	mode := in.Of(control.On)
	d.decide(mode, decided)
	if mode != control.On {
		return requests
	}
	d.RuleRefuse, d.Reclaim = desired.Refuse, desired.Reclaim
	for _, t := range desired.Throttles {
		in.wantQuota(v, want, true, control.Quota{ID: t.ID, CPU: t.Limit, Why: "a rule of the configuration"})
	}
	return append(requests, desired.Evict...)
}

// stepEviction decides whether a pod is evicted. It evicts at most one per step.
func (c *Controllers) stepEviction(v *NodeView, in *Inputs, d *Desired, requests []control.EvictRequest) {
	own := in.Eviction.Mode
	if !in.Decides(own) {
		return
	}
	desired, decided := c.Eviction.Step(&v.View, in.Given, requests)
	d.decide(in.Of(own), decided)
	victim := desired.Evict
	if !in.Acts(own) {
		if victim != nil {
			c.Eviction.Done(victim.UID, victim.By, errPreview, v.Now)
		}
		return
	}
	d.Refusal = desired.Refuse
	d.Refusal.Pods = slices.Clone(desired.Refuse.Pods)
	if victim != nil && !in.Evicts {
		c.Eviction.Done(victim.UID, victim.By, errNoEvictor, v.Now)
		victim = nil
	}
	d.Evict = victim
}
