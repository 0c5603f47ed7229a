// Package peers finds other programs on the node that write CPU and memory sets: the kubelet's
// static managers and other resource agents. Two writers of one file undo each other's changes,
// so Sluice leaves to them what they write.
package peers

import (
	"errors"
	"io/fs"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Kind is the kind of another agent.
type Kind string

// These are the kinds.
const (
	CPUManager    Kind = "kubelet CPU manager (static)"
	MemoryManager Kind = "kubelet memory manager (Static)"
	Koordlet      Kind = "koordlet"
	Katalyst      Kind = "katalyst-agent"
)

// Neighbour is another agent on the node that writes the same knobs.
type Neighbour struct {
	Kind     Kind   `json:"kind"`           // Kind of agent, for example "koordlet".
	Owns     string `json:"owns"`           // Settings that the agent writes.
	Evidence string `json:"evidence"`       // How Sluice found the agent.
	Response string `json:"response"`       // What Sluice does about it.
	Fix      string `json:"fix"`            // What the operator can do.
	Pins     []Pin  `json:"pins,omitempty"` // Exclusive CPUs assigned by the kubelet's static CPU manager; absent for other agents.
}

// Pin is the exclusive CPUs that the kubelet's CPU manager assigned to a container.
type Pin struct {
	PodUID    string     `json:"podUID,omitempty"` // UID of the pod; absent in state files of kubelets before 1.18.
	Container string     `json:"container"`        // Name of the container; its ID in state files of kubelets before 1.18.
	CPUs      cpuset.Set `json:"cpus"`             // CPUs assigned exclusively to the container.
}

// Detect finds the kubelet (see FindKubelet) and other agents in the host's root folder. It looks
// through the processes once. It returns what could be read together with the error about what could
// not.
func Detect(host fs.FS) (Kubelet, []Neighbour, error) { return (&Search{Host: host}).Detect() }

// Detect searches once more, and returns what the function Detect returns.
func (s *Search) Detect() (Kubelet, []Neighbour, error) {
	running, err := s.findProcesses()
	kubelet, hidden := running.findKubelet(s.Host)
	managers, unknown := kubelet.managers(s.Host, hidden)
	return kubelet, append(managers, running.neighbours()...), errors.Join(unknown, err)
}
