// Package whatif answers what the pods of a manifest would get before they exist: from the
// running plugin, or by a configuration on an empty machine.
package whatif

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/pkg/workload/manifest"
	"github.com/sluice-dev/sluice/topology"
)

// Plan is a pod with what its containers would get.
type Plan struct {
	Pod        string               `json:"pod"` // "namespace/name"
	QoS        workload.QoS         `json:"qos"`
	Answers    []status.Answer      `json:"answers"`
	Containers []workload.Container `json:"-"` // as the kubelet would request them, in the order of Answers
}

// Planner answers what pods would get.
type Planner interface {
	// Memory returns the node's capacity in bytes.
	Memory() (int64, error)
	// Plan answers for each of a pod's containers, in their order.
	Plan(manifest.Pod) ([]status.Answer, error)
}

// Pods answers for all pods of a manifest, each as if it were the only new pod. Errors name the
// manifest's file.
func Pods(p Planner, file string, text []byte) ([]Plan, error) {
	memory, err := p.Memory()
	if err != nil {
		return nil, err
	}
	pods, err := manifest.Parse(text, memory)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	plans := make([]Plan, len(pods))
	for i, pod := range pods {
		answers, err := p.Plan(pod)
		if err != nil {
			return nil, err
		}
		if len(answers) != len(pod.Containers) {
			return nil, fmt.Errorf("the plugin answers for %d of %s: its version is another than this program's", len(answers), humanize.Count(len(pod.Containers), "container"))
		}
		plans[i] = Plan{Pod: pod.Sandbox.Namespace + "/" + pod.Sandbox.Name, QoS: pod.Sandbox.QoS(), Answers: answers, Containers: pod.Containers}
	}
	return plans, nil
}

// OnEmpty returns a planner for an empty machine with a configuration file; "" is the built-in
// one.
func OnEmpty(machine *topology.Machine, file string) (Planner, error) {
	unusable := func(err error) error {
		return fmt.Errorf("%s can't be used: %s", cmp.Or(file, "the built-in configuration"), strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	parsed := config.Default()
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if parsed, err = config.Parse(text); err != nil {
			return nil, unusable(err)
		}
	}
	if _, err := parsed.Fit(machine); err != nil {
		return nil, unusable(err)
	}
	return Empty{Config: parsed, Machine: machine}, nil
}

// Refusals returns an error if a container would be refused.
func Refusals(plans []Plan) error {
	refused, total, first := 0, 0, ""
	for _, p := range plans {
		for _, a := range p.Answers {
			total++
			if a.Problem != "" {
				refused++
				first = cmp.Or(first, a.Ref)
			}
		}
	}
	switch refused {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("container %s would be refused", first)
	}
	return fmt.Errorf("%d of %s would be refused, %s first", refused, humanize.Count(total, "container"), first)
}

// OCI returns what the runtime's spec would contain for each container that is not refused: the
// kubelet's values with Sluice's changes.
func OCI(plans []Plan) map[string]*specs.LinuxResources {
	out := map[string]*specs.LinuxResources{}
	for _, p := range plans {
		for i, a := range p.Answers {
			if a.Problem == "" {
				out[a.Ref] = resources(p.Containers[i].Resources, a)
			}
		}
	}
	return out
}

func resources(r workload.Resources, a status.Answer) *specs.LinuxResources {
	cpu := &specs.LinuxCPU{Shares: &r.Shares, Period: &r.Period, Cpus: a.CPUs.String(), Mems: a.Mems.String()}
	const lifted = -1
	if a.Unlimited {
		r.Quota = lifted
	}
	if r.Quota != 0 {
		cpu.Quota = &r.Quota
	}
	out := &specs.LinuxResources{CPU: cpu}
	if r.MemoryLimit > 0 {
		out.Memory = &specs.LinuxMemory{Limit: &r.MemoryLimit}
	}
	return out
}

// Live is a planner that asks the running plugin.
type Live struct{ Client *statusapi.Client }

// Memory returns the capacity of the plugin's machine.
func (p Live) Memory() (int64, error) {
	s, err := p.Client.Status()
	if err != nil {
		return 0, err
	}
	return s.Machine.MemoryBytes, nil
}

// Plan returns the plugin's answers, which consider its present containers.
func (p Live) Plan(pod manifest.Pod) ([]status.Answer, error) {
	return p.Client.WhatIf(pod.Sandbox, pod.Containers)
}

// Empty is a planner for a machine on which nothing runs.
type Empty struct {
	Config  *config.Config // validated against the machine
	Machine *topology.Machine
}

// Memory returns the capacity of the machine.
func (p Empty) Memory() (int64, error) { return p.Machine.Memory(p.Machine.MemoryNodes()), nil }

// Plan answers by the configuration.
func (p Empty) Plan(pod manifest.Pod) ([]status.Answer, error) {
	parse := func(c *workload.Container) (workload.Request, []string, error) { return p.parse(pod.Sandbox, c) }
	return status.WhatIf(placement.New(p.Config.Policy(), p.Machine), pod.Sandbox, pod.Containers, parse, time.Now()), nil
}

func (p Empty) parse(pod *workload.Pod, c *workload.Container) (workload.Request, []string, error) {
	memory, _ := p.Memory()
	facts := annotation.Facts{ThreadsPerCore: p.Machine.ThreadsPerCore(), Memory: memory, Granted: c.Granted}
	r, found, err := p.Config.Request(facts, pod, c)
	var warnings []string
	for _, w := range found {
		warnings = append(warnings, w.Text)
	}
	if err == nil && p.Config.RunsInVM(pod) {
		const where = "runs in a virtual machine, inside which Sluice sets no CPUs"
		if r.Class.Pinned() {
			return r, warnings, fmt.Errorf("class %s can't be kept: the pod %s (runtime class %q); use LS or BE, or another runtime class", r.Class, where, pod.RuntimeHandler)
		}
		warnings = append(warnings, "the pod "+where+": it is accounted only")
	}
	return r, warnings, err
}
