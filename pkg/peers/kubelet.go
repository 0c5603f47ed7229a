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
	return kubelet.managers(host, err)
}

// managers returns the static managers, unless the error says that the kubelet's root folder is
// not visible.
func (k *Kubelet) managers(host fs.FS, err error) ([]Neighbour, error) {
	if err != nil {
		return nil, fmt.Errorf("%w; whether its static CPU and memory managers are on is unknown", err)
	}
	cpu, cpuErr := cpuManager(host, k)
	memory, memoryErr := memoryManager(host, k)
	return append(cpu, memory...), errors.Join(cpuErr, memoryErr)
}

func cpuManager(host fs.FS, kubelet *Kubelet) ([]Neighbour, error) {
	state, err := kubelet.CPUManager(host)
	if err != nil || !state.Static() {
		return nil, err
	}
	return []Neighbour{{
		Kind:     CPUManager,
		Owns:     "cpuset.cpus of every container",
		Evidence: fmt.Sprintf("%s has policyName %q and exclusive CPUs for %d containers", state.File, state.Policy, len(state.Pins)),
		Response: "Sluice writes no CPU sets, leaves the kubelet's exclusive CPUs alone and refuses classes LSE and LSR; the rest works",
		Fix:      "drain the node, stop the kubelet, set cpuManagerPolicy: none in its config, delete " + state.File + ", start the kubelet",
		Pins:     state.Pins,
	}}, nil
}

// CPUManagerState is the kubelet's checkpoint of its CPU manager.
type CPUManagerState struct {
	File    string     // path on the host
	Policy  string     // policy in force; "" if there is no checkpoint
	Default cpuset.Set // CPUs that all other containers share
	Pins    []Pin      // ordered by pod and container
}

// Static reports whether the static policy is in force.
func (s *CPUManagerState) Static() bool { return strings.EqualFold(s.Policy, "static") }

// CPUManager reads the checkpoint of the CPU manager below the host's root folder.
func (k *Kubelet) CPUManager(host fs.FS) (CPUManagerState, error) {
	file := k.File(cpuManagerState)
	text, err := readState(host, file)
	if text == nil {
		return CPUManagerState{File: "/" + file}, err
	}
	state, err := parseCPUManagerState(text)
	if err != nil {
		return CPUManagerState{}, fmt.Errorf("/%s: %w; whether the kubelet's static CPU manager is on is unknown", file, err)
	}
	state.File = "/" + file
	return state, nil
}

// parseCPUManagerState parses the kubelet's checkpoint (pkg/kubelet/cm/cpumanager/state in
// Kubernetes). Its entries are container ID → set in the first format, and pod UID → container
// name → set in the second. Fields of later versions are ignored. The default set is not
// exclusive.
func parseCPUManagerState(text []byte) (CPUManagerState, error) {
	var state struct {
		PolicyName    string                     `json:"policyName"`
		DefaultCPUSet cpuset.Set                 `json:"defaultCpuSet"`
		Entries       map[string]json.RawMessage `json:"entries"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return CPUManagerState{}, err
	}
	var pins []Pin
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
			return CPUManagerState{}, fmt.Errorf("entry %.100q: %w", key, err)
		}
		for name, cpus := range containers {
			add(key, name, cpus)
		}
	}
	slices.SortFunc(pins, func(a, b Pin) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
	})
	return CPUManagerState{Policy: state.PolicyName, Default: state.DefaultCPUSet, Pins: pins}, nil
}

// MemoryManagerState is the kubelet's checkpoint of its memory manager.
type MemoryManagerState struct {
	File   string // path on the host
	Policy string // policy in force; "" if there is no checkpoint
}

// Static reports whether the static policy is in force.
func (s *MemoryManagerState) Static() bool { return strings.EqualFold(s.Policy, "static") }

// MemoryManager reads the checkpoint of the memory manager below the host's root folder.
func (k *Kubelet) MemoryManager(host fs.FS) (MemoryManagerState, error) {
	file := k.File(memoryManagerState)
	text, err := readState(host, file)
	if text == nil {
		return MemoryManagerState{File: "/" + file}, err
	}
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return MemoryManagerState{}, fmt.Errorf("/%s: %w; whether the kubelet's static memory manager is on is unknown", file, err)
	}
	return MemoryManagerState{File: "/" + file, Policy: state.PolicyName}, nil
}

func memoryManager(host fs.FS, kubelet *Kubelet) ([]Neighbour, error) {
	state, err := kubelet.MemoryManager(host)
	if err != nil || !state.Static() {
		return nil, err
	}
	return []Neighbour{{
		Kind:     MemoryManager,
		Owns:     "cpuset.mems of Guaranteed pods' containers",
		Evidence: fmt.Sprintf("%s has policyName %q", state.File, state.Policy),
		Response: "Sluice writes no memory node sets; the rest works",
		Fix:      "drain the node, stop the kubelet, set memoryManagerPolicy: None in its config, delete " + state.File + ", start the kubelet",
	}}, nil
}
