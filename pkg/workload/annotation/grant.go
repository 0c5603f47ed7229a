package annotation

import (
	"errors"
	"fmt"

	"github.com/sluice-dev/sluice/pkg/workload"
)

var errNeverBE = errors.New("never is not for class BE, which is evicted first; give a number to say which BE goes before which")

// allow returns why the container may not have what a candidate demands.
func (r *reader) allow(requested *workload.Request, a *candidate) error {
	switch a.key {
	case classKey:
		if requested.Class == workload.System {
			return r.authorize(SystemClass, a)
		}
	case poolKey:
		if err := r.rules.knowsPool(requested.Pool); err != nil {
			return err
		}
		if len(r.rules.PoolSets[requested.Pool]) > 0 && requested.Pool != r.rules.defaultPool(r.req.Class) {
			return r.more(OtherPool, a, "gives its containers keys of its own")
		}
	case cpusetKey:
		if size := requested.CPUSet.Size(); r.req.CPUs > 0 && size != r.req.CPUs {
			return fmt.Errorf("these are %d CPUs, and %d are asked for; name as many, or leave cpus.sluice.dev out", size, r.req.CPUs)
		}
		return r.withinGrant(requested.CPUSet.Size())
	case cpusKey:
		if size := r.req.CPUSet.Size(); size > 0 && size != requested.CPUs {
			return fmt.Errorf("the CPUs chosen are %s, which is %d; leave this key out, or name as many", r.req.CPUSet, size)
		}
		return r.withinGrant(requested.CPUs)
	case numaKey:
		return r.allowNUMA(requested.NUMA, a)
	case exclusiveKey:
		if requested.Exclusive == workload.ExclusiveNode {
			return r.authorize(ExclusiveNUMA, a)
		}
	case memoryNodesKey:
		if a.origin == koordinator && !r.req.Class.Pinned() {
			return errors.New("binds the memory of LSE and LSR only, whose CPUs are near it")
		}
	case allowKey:
		if r.req.Class == workload.BE && requested.Allow.Value != everyAction {
			return errors.New("class BE may be throttled, demoted, reclaimed and evicted, so that it can have what others leave; leave this key out, or take class LS")
		}
	case evictKey:
		if r.req.Class == workload.BE && requested.Evict.Never {
			return errNeverBE
		}
	}
	if a.origin != config && a.key >= placementKeys {
		return r.allowMore(requested, a)
	}
	return nil
}

// allowNUMA refuses a policy that containers which share CPUs can't have. If the key is for the whole pod, it
// is meant for the pod's pins, and is ignored.
func (r *reader) allowNUMA(policy workload.NUMAPolicy, a *candidate) error {
	if policy != workload.NUMASpread || r.req.Class.Pinned() {
		return nil
	}
	a.soft = a.soft || !a.single
	return fmt.Errorf("spread is for LSE and LSR; %s shares CPUs, and can run on one NUMA node: single or prefer", r.req.Class)
}

// allowMore refuses a setting that favours the container over others more than the node's
// configuration does.
func (r *reader) allowMore(requested *workload.Request, a *candidate) error {
	switch a.key {
	case cpuIdentityKey:
		most := 0
		if r.req.Class.Pinned() {
			most = 2
		}
		if g := r.given(a.key); g != nil {
			most = g.Identity.Value
		}
		if requested.Identity.Value > most {
			return r.more(HighIdentity, a, fmt.Sprintf("is above the %d that this node gives to the container's class", most))
		}
	case memoryQoSKey:
		return r.allowMemory(&requested.Tuning.Memory, a)
	case rdtClassKey:
		if requested.RDT.Class != "" {
			if err := r.rules.knowsRDT(requested.RDT.Class); err != nil {
				return err
			}
		} else if !r.rules.RDTPerPod {
			return errors.New("asks for a group of the pod's own, and the node's config allows none: rdt.perPod is false")
		}
		if g := r.given(a.key); g != nil && g.RDT != requested.RDT {
			return r.more(OtherRDT, a, "is not RDT class "+g.RDT.Class+", which this node gives to the container's class")
		}
	case ioKey:
		return r.allowIO(&requested.IO, a)
	case tierKey:
		most := workload.TierBatch
		if g := r.given(a.key); g != nil {
			most = max(most, g.Tier.Value)
		}
		if requested.Tier.Value > most && !r.facts.Granted.Mid {
			return r.more(HighTier, a, fmt.Sprintf("is above the %s that this node gives to pods without mid resources", most))
		}
	case sloKey:
		return r.allowSLO(&requested.SLO, a)
	case oomScoreKey:
		if requested.OOMScore.Value < r.container.OOMScoreAdj {
			return r.more(OOMScore, a, fmt.Sprintf("is below the kubelet's %d", r.container.OOMScoreAdj))
		}
	}
	return nil
}

// allowSLO refuses what could cost the node nearly all batch work: an objective, whose figures are the
// pod's own, and a narrow bound on waiting for CPUs.
func (r *reader) allowSLO(requested *workload.SLO, a *candidate) error {
	least := float64(r.rules.LeastSLOPercent) / 100
	var given workload.SLO
	if g := r.given(a.key); g != nil {
		given = g.SLO
	}
	if bound := given.OnCPU(); bound > 0 {
		least = min(least, bound)
	}
	if tightest := requested.OnCPU(); tightest > 0 && tightest < least {
		return r.more(TightSLO, a, fmt.Sprintf("has a bound of %s on waiting for CPUs, and this node gives up batch work for bounds of %s or more", percent(tightest), percent(least)))
	}
	if requested.Latency.Bound > 0 && requested.Latency != given.Latency {
		return r.more(TightSLO, a, "has a latency objective, which could cost this node nearly all batch work")
	}
	return nil
}

// allowIO refuses a heavier weight and a higher priority than the configuration gives. Since the
// pod's io replaces the configured one as a whole, it also refuses one without the configured idle
// priority or limits, or with higher limits.
func (r *reader) allowIO(requested *workload.IO, a *candidate) error {
	var given workload.IO
	if g := r.given(a.key); g != nil {
		given = g.IO
	}
	const usual = 100
	most, heaviest := usual, requested.Weight.Value
	if given.Weight.Set {
		most = given.Weight.Value
		if !requested.Weight.Set {
			heaviest = usual
		}
	}
	more := looser(given.Limits, requested.Limits) || len(given.Devices) > 0
	for i := range requested.Devices {
		heaviest = max(heaviest, requested.Devices[i].Weight.Value)
		more = more || looser(given.Limits, requested.Devices[i].Limits)
	}
	switch {
	case heaviest > most:
		return r.more(IOWeight, a, fmt.Sprintf("weight %d is above the %d that containers have by default", heaviest, most))
	case given.Priority == workload.IOIdle && requested.Priority != workload.IOIdle:
		return r.more(IOWeight, a, "is not of the priority idle that this node gives to the container (name it too)")
	case more:
		return r.more(IOWeight, a, "leaves out or raises limits that this node gives to the container (name them too, for each device)")
	}
	return nil
}

// looser reports whether limits allow more than the given ones in some respect.
func looser(given, requested workload.IOLimits) bool {
	above := func(given, requested int64) bool { return given > 0 && (requested == 0 || requested > given) }
	return above(given.ReadBPS, requested.ReadBPS) || above(given.WriteBPS, requested.WriteBPS) ||
		above(given.ReadIOPS, requested.ReadIOPS) || above(given.WriteIOPS, requested.WriteIOPS)
}

// allowMemory refuses settings by which the container would be killed or reclaimed later than
// the configuration says.
func (r *reader) allowMemory(requested *workload.MemoryQoS, a *candidate) error {
	var given workload.MemoryQoS
	for i := range r.candidates {
		if g := &r.candidates[i]; g.key == memoryQoSKey && g.origin == config {
			fillMemory(&given, &g.parsed.Tuning.Memory)
		}
	}
	if most := given.Priority.Value; requested.Priority.Value > most {
		return r.more(OOMScore, a, fmt.Sprintf("priority %d is above the %d that this node gives to the container's class", requested.Priority.Value, most))
	}
	if r.req.Class == workload.BE && requested.WmarkMinAdj.Value < min(0, given.WmarkMinAdj.Value) {
		return r.more(OOMScore, a, "wmarkMinAdj below 0 lets a BE container use the memory that the kernel keeps for others")
	}
	if swap := requested.Swap; swap.Set && swap != given.Swap {
		if r.req.Class == workload.BE && swap.Value == workload.SwapNever {
			return r.more(OOMScore, a, "swap: never keeps memory of a BE container that others may need")
		}
		if swap.Value == workload.SwapUnlimited {
			return r.more(OOMScore, a, "swap: unlimited takes more of the node's swap than the kubelet lets the container have")
		}
	}
	return nil
}

// given returns the configured value of a key for the container, or nil.
func (r *reader) given(k key) *workload.Request {
	for i := range r.candidates {
		if a := &r.candidates[i]; a.key == k && a.origin == config {
			return a.parsed
		}
	}
	return nil
}

// authorize refuses a feature to which the pod has no right. Configured values need no
// authorization.
func (r *reader) authorize(f Feature, a *candidate) error {
	if a.origin == config || r.rules.authorized(r.pod, f) {
		return nil
	}
	return fmt.Errorf("is not allowed in namespace %s; the node's config allows it with an entry for %q under authorize", r.pod.Namespace, f)
}

// more applies authorize to a value that exceeds the configured one, and says so in the error.
// A pod with a dialect's annotation starts without the value.
func (r *reader) more(f Feature, a *candidate, text string) error {
	err := r.authorize(f, a)
	if err != nil {
		a.soft = a.soft || a.dialect()
		err = fmt.Errorf("%s, which %w", text, err)
	}
	return err
}
