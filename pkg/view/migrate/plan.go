// Package migrate plans how a node moves from the kubelet's static CPU manager to Sluice: which
// containers have CPUs of their own now, what their pods need to have them under Sluice, what
// becomes of the kubelet's options, and the steps in their order.
package migrate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Facts are what a plan follows from.
type Facts struct {
	Node    string // name in Kubernetes; "" if unknown
	Service bool   // the kubelet is a process of its own, not a part of another program
	Machine *topology.Machine
	Config  *config.Config // Sluice's, validated against the machine

	CPU            peers.CPUManagerState
	Memory         peers.MemoryManagerState
	Kubelet        peers.KubeletConfig
	KubeletProblem string // why the kubelet's configuration is not known as a whole; "" if it is

	Record        *grants.Record     // nil if it can't be read
	RecordProblem string             // why; "" if it can
	Containers    []status.Container // those that the running plugin knows
	StatusProblem string             // why no plugin answers; "" if one does
}

// Plan is what moving a node takes.
type Plan struct {
	Static              bool       `json:"static"`              // Whether the kubelet's static CPU manager is in force.
	MemoryManagerStatic bool       `json:"memoryManagerStatic"` // Whether the kubelet's static memory manager is in force.
	Exclusive           cpuset.Set `json:"exclusive"`           // CPUs that the kubelet gave to single containers.
	Shared              cpuset.Set `json:"shared"`              // CPUs that it gives to all others.
	Pods                []Pod      `json:"pods"`                // Pods with CPUs of their own, by their names.
	Options             []Option   `json:"options"`             // Keys of the kubelet's configuration, and what becomes of each.
	Steps               []Step     `json:"steps"`               // Steps of the migration in their order; none if neither manager is static.
	Notes               []string   `json:"notes,omitempty"`     // What limits the plan.
}

// Pod is a pod with CPUs of its own.
type Pod struct {
	UID         string            `json:"uid"`                   // UID of the pod in Kubernetes.
	Name        string            `json:"name,omitempty"`        // Pod as "namespace/name"; absent if no plugin knows it.
	Keeps       bool              `json:"keeps"`                 // Whether Sluice gives it CPUs of its own without a change of its manifest.
	Annotations map[string]string `json:"annotations,omitempty"` // Annotations that its manifest needs; absent if it needs none.
	Containers  []Container       `json:"containers"`            // Its containers with CPUs of their own.
}

// Title names the pod: by its name if that is known, else by its UID, which checkpoints of kubelets before 1.18 lack.
func (p *Pod) Title() string { return cmp.Or(p.Name, p.UID, "unknown") }

// Container is a container with CPUs of its own.
type Container struct {
	Name     string         `json:"name"`              // Name of the container.
	Init     bool           `json:"init"`              // Whether it is an init container, whose CPUs others of its pod have after it.
	CPUs     cpuset.Set     `json:"cpus"`              // CPUs that the kubelet gave it.
	Nodes    cpuset.Set     `json:"nodes"`             // NUMA nodes of the CPUs that the kubelet gave it.
	Class    workload.Class `json:"class"`             // Class with which Sluice gives it as much.
	NewCPUs  cpuset.Set     `json:"newCPUs"`           // CPUs that it would get; empty if it would be refused.
	NewNodes cpuset.Set     `json:"newNodes"`          // NUMA nodes of the CPUs that it would get.
	Problem  string         `json:"problem,omitempty"` // Why it would be refused; absent if it would not.
}

// Option is a key of the kubelet's configuration.
type Option struct {
	Key     string `json:"key"`     // Key, for example "cpuManagerPolicyOptions.full-pcpus-only".
	Value   string `json:"value"`   // Its value.
	Becomes string `json:"becomes"` // What becomes of it.
}

// Step is a step of the migration.
type Step struct {
	Do       string   `json:"do"`                 // What to do, as a sentence.
	Commands []string `json:"commands,omitempty"` // Commands of a shell that do it; absent if the sentence says all.
}

// New makes the plan.
func New(f *Facts) Plan {
	p := Plan{
		Static: f.CPU.Static(), MemoryManagerStatic: f.Memory.Static(), Shared: f.CPU.Default,
		Pods: []Pod{}, Options: []Option{}, Steps: []Step{},
	}
	if p.Static {
		p.Pods = f.pods()
		f.place(p.Pods)
		for _, pin := range f.CPU.Pins {
			p.Exclusive = cpuset.Union(p.Exclusive, pin.CPUs)
		}
	}
	if p.Static || p.MemoryManagerStatic {
		p.Options, p.Steps = f.options(), f.steps(p.Pods)
	}
	p.Notes = f.notes(&p)
	return p
}

// Refused returns the number of containers that would not get CPUs of their own, and the first of them.
func (p *Plan) Refused() (n int, first string) {
	for i := range p.Pods {
		for _, c := range p.Pods[i].Containers {
			if c.Problem != "" {
				n++
				first = cmp.Or(first, p.Pods[i].Title()+"/"+c.Name)
			}
		}
	}
	return n, first
}

// pods returns the pods of the checkpoint. Pods that no plugin knows come last.
func (f *Facts) pods() []Pod {
	var pods []Pod
	for _, of := range f.byPod() {
		pod := Pod{UID: of[0].PodUID}
		known := f.known(pod.UID)
		for _, c := range known {
			pod.Name = c.Ref[:strings.LastIndexByte(c.Ref, '/')]
		}
		for i, pin := range of {
			overlaps := func(other peers.Pin) bool { return other.CPUs.Overlaps(pin.CPUs) }
			c := Container{Name: pin.Container, CPUs: pin.CPUs, Nodes: f.Machine.NodesOf(pin.CPUs), Class: f.class()}
			c.Init = slices.ContainsFunc(of[i+1:], overlaps)
			now := known[pin.Container].Class
			if !now.Pinned() {
				pod.annotate(f, &c)
			} else {
				c.Class = now
			}
			pod.Containers = append(pod.Containers, c)
		}
		pod.Keeps = len(pod.Annotations) == 0
		pods = append(pods, pod)
	}
	unknown := func(p Pod) int {
		if p.Name == "" {
			return 1
		}
		return 0
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Or(unknown(a)-unknown(b), cmp.Compare(a.Title(), b.Title())) })
	return pods
}

// byPod returns the pins of each pod. Init containers come before the containers that have their
// CPUs after them: the kubelet's record has no init containers up to Kubernetes 1.36, and none has
// more CPUs than those that reuse them.
func (f *Facts) byPod() [][]peers.Pin {
	pins := slices.Clone(f.CPU.Pins)
	recorded := func(p peers.Pin) int {
		if f.Record.Of(p.PodUID, p.Container).Container {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(pins, func(a, b peers.Pin) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(recorded(a), recorded(b)), cmp.Compare(a.CPUs.Size(), b.CPUs.Size()))
	})
	var pods [][]peers.Pin
	for i, p := range pins {
		if i == 0 || p.PodUID != pins[i-1].PodUID {
			pods = append(pods, nil)
		}
		pods[len(pods)-1] = append(pods[len(pods)-1], p)
	}
	return pods
}

// known returns the plugin's containers of a pod by their names.
func (f *Facts) known(uid string) map[string]status.Container {
	found := map[string]status.Container{}
	for _, c := range f.Containers {
		if c.PodUID == uid && uid != "" && strings.Count(c.Ref, "/") > 1 {
			found[c.Ref[strings.LastIndexByte(c.Ref, '/')+1:]] = c
		}
	}
	return found
}

func (f *Facts) notes(p *Plan) []string {
	var notes []string
	note := func(when bool, text string) {
		if when {
			notes = append(notes, text)
		}
	}
	static := p.Static || p.MemoryManagerStatic
	note(!static && strings.EqualFold(f.Kubelet.CPUManagerPolicy, "static"),
		"The kubelet's configuration ("+f.Kubelet.From()+") has cpuManagerPolicy: static, which is not in force: set it to none, before the kubelet starts the next time.")
	note(f.KubeletProblem != "", "The kubelet's configuration is not known as a whole: "+f.KubeletProblem+".")
	note(p.Static && f.KubeletProblem == "" && f.Kubelet.CPUManagerPolicy == "",
		"The kubelet's configuration was not found, since what was read sets no cpuManagerPolicy: look up its options and what it reserves by hand.")
	note(p.Static && f.StatusProblem != "", "No plugin tells the names of pods: "+f.StatusProblem+". Pods have their UIDs here, which 'kubectl get pods -A -o custom-columns=UID:.metadata.uid,NAMESPACE:.metadata.namespace,NAME:.metadata.name' shows with their names.")
	note(p.Static && f.StatusProblem != "" && f.RecordProblem != "", "What other containers request is unknown: "+f.RecordProblem+". Pods that request much CPU may leave fewer CPUs than planned here.")
	note(static, "Pods of DaemonSets and static pods stay on a drained node with the CPUs that the kubelet gave them, until Sluice gives them others: restart those that are listed here.")
	n, _ := p.Refused()
	note(n > 0, humanize.Count(n, "container")+" would not get CPUs: Sluice leaves the shared pools at least one core, and what LS containers request. Move a pod to another node, or request less.")
	return notes
}
