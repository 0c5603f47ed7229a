package peers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// These state files are in the kubelet's root folder. They exist with the policy "none" too.
const (
	cpuManagerState    = "cpu_manager_state"
	memoryManagerState = "memory_manager_state"
)

// Managers returns the kubelet's static managers below the host's root folder.
func Managers(host fs.FS) ([]Neighbour, error) {
	kubelet, err := FindKubelet(host)
	if err != nil {
		return nil, fmt.Errorf("%w; whether its static CPU and memory managers are on is unknown", err)
	}
	cpu, cpuErr := cpuManager(host, kubelet.File(cpuManagerState))
	memory, memoryErr := memoryManager(host, kubelet.File(memoryManagerState))
	return append(cpu, memory...), errors.Join(cpuErr, memoryErr)
}

func cpuManager(host fs.FS, file string) ([]Neighbour, error) {
	text, err := readState(host, file)
	if text == nil {
		return nil, err
	}
	policy, pins, err := parseCPUManagerState(text)
	if err != nil {
		return nil, fmt.Errorf("/%s: %w; whether the kubelet's static CPU manager is on is unknown", file, err)
	}
	if !strings.EqualFold(policy, "static") {
		return nil, nil
	}
	return []Neighbour{{
		Kind:     CPUManager,
		Owns:     "cpuset.cpus of every container",
		Evidence: fmt.Sprintf("/%s has policyName %q and exclusive CPUs for %d containers", file, policy, len(pins)),
		Response: "Sluice writes no CPU sets, leaves the kubelet's exclusive CPUs alone and refuses classes LSE and LSR; the rest works",
		Fix:      "drain the node, stop the kubelet, set cpuManagerPolicy: none in its config, delete /" + file + ", start the kubelet",
		Pins:     pins,
	}}, nil
}

// parseCPUManagerState parses the kubelet's checkpoint (pkg/kubelet/cm/cpumanager/state in
// Kubernetes). Its entries are container ID → set in the first format, and pod UID → container
// name → set in the second. Fields of later versions are ignored. The default set is not
// exclusive.
func parseCPUManagerState(text []byte) (policy string, pins []Pin, err error) {
	var state struct {
		PolicyName    string                     `json:"policyName"`
		DefaultCPUSet cpuset.Set                 `json:"defaultCpuSet"`
		Entries       map[string]json.RawMessage `json:"entries"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return "", nil, err
	}
	add := func(pod, container string, cpus cpuset.Set) {
		if !cpus.IsEmpty() && cpus != state.DefaultCPUSet {
			pins = append(pins, Pin{PodUID: pod, Container: container, CPUs: cpus})
		}
	}
	for key, raw := range state.Entries {
		var cpus cpuset.Set
		if json.Unmarshal(raw, &cpus) == nil {
			add("", key, cpus)
			continue
		}
		var containers map[string]cpuset.Set
		if err := json.Unmarshal(raw, &containers); err != nil {
			return "", nil, fmt.Errorf("entry %.100q: %w", key, err)
		}
		for name, cpus := range containers {
			add(key, name, cpus)
		}
	}
	slices.SortFunc(pins, func(a, b Pin) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
	})
	return state.PolicyName, pins, nil
}

func memoryManager(host fs.FS, file string) ([]Neighbour, error) {
	text, err := readState(host, file)
	if text == nil {
		return nil, err
	}
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, fmt.Errorf("/%s: %w; whether the kubelet's static memory manager is on is unknown", file, err)
	}
	if !strings.EqualFold(state.PolicyName, "static") {
		return nil, nil
	}
	return []Neighbour{{
		Kind:     MemoryManager,
		Owns:     "cpuset.mems of Guaranteed pods' containers",
		Evidence: fmt.Sprintf("/%s has policyName %q", file, state.PolicyName),
		Response: "Sluice writes no memory node sets; the rest works",
		Fix:      "drain the node, stop the kubelet, set memoryManagerPolicy: None in its config, delete /" + file + ", start the kubelet",
	}}, nil
}
