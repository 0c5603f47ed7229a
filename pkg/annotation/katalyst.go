package annotation

// Katalyst's annotations; see katalyst-api's pkg/consts.
const (
	katalystQoS    = "katalyst.kubewharf.io/qos_level"
	katalystCPU    = "katalyst.kubewharf.io/cpu_enhancement"
	katalystMemory = "katalyst.kubewharf.io/memory_enhancement"

	fromKatalystCPU    = "annotation " + katalystCPU
	fromKatalystMemory = "annotation " + katalystMemory
)

// katalyst gathers what a pod written for Katalyst says.
func (r *reader) katalyst() {
	if level := r.pod.Annotations[katalystQoS]; level != "" {
		a := ask{key: classKey, said: level, source: "annotation " + katalystQoS, origin: katalyst}
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
			r.ask(a)
		} else {
			r.refuse(&a, "must be dedicated_cores, shared_cores, reclaimed_cores or system_cores")
		}
	}
	if text, ok := r.pod.Annotations[katalystCPU]; ok {
		var cpu struct {
			Pool string `json:"cpuset_pool"`
		}
		// Katalyst makes a pool of any name; a node that hasn't got it serves the
		// pod from the default pool.
		if r.json(fromKatalystCPU, text, &cpu) && cpu.Pool != "" {
			r.ask(ask{key: poolKey, value: cpu.Pool, source: fromKatalystCPU, origin: katalyst, soft: true})
		}
	}
	if text, ok := r.pod.Annotations[katalystMemory]; ok {
		var memory struct {
			Binding   flag `json:"numa_binding"`
			Exclusive flag `json:"numa_exclusive"`
		}
		// numa_exclusive means something only together with numa_binding.
		if !r.json(fromKatalystMemory, text, &memory) || !bool(memory.Binding) {
			return
		}
		r.ask(ask{key: numaKey, value: "single", said: "numa_binding", source: fromKatalystMemory, origin: katalyst})
		if bool(memory.Exclusive) {
			r.ask(ask{key: exclusiveKey, value: "node", said: "numa_exclusive", source: fromKatalystMemory, origin: katalyst})
			r.ask(ask{key: exclusiveGroupKey, value: "katalyst", source: fromKatalystMemory, origin: katalyst})
		}
	}
}

// flag is Katalyst's "true", quoted or not; everything else is false.
type flag bool

func (f *flag) UnmarshalJSON(text []byte) error {
	*f = string(text) == `"true"` || string(text) == "true"
	return nil
}
