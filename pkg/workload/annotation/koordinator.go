package annotation

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// These are Koordinator's labels and annotations; see its apis/extension.
const (
	koordDomain   = "koordinator.sh"
	koordQoS      = "koordinator.sh/qosClass"
	koordPriority = "koordinator.sh/priority-class"
	koordSpec     = "scheduling.koordinator.sh/resource-spec"
	koordStatus   = "scheduling.koordinator.sh/resource-status"

	fromKoordSpec   = "annotation " + koordSpec
	fromKoordStatus = "annotation " + koordStatus
)

// koordinator collects what Koordinator's webhook and scheduler wrote. Like Koordinator, it
// ignores classes and policies that it does not know.
func (r *reader) koordinator() {
	if len(r.pod.Labels) > 0 {
		r.koordinatorClass()
		r.koordinatorLabels()
	}
	if !r.inKoordinator {
		return
	}
	if text, ok := r.pod.Annotations[koordSpec]; ok {
		r.koordinatorSpec(text)
	}
	if text, ok := r.pod.Annotations[koordStatus]; ok {
		r.koordinatorStatus(text)
	}
	r.koordinatorKnobs()
}

func (r *reader) koordinatorClass() {
	priority := r.pod.Labels[koordPriority]
	if class := r.pod.Labels[koordQoS]; class != "" {
		a := candidate{key: classKey, value: class, source: "label " + koordQoS, origin: koordinator}
		if _, err := workload.ParseClass(class); err == nil {
			r.propose(a)
		} else {
			a.soft = true
			r.refuse(&a, "is not a class; the classes are LSE, LSR, LS, BE and SYSTEM")
		}
	} else if priority == "koord-batch" || priority == "koord-free" {
		// Pods of these priorities run on reclaimed resources, and Koordinator's webhook makes
		// them BE.
		r.propose(candidate{key: classKey, value: "BE", podText: priority, source: "label " + koordPriority, origin: koordinator})
	}
	if name, ok := strings.CutPrefix(priority, "koord-"); ok {
		if tier, err := workload.ParseTier(name); err == nil {
			r.propose(candidate{key: tierKey, value: tier.String(), podText: priority, source: "label " + koordPriority, origin: koordinator})
		}
	}
}

// koordinatorSpec reads resource-spec. A preferred policy is a preference. A required one must
// be met, and takes precedence.
func (r *reader) koordinatorSpec(text string) {
	var spec struct {
		Required  string `json:"requiredCPUBindPolicy"`
		Preferred string `json:"preferredCPUBindPolicy"`
		Exclusive string `json:"preferredCPUExclusivePolicy"`
	}
	if !r.json(fromKoordSpec, text, &spec) {
		return
	}
	bind, soft := spec.Required, false
	if bind == "" || bind == "Default" {
		bind, soft = spec.Preferred, true
	}
	smt := candidate{key: smtKey, podText: bind, source: fromKoordSpec, origin: koordinator, soft: soft}
	switch bind {
	case "", "Default":
	case "FullPCPUs":
		smt.value = "full-core"
		r.propose(smt)
	case "SpreadByPCPUs":
		smt.value = "one-per-core"
		r.propose(smt)
	default:
		smt.soft = true
		r.refuse(&smt, "is not a CPU bind policy that Sluice knows: FullPCPUs or SpreadByPCPUs")
	}
	exclusive := candidate{key: exclusiveKey, podText: spec.Exclusive, source: fromKoordSpec, origin: koordinator, soft: true}
	switch spec.Exclusive {
	case "", "None":
		return
	case "PCPULevel":
		exclusive.value = "core"
	case "NUMANodeLevel":
		exclusive.value = "node"
	default:
		r.refuse(&exclusive, "is not a CPU exclusive policy that Sluice knows: PCPULevel or NUMANodeLevel")
		return
	}
	r.propose(exclusive)
	r.propose(candidate{key: exclusiveGroupKey, value: "koordinator.sh", source: fromKoordSpec, origin: koordinator, soft: true})
}

// koordinatorStatus reads resource-status, the scheduler's choice for the whole pod. Its CPUs
// are for a container that requests that many; in a pod with several containers Sluice chooses.
// Its nodes bind memory unless the CPUs already do.
func (r *reader) koordinatorStatus(text string) {
	var status struct {
		CPUSet string `json:"cpuset"`
		Nodes  []struct {
			Node int `json:"node"`
		} `json:"numaNodeResources"`
	}
	if !r.json(fromKoordStatus, text, &status) {
		return
	}
	if status.CPUSet != "" {
		r.propose(candidate{key: cpusetKey, value: status.CPUSet, source: fromKoordStatus, origin: koordinator, soft: true})
		return
	}
	var nodes cpuset.Set
	for _, n := range status.Nodes {
		if n.Node < 0 || n.Node >= cpuset.Max {
			r.refuse(&candidate{source: fromKoordStatus, value: strconv.Itoa(n.Node), soft: true}, fmt.Sprintf("is not a NUMA node's number, 0 to %d", cpuset.Max-1))
			return
		}
		nodes.Add(n.Node)
	}
	if !nodes.IsEmpty() {
		r.propose(candidate{key: memoryNodesKey, value: nodes.String(), source: fromKoordStatus, origin: koordinator, soft: true})
	}
}

// json parses a dialect's JSON object, and refuses one that is malformed.
func (r *reader) json(source, text string, into any) bool {
	a := candidate{source: source, value: text}
	if len(text) > maxLength {
		r.refuse(&a, tooLong(len(text)))
		return false
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		r.refuse(&a, "must be a JSON object: "+err.Error())
		return false
	}
	return true
}
