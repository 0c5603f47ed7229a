// Package manifest reads Kubernetes manifests and computes what the kubelet would tell the
// container runtime about their pods: shares, quotas, limits, scores and cgroups. It ignores
// all other fields.
package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/safeyaml"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Pod is one pod of a manifest as the runtime would be told of it. The containers are in the
// order in which they start; init containers that end before the next one begins are Stopped.
type Pod struct {
	Sandbox    *workload.Pod
	Containers []workload.Container
}

// Parse parses YAML or JSON documents and returns the pods in them: objects of kind Pod, pod
// templates of workloads, and the items of a List. It ignores other kinds. The kubelet computes
// OOM scores from the capacity nodeMemory, in bytes; 0 if unknown. An error names the line.
func Parse(manifest []byte, nodeMemory int64) ([]Pod, error) {
	var pods []Pod
	decoder := yaml.NewDecoder(bytes.NewReader(manifest))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			pods, err = appendPods(pods, &document, nodeMemory)
		}
		if err != nil {
			return nil, explain(err)
		}
	}
	if len(pods) == 0 {
		return nil, errors.New("there is no pod in it: a Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, Job or CronJob is needed")
	}
	return pods, nil
}

// explain rewrites errors of the YAML library that mention Go types.
func explain(err error) error {
	var mismatch *yaml.TypeError
	if !errors.As(err, &mismatch) {
		return err
	}
	first, _, typed := strings.Cut(mismatch.Errors[0], " into ")
	if typed {
		first += ": this is not what Kubernetes has there (see kubectl explain pod.spec)"
	}
	return errors.New(first)
}

func appendPods(pods []Pod, node *yaml.Node, memory int64) ([]Pod, error) {
	var o object
	if err := safeyaml.Decode(node, &o); err != nil {
		return pods, err
	}
	objects := []object{o}
	if o.Kind == "List" {
		objects = make([]object, len(o.Items)) // a list in a list is ignored
		for i := range o.Items {
			if err := safeyaml.Decode(&o.Items[i], &objects[i]); err != nil {
				return pods, err
			}
		}
	}
	for i := range objects {
		t, err := templateOf(&objects[i])
		if err == nil && t != nil {
			var pod Pod
			pod, err = t.pod(max(node.Line, objects[i].Spec.Line), memory)
			pods = append(pods, pod)
		}
		if err != nil {
			return pods, err
		}
	}
	return pods, nil
}

func (t *template) pod(line int, memory int64) (Pod, error) {
	m, s := &t.Metadata, &t.Spec
	name := cmp.Or(m.Name, m.GenerateName)
	switch {
	case name == "":
		return Pod{}, fmt.Errorf("line %d: metadata.name is missing", line)
	case len(s.Containers) == 0:
		return Pod{}, fmt.Errorf("line %d: pod %s has no containers", line, name)
	}
	qos, uid := s.qos(), cmp.Or(m.UID, "plan")
	pod := Pod{Sandbox: &workload.Pod{
		ID: uid, UID: uid,
		Namespace:      cmp.Or(m.Namespace, "default"),
		Name:           name,
		Labels:         m.Labels,
		Annotations:    m.Annotations,
		RuntimeHandler: s.RuntimeClassName, // by convention a RuntimeClass has the name of its handler
		CgroupParent:   cgroupParent(qos, uid),
	}}
	if s.Resources != nil {
		pod.Sandbox.Resources = s.Resources.withDefaults().linux()
	}
	lowest := 1000
	for i := range s.Containers {
		lowest = min(lowest, s.oomScore(qos, s.Containers[i].Resources.withDefaults(), memory))
	}
	names := map[string]bool{}
	for i, list := range [][]container{s.InitContainers, s.Containers} {
		init := i == 0
		for j := range list {
			c := &list[j]
			if err := c.check(names); err != nil {
				return Pod{}, fmt.Errorf("pod %s: %w", name, err)
			}
			r := c.Resources.withDefaults()
			spec := workload.Container{ID: uid + "/" + c.Name, PodID: uid, Name: c.Name, Resources: r.linux(), OOMScoreAdj: s.oomScore(qos, r, memory)}
			if init && !c.sidecar() {
				spec.State = workload.Stopped
			} else if init {
				spec.OOMScoreAdj = min(spec.OOMScoreAdj, lowest)
			}
			pod.Containers = append(pod.Containers, spec)
		}
	}
	if err := s.grant(&pod); err != nil {
		return Pod{}, fmt.Errorf("pod %s: %w", name, err)
	}
	return pod, nil
}

// check refuses what the API server would refuse and what has no meaningful result.
func (c *container) check(names map[string]bool) error {
	r := c.Resources.withDefaults()
	switch {
	case c.Name == "":
		return fmt.Errorf("line %d: a container has no name", c.line)
	case names[c.Name]:
		return fmt.Errorf("line %d: there are two containers named %s", c.line, c.Name)
	case r.Limits.CPU != nil && *r.Requests.CPU > *r.Limits.CPU:
		return fmt.Errorf("line %d: container %s requests more CPU than its limit", c.line, c.Name)
	case r.Limits.Memory != nil && *r.Requests.Memory > *r.Limits.Memory:
		return fmt.Errorf("line %d: container %s requests more memory than its limit", c.line, c.Name)
	}
	names[c.Name] = true
	return nil
}
