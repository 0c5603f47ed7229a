package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// has reports whether an option of the kubelet's static policy is on.
func (f *Facts) has(option string) bool {
	on, err := strconv.ParseBool(f.Kubelet.CPUManagerPolicyOptions[option])
	return err == nil && on
}

// becomes says what takes the place of each option of the static policy
// (pkg/kubelet/cm/cpumanager/policy_options.go in Kubernetes).
func becomes(option string) string {
	switch option {
	case "full-pcpus-only":
		return "Class LSE has whole cores alone, so the plan has LSE in place of LSR."
	case "distribute-cpus-across-numa":
		return "numa.sluice.dev: spread takes as many CPUs of every NUMA node. Sluice cannot spread over some of the nodes alone."
	case "distribute-cpus-across-cores":
		return "smt.sluice.dev: one-per-core takes one hyperthread of each core, and no other pin gets the second one."
	case "align-by-socket":
		return "It has no counterpart: Sluice takes the fewest NUMA nodes."
	case "strict-cpu-reservation":
		return "reserved in sluice.yaml keeps every container off the CPUs that it names."
	case "prefer-align-cpus-by-uncorecache":
		return "l3.sluice.dev: pack takes few L3 caches. It is the default."
	}
	return "Sluice does not know this option: look it up before you migrate."
}

// options returns the kubelet's keys, in the order in which to look at them.
func (f *Facts) options() []Option {
	k := &f.Kubelet
	var all []Option
	add := func(key, value, becomes string) {
		if value != "" {
			all = append(all, Option{key, value, becomes})
		}
	}
	if f.CPU.Static() {
		add("cpuManagerPolicy", f.CPU.Policy, "Set it to none.")
		add("cpuManagerPolicyOptions", pairs(k.CPUManagerPolicyOptions), "Remove the key: with the policy none and any option, the kubelet does not start.")
		for _, name := range slices.Sorted(maps.Keys(k.CPUManagerPolicyOptions)) {
			if f.has(name) {
				add(name, k.CPUManagerPolicyOptions[name], becomes(name))
			}
		}
	}
	if f.Memory.Static() {
		add("memoryManagerPolicy", f.Memory.Policy, "Set it to None. LSE and LSR have memory-nodes.sluice.dev: local by default.")
		if len(k.ReservedMemory) > 0 {
			add("reservedMemory", "set", "Remove the key: the policy None does not use it.")
		}
	}
	if f.CPU.Static() {
		add("reservedSystemCPUs", k.ReservedSystemCPUs, f.reserved())
		add("kubeReserved.cpu", k.KubeReserved["cpu"], reservedAmount)
		add("systemReserved.cpu", k.SystemReserved["cpu"], reservedAmount)
	}
	if policy := k.TopologyManagerPolicy; policy != "none" {
		text := "Keep it for devices. The policy none of the CPU manager gives it no CPUs to align: near.sluice.dev: device puts CPUs near a container's devices"
		if policy == "single-numa-node" {
			text += ", and numa.sluice.dev: single keeps them on one NUMA node"
		}
		add("topologyManagerPolicy", policy, text+".")
	}
	return all
}

const reservedAmount = "Keep it: the scheduler leaves it free. The whole CPUs that the static policy kept for it can become pins, but for those that the shared pools need."

// reserved says what becomes of reservedSystemCPUs.
func (f *Facts) reserved() string {
	cpus := f.Kubelet.ReservedSystemCPUs
	if f.Config.Reserved.String() == cpus {
		return "Keep it for the scheduler's sake. sluice.yaml has the same CPUs as reserved."
	}
	advice := fmt.Sprintf("Keep it for the scheduler's sake. reserved: %q in sluice.yaml keeps every container off these CPUs", cpus)
	if f.has("strict-cpu-reservation") {
		return advice + ", as now."
	}
	return advice + "; now, containers without CPUs of their own may run there. Without that key, pins may get them, too."
}

// pairs writes a map as the kubelet's flags have it.
func pairs(m map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, name+"="+m[name])
	}
	return strings.Join(all, ",")
}
