package annotation

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// These are Katalyst's annotations; see katalyst-api's pkg/consts.
const (
	katalystDomain = "katalyst.kubewharf.io"
	katalystQoS    = "katalyst.kubewharf.io/qos_level"
	katalystCPU    = "katalyst.kubewharf.io/cpu_enhancement"
	katalystMemory = "katalyst.kubewharf.io/memory_enhancement"

	fromKatalystCPU    = "annotation " + katalystCPU
	fromKatalystMemory = "annotation " + katalystMemory
)

// katalyst collects the requests of a pod written for Katalyst.
func (r *reader) katalyst() {
	if level := r.pod.Annotations[katalystQoS]; level != "" {
		a := candidate{key: classKey, podText: level, source: "annotation " + katalystQoS, origin: katalyst}
		switch level {
		case "dedicated_cores":
			a.value = "LSE"
		case "shared_cores":
			a.value = "LS"
		case "reclaimed_cores":
			a.value = "BE"
		case "system_cores":
			a.value = "SYSTEM"
		}
		if a.value != "" {
			r.propose(a)
		} else {
			r.refuse(&a, "must be dedicated_cores, shared_cores, reclaimed_cores or system_cores")
		}
	}
	if text, ok := r.pod.Annotations[katalystCPU]; ok {
		var cpu struct {
			Pool    string `json:"cpuset_pool"`
			Burst   string `json:"cpu_burst_policy"`
			Percent number `json:"cpu_burst_percent"`
		}
		if r.json(fromKatalystCPU, text, &cpu) {
			// Katalyst makes a pool of any name. A node without a pool of that name serves the
			// pod from the default pool.
			if cpu.Pool != "" {
				r.propose(candidate{key: poolKey, value: cpu.Pool, source: fromKatalystCPU, origin: katalyst, soft: true})
			}
			r.katalystBurst(cpu.Burst, string(cpu.Percent))
		}
	}
	if text, ok := r.pod.Annotations[katalystMemory]; ok {
		var memory struct {
			Binding   flag   `json:"numa_binding"`
			Exclusive flag   `json:"numa_exclusive"`
			Priority  number `json:"oom_priority"`
		}
		if !r.json(fromKatalystMemory, text, &memory) {
			return
		}
		r.katalystPriority(string(memory.Priority))
		// numa_exclusive has a meaning only together with numa_binding.
		if !bool(memory.Binding) {
			return
		}
		r.propose(candidate{key: numaKey, value: "single", podText: "numa_binding", source: fromKatalystMemory, origin: katalyst})
		if bool(memory.Exclusive) {
			r.propose(candidate{key: exclusiveKey, value: "node", podText: "numa_exclusive", source: fromKatalystMemory, origin: katalyst})
			r.propose(candidate{key: exclusiveGroupKey, value: "katalyst", source: fromKatalystMemory, origin: katalyst})
		}
	}
}

// flag is Katalyst's "true", quoted or not. Everything else is false.
type flag bool

func (f *flag) UnmarshalJSON(text []byte) error {
	*f = string(text) == `"true"` || string(text) == "true"
	return nil
}

// number is a number, which Katalyst requires in quotes; both forms are accepted.
type number string

func (n *number) UnmarshalJSON(text []byte) error {
	*n = number(strings.Trim(string(text), `"`))
	return nil
}

// katalystBurst reads the burst. Katalyst's default policy changes nothing on the node, and its
// default percentage is 100.
func (r *reader) katalystBurst(policy, percent string) {
	a := candidate{key: cpuBurstKey, podText: policy, source: fromKatalystCPU, origin: katalyst}
	switch policy {
	case "", "default":
		return
	case "closed", "none":
		a.value = "off"
	case "dynamic":
		a.value = "auto"
	case "static":
		n, err := strconv.ParseFloat(cmp.Or(percent, "100"), 64)
		if err != nil || n < 0 || n > maxBurst {
			r.refuse(&candidate{source: fromKatalystCPU, value: percent}, fmt.Sprintf("cpu_burst_percent must be a number, 0 to %d", maxBurst))
			return
		}
		if a.value = strconv.Itoa(int(n)) + "%"; n < 1 {
			a.value = "off"
		}
	default:
		a.soft = true
		r.refuse(&a, "is not a cpu_burst_policy that Sluice knows: closed, default, static or dynamic")
		return
	}
	r.propose(a)
}

// katalystPriority reads oom_priority: -300 is none, and other values are -100 to 300, of which
// higher ones are killed later. Its steps of 100 are Katalyst's levels; the kernel has 0 to 12.
func (r *reader) katalystPriority(text string) {
	const none, least, most = -300, -100, 300
	if text == "" {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil || (n < least || n > most) && n != none {
		r.refuse(&candidate{source: fromKatalystMemory, value: text}, fmt.Sprintf("oom_priority must be a whole number, %d to %d, or %d for none", least, most, none))
		return
	}
	if n != none {
		m := workload.MemoryQoS{Priority: workload.Some((n - least) * 12 / (most - least))}
		r.tuning(memoryQoSKey, spellMemory(&m), workload.Tuning{Memory: m}, fromKatalystMemory, katalyst)
	}
}
