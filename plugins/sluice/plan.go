package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"

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

func newPlan() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan -f pod.yaml",
		Short: "Show what a pod would get, without creating it",
		Long: `Show which CPUs and settings the containers of a pod would get, without creating
anything. Manifests may be of kind Pod, Deployment, StatefulSet, DaemonSet,
ReplicaSet, Job and CronJob. Each pod is planned alone, as if it were the next
one to start.

The running plugin answers for the node as it is now. With --machine or
--host-root the pod is planned on an empty machine, and no plugin is needed.

Exit status: 0 all containers can be placed, 1 at least one would be refused.`,
		Example: `  sluice plan -f pod.yaml
  kubectl get pod db-0 -o yaml | sluice plan -f -
  sluice plan -f pod.yaml --machine "2 packages 16 cores" -c sluice.yaml
  sluice plan -f pod.yaml -o oci`,
		Args: flagsAlone,
	}
	output := outputFlag(c, "table", "json", "oci")
	socket := socketFlag(c)
	file := c.Flags().StringP("file", "f", "", "manifest `file`; - is standard input")
	configFile := c.Flags().StringP("config", "c", "", "configuration `file`, only with --machine or --host-root (default: the built-in one)")
	required(c, "file")
	from := newMachineFlags(c, "")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *configFile != "" && !from.given() {
			return errors.New("--config needs --machine or --host-root: the running plugin plans by its own configuration")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		text, err := readInput(c, *file)
		if err != nil {
			return err
		}
		var planner planner = livePlanner{statusapi.NewClient(*socket)}
		if from.given() {
			if planner, err = newEmptyPlanner(from, *configFile); err != nil {
				return err
			}
		}
		plans, err := planAll(planner, *file, text)
		if err != nil {
			return err
		}
		return writePlans(c.OutOrStdout(), output.value, plans)
	}
	return c
}

// planned is one pod with what it would get.
type planned struct {
	Pod        string               `json:"pod"` // "namespace/name"
	QoS        workload.QoS         `json:"qos"`
	Answers    []status.Answer      `json:"answers"`
	containers []workload.Container // as the kubelet would ask for them, by Answers
}

// planner answers what pods would get.
type planner interface {
	// memory is the node's capacity in bytes.
	memory() (int64, error)
	plan(manifest.Pod) ([]status.Answer, error)
}

func planAll(p planner, file string, text []byte) ([]planned, error) {
	memory, err := p.memory()
	if err != nil {
		return nil, err
	}
	pods, err := manifest.Parse(text, memory)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	plans := make([]planned, len(pods))
	for i, pod := range pods {
		answers, err := p.plan(pod)
		if err != nil {
			return nil, err
		}
		if len(answers) != len(pod.Containers) {
			return nil, fmt.Errorf("the plugin answers for %d of %s: its version is another than this program's", len(answers), humanize.Count(len(pod.Containers), "container"))
		}
		plans[i] = planned{Pod: pod.Sandbox.Namespace + "/" + pod.Sandbox.Name, QoS: pod.Sandbox.QoS(), Answers: answers, containers: pod.Containers}
	}
	return plans, nil
}

func writePlans(w io.Writer, format string, plans []planned) error {
	var err error
	switch format {
	case "json":
		err = writeJSON(w, plans)
	case "oci":
		err = writeJSON(w, ociResources(plans))
	default:
		_, err = io.WriteString(w, planText(plans))
	}
	if err != nil {
		return err
	}
	return refusals(plans)
}

// refusals is an error where a container would be refused.
func refusals(plans []planned) error {
	refused, total, first := 0, 0, ""
	for _, p := range plans {
		for _, a := range p.Answers {
			total++
			if a.Error != "" {
				refused++
				first = or(first, a.Ref)
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

// ociResources is what the runtime's spec would hold for each container that is
// not refused: the kubelet's values with Sluice's.
func ociResources(plans []planned) map[string]*specs.LinuxResources {
	out := map[string]*specs.LinuxResources{}
	for _, p := range plans {
		for i, a := range p.Answers {
			if a.Error == "" {
				out[a.Ref] = oci(p.containers[i].Resources, a)
			}
		}
	}
	return out
}

func oci(r workload.Resources, a status.Answer) *specs.LinuxResources {
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

// livePlanner asks the running plugin.
type livePlanner struct{ client *statusapi.Client }

func (p livePlanner) memory() (int64, error) {
	s, err := p.client.Status()
	if err != nil {
		return 0, err
	}
	return s.Machine.Memory, nil
}

func (p livePlanner) plan(pod manifest.Pod) ([]status.Answer, error) {
	return p.client.WhatIf(pod.Sandbox, pod.Containers)
}

// emptyPlanner answers for a machine on which nothing runs.
type emptyPlanner struct {
	config  *config.Config
	machine *topology.Machine
}

func newEmptyPlanner(from *machineFlags, configFile string) (planner, error) {
	parsed := config.Default()
	if configFile != "" {
		var err error
		if parsed, err = readConfig(configFile); err != nil {
			return nil, err
		}
	}
	machine, err := from.read()
	if err != nil {
		return nil, err
	}
	if _, err := parsed.Validate(machine); err != nil {
		return nil, unusable(configFile, err)
	}
	return emptyPlanner{config: parsed, machine: machine}, nil
}

func (p emptyPlanner) memory() (int64, error) { return p.machine.Memory(p.machine.MemoryNodes()), nil }

func (p emptyPlanner) plan(pod manifest.Pod) ([]status.Answer, error) {
	ask := func(c *workload.Container) (workload.Request, []string, error) { return p.ask(pod.Sandbox, c) }
	return status.WhatIf(placement.New(p.config.Policy(), p.machine), pod.Sandbox, pod.Containers, ask, time.Now()), nil
}

func (p emptyPlanner) ask(pod *workload.Pod, c *workload.Container) (workload.Request, []string, error) {
	memory, _ := p.memory()
	facts := annotation.Facts{ThreadsPerCore: p.machine.ThreadsPerCore(), Memory: memory, Granted: c.Granted}
	r, found, err := p.config.Request(facts, pod, c)
	var warnings []string
	for _, w := range found {
		warnings = append(warnings, w.Text)
	}
	if err == nil && p.config.RunsInVM(pod) {
		const where = "runs in a virtual machine, inside which Sluice sets no CPUs"
		if r.Class.Pinned() {
			return r, warnings, fmt.Errorf("class %s can't be kept: the pod %s (runtime class %q); use LS or BE, or another runtime class", r.Class, where, pod.RuntimeHandler)
		}
		warnings = append(warnings, "the pod "+where+": it is accounted only")
	}
	return r, warnings, err
}
