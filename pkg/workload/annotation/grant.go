package annotation

import (
	"errors"
	"fmt"

	"github.com/sluice-dev/sluice/pkg/workload"
)

var errNeverBE = errors.New("never is not for class BE, which is evicted first; give a number to say which BE goes before which")

// allow returns why the container may not have what an ask demands.
func (r *reader) allow(said *workload.Request, a *ask) error {
	switch a.key {
	case classKey:
		if said.Class == workload.System {
			return r.authorize(SystemClass, a)
		}
	case poolKey:
		if err := r.rules.knowsPool(said.Pool); err != nil {
			return err
		}
		if len(r.rules.PoolSets[said.Pool]) > 0 && said.Pool != r.rules.defaultPool(r.req.Class) {
			return r.more(OtherPool, a, "gives its containers keys of its own")
		}
	case cpusetKey:
		if size := said.CPUSet.Size(); r.req.CPUs > 0 && size != r.req.CPUs {
			return fmt.Errorf("these are %d CPUs, and %d are asked for; name as many, or leave cpus.sluice.dev out", size, r.req.CPUs)
		}
		return r.withinGrant(said.CPUSet.Size())
	case cpusKey:
		if size := r.req.CPUSet.Size(); size > 0 && size != said.CPUs {
			return fmt.Errorf("the CPUs chosen are %s, which is %d; leave this key out, or name as many", r.req.CPUSet, size)
		}
		return r.withinGrant(said.CPUs)
	case exclusiveKey:
		if said.Exclusive == workload.ExclusiveNode {
			return r.authorize(ExclusiveNUMA, a)
		}
	case memoryNodesKey:
		if a.origin == koordinator && !r.req.Class.Pinned() {
			return errors.New("binds the memory of LSE and LSR only, whose CPUs are near it")
		}
	case allowKey:
		if r.req.Class == workload.BE && said.Allow.Value != everyAction {
			return errors.New("class BE may be throttled, demoted, reclaimed and evicted, so that it can have what others leave; leave this key out, or take class LS")
		}
	case evictKey:
		if r.req.Class == workload.BE && said.Evict.Never {
			return errNeverBE
		}
	}
	if a.origin != config && a.key >= placementKeys {
		return r.allowMore(said, a)
	}
	return nil
}

// allowMore refuses a setting that favours the container over others more than the node's
// configuration does.
func (r *reader) allowMore(said *workload.Request, a *ask) error {
	switch a.key {
	case cpuIdentityKey:
		most := 0
		if r.req.Class.Pinned() {
			most = 2
		}
		if g := r.given(a.key); g != nil {
			most = g.Identity.Value
		}
		if said.Identity.Value > most {
			return r.more(HighIdentity, a, fmt.Sprintf("is above the %d that this node gives to the container's class", most))
		}
	case memoryQoSKey:
		return r.allowMemory(&said.Tuning.Memory, a)
	case rdtClassKey:
		if said.RDT.Class != "" {
			if err := r.rules.knowsRDT(said.RDT.Class); err != nil {
				return err
			}
		} else if !r.rules.RDTPerPod {
			return errors.New("asks for a group of the pod's own, and the node's config allows none: rdt.perPod is false")
		}
		if g := r.given(a.key); g != nil && g.RDT != said.RDT {
			return r.more(OtherRDT, a, "is not RDT class "+g.RDT.Class+", which this node gives to the container's class")
		}
	case ioKey:
		return r.allowIO(&said.IO, a)
	case oomScoreKey:
		if said.OOMScore.Value < r.container.OOMScoreAdj {
			return r.more(OOMScore, a, fmt.Sprintf("is below the kubelet's %d", r.container.OOMScoreAdj))
		}
	}
	return nil
}

// allowIO refuses a heavier weight than the configuration gives. Since the pod's io replaces
// the configured one as a whole, it also refuses limits that are missing in it or higher.
func (r *reader) allowIO(said *workload.IO, a *ask) error {
	var given workload.IO
	if g := r.given(a.key); g != nil {
		given = g.IO
	}
	const usual = 100
	most, heaviest := usual, said.Weight.Value
	if given.Weight.Set {
		most = given.Weight.Value
		if !said.Weight.Set {
			heaviest = usual
		}
	}
	more := looser(given.Limits, said.Limits) || len(given.Devices) > 0
	for i := range said.Devices {
		heaviest = max(heaviest, said.Devices[i].Weight.Value)
		more = more || looser(given.Limits, said.Devices[i].Limits)
	}
	switch {
	case heaviest > most:
		return r.more(IOWeight, a, fmt.Sprintf("weight %d is above the %d that containers have by default", heaviest, most))
	case more:
		return r.more(IOWeight, a, "leaves out or raises limits that this node gives to the container (name them too, for each device)")
	}
	return nil
}

// looser reports whether limits allow more than the given ones in some respect.
func looser(given, said workload.IOLimits) bool {
	above := func(given, said int64) bool { return given > 0 && (said == 0 || said > given) }
	return above(given.ReadBPS, said.ReadBPS) || above(given.WriteBPS, said.WriteBPS) ||
		above(given.ReadIOPS, said.ReadIOPS) || above(given.WriteIOPS, said.WriteIOPS)
}

// allowMemory refuses settings by which the container would be killed or reclaimed later than
// the configuration says.
func (r *reader) allowMemory(said *workload.MemoryQoS, a *ask) error {
	var given workload.MemoryQoS
	for i := range r.asks {
		if g := &r.asks[i]; g.key == memoryQoSKey && g.origin == config {
			fillMemory(&given, &g.parsed.Tuning.Memory)
		}
	}
	if most := given.Priority.Value; said.Priority.Value > most {
		return r.more(OOMScore, a, fmt.Sprintf("priority %d is above the %d that this node gives to the container's class", said.Priority.Value, most))
	}
	if r.req.Class == workload.BE && said.WmarkMinAdj.Value < min(0, given.WmarkMinAdj.Value) {
		return r.more(OOMScore, a, "wmarkMinAdj below 0 lets a BE container use the memory that the kernel keeps for others")
	}
	return nil
}

// given returns the configured value of a key for the container, or nil.
func (r *reader) given(k key) *workload.Request {
	for i := range r.asks {
		if a := &r.asks[i]; a.key == k && a.origin == config {
			return a.parsed
		}
	}
	return nil
}

// authorize refuses a feature to which the pod has no right. Configured values need no
// authorization.
func (r *reader) authorize(f Feature, a *ask) error {
	if a.origin == config || r.rules.authorized(r.pod, f) {
		return nil
	}
	return fmt.Errorf("is not allowed in namespace %s; the node's config allows it with an entry for %q under authorize", r.pod.Namespace, f)
}

// more applies authorize to a value that exceeds the configured one, and says so in the error.
// A pod with a dialect's annotation starts without the value.
func (r *reader) more(f Feature, a *ask, text string) error {
	err := r.authorize(f, a)
	if err != nil {
		a.soft = a.soft || a.dialect()
		err = fmt.Errorf("%s, which %w", text, err)
	}
	return err
}
