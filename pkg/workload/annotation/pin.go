package annotation

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// pin reads the keys that place an LSE or LSR container, and reports whether the container can
// be given a number of CPUs.
func (r *reader) pin() bool {
	smt := r.resolve(smtKey)
	// Of cpus and cpuset, the one with the better source takes precedence, and the other must
	// agree with it.
	first, second := cpusKey, cpusetKey
	if r.bestOrigin(cpusetKey) < r.bestOrigin(cpusKey) {
		first, second = second, first
	}
	named := r.resolve(first) != nil
	named = r.resolve(second) != nil || named
	switch {
	case r.req.CPUs > 0:
	case named:
		r.req.CPUs = r.req.CPUSet.Size()
	case len(r.problems) > 0: // the container fails already, probably for its number of CPUs
	case !r.countRequest():
		return false
	}
	if !r.fillCores(smt) {
		return false
	}
	r.dropSpread(smt)
	if !named {
		r.record(&candidate{key: cpusKey, value: strconv.Itoa(r.req.CPUs), source: "the CPU request"})
	}
	r.resolve(numaKey)
	r.resolve(l3Key)
	r.resolve(nearKey)
	r.exclusive()
	return true
}

func (r *reader) bestOrigin(k key) origin {
	for i := range r.candidates {
		if r.candidates[i].key == k {
			return r.candidates[i].origin
		}
	}
	return config + 1
}

// fillCores checks that a pin of whole cores has CPUs for whole cores. Otherwise it refuses the
// smt key if that asks for whole cores, and else the class.
func (r *reader) fillCores(smt *candidate) bool {
	threads := r.threads()
	if r.req.CPUs%threads == 0 || r.facts.Claimed.CPUs > 0 { // a claim has cores already, perhaps one whose sibling is offline
		return true
	}
	reason := fmt.Sprintf("whole cores of %d threads don't add up to %d CPUs; ask for %s, or annotate smt.sluice.dev: any",
		threads, r.req.CPUs, multiples(r.req.CPUs, threads))
	if r.req.SMT == workload.SMTFullCore {
		if r.refuse(smt, reason) {
			return true
		}
		r.setSMT(workload.SMTDefault)
	}
	if !r.fullCores() {
		return true
	}
	if r.class.dialect() {
		r.warn(r.class.source, "is LSE with a part of a core: "+reason)
		r.req.SMT = workload.SMTAny
		return true
	}
	r.refuse(&r.class, reason)
	return false
}

// dropSpread ends the effect of Koordinator's SpreadByPCPUs where the CPUs are named. It says how to choose
// CPUs, and its scheduler gives their siblings to other pods; those of PCPULevel keep off one another as an
// exclusive group does.
func (r *reader) dropSpread(smt *candidate) {
	if smt != nil && smt.origin == koordinator && r.req.SMT == workload.SMTOnePerCore && !r.req.CPUSet.IsEmpty() {
		r.setSMT(workload.SMTAny)
	}
}

// setSMT sets the policy for hyperthreads in place of the one that a key sets.
func (r *reader) setSMT(policy workload.SMTPolicy) {
	r.req.SMT = policy
	r.req.Keys = slices.DeleteFunc(r.req.Keys, func(s workload.RequestKey) bool { return s.Key == smtKey.String() })
}

// countRequest sets the number of CPUs to the container's request.
func (r *reader) countRequest() bool {
	milli := int(r.req.Milli)
	unit := 1
	if r.fullCores() {
		unit = r.threads()
	}
	const most = workload.MaxSharesRequest / 1000
	switch {
	case milli <= 0:
		r.cannotPin(fmt.Sprintf("%s pins whole CPUs, and this container requests none; request %s, or %s", r.req.Class, multiples(0, unit), r.asLS()))
	case !r.exact:
		r.cannotPin(fmt.Sprintf("the runtime tells CPU requests of %d and more only of Guaranteed pods; name the count in cpus.sluice.dev (at most %d), or make the pod Guaranteed", most, most))
	case r.roundsUp():
		r.req.CPUs = (milli + unit*1000 - 1) / (unit * 1000) * unit
		return true
	case milli%1000 != 0:
		r.cannotPin(fmt.Sprintf("%s pins whole CPUs, and this container requests %dm; request %s, or %s", r.req.Class, milli, multiples(milli/1000, unit), r.asLS()))
	default:
		r.req.CPUs = milli / 1000
		return true
	}
	return false
}

// cannotPin refuses the class. A dialect's class is meant for all CPUs of its pod together, so
// that a container in the pod may request any amount; it becomes LS.
func (r *reader) cannotPin(reason string) {
	r.class.soft = r.class.soft || r.class.dialect()
	r.refuse(&r.class, reason)
}

func (r *reader) asLS() string {
	return "annotate class.sluice.dev/container." + r.container.Name + ": LS"
}

// withinGrant refuses more CPUs than the container requests.
func (r *reader) withinGrant(cpus int) error {
	most := int(r.req.Milli / 1000)
	if r.roundsUp() && r.req.Milli > 0 {
		most = int((r.req.Milli + 999) / 1000)
	}
	switch {
	case cpus <= most:
		return nil
	case !r.exact:
		return fmt.Errorf("%d CPUs are more than the %d up to which the runtime tells the request of a pod that is not Guaranteed; name at most those, or make the pod Guaranteed", cpus, most)
	}
	return fmt.Errorf("%d CPUs are more than the whole CPUs in the container's request of %dm, %d; name at most those, or request more", cpus, r.req.Milli, most)
}

// multiples names the multiples of unit around n, without 0.
func multiples(n, unit int) string {
	down := n / unit * unit
	if down == 0 {
		return strconv.Itoa(unit)
	}
	return fmt.Sprintf("%d or %d", down, down+unit)
}

// exclusive reads the level and the group. The containers of a namespace that name no group are
// one group together.
func (r *reader) exclusive() {
	if gives := r.resolve(exclusiveKey); gives != nil {
		if group := r.resolve(exclusiveGroupKey); group != nil {
			gives = group
		}
		if gives.origin == ownAnnotation { // a dialect's groups are valid on the whole node, as in its scheduler
			r.req.ExclusiveGroup = r.ofNamespace(r.req.ExclusiveGroup)
		}
		return
	}
	for i := range r.candidates {
		if a := &r.candidates[i]; a.key == exclusiveGroupKey && a.origin == ownAnnotation {
			r.warn(a.source, "has no effect without exclusive.sluice.dev")
		}
	}
}

// fullCores reports whether the container's pin has whole cores.
func (r *reader) fullCores() bool {
	return r.req.SMT == workload.SMTFullCore || r.req.SMT == workload.SMTDefault && r.req.Class == workload.LSE
}

func (r *reader) roundsUp() bool {
	return r.rules.RoundUp && r.rules.authorized(r.pod, RoundUpCPUs)
}

func (r *reader) threads() int { return max(1, r.facts.ThreadsPerCore) }
