package manifest

import (
	"fmt"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/safeyaml"
)

// object contains the part of a Kubernetes object that identifies its kind.
type object struct {
	Kind     string      `yaml:"kind"`
	Metadata metadata    `yaml:"metadata"`
	Spec     yaml.Node   `yaml:"spec"`
	Items    []yaml.Node `yaml:"items"`
}

type metadata struct {
	Name         string  `yaml:"name"`
	GenerateName string  `yaml:"generateName"`
	Namespace    string  `yaml:"namespace"`
	UID          string  `yaml:"uid"`
	Labels       textMap `yaml:"labels"`
	Annotations  textMap `yaml:"annotations"`
}

type template struct {
	Metadata metadata `yaml:"metadata"`
	Spec     podSpec  `yaml:"spec"`
}

type podSpec struct {
	RuntimeClassName  string      `yaml:"runtimeClassName"`
	PriorityClassName string      `yaml:"priorityClassName"`
	InitContainers    []container `yaml:"initContainers"`
	Containers        []container `yaml:"containers"`
	Resources         *resources  `yaml:"resources"`
}

type container struct {
	Name          string    `yaml:"name"`
	RestartPolicy string    `yaml:"restartPolicy"`
	Resources     resources `yaml:"resources"`
	line          int
}

// UnmarshalYAML also records the line.
func (c *container) UnmarshalYAML(node *yaml.Node) error {
	type plain container
	var read plain
	err := node.Decode(&read)
	*c = container(read)
	c.line = node.Line
	return err
}

// sidecar reports whether an init container continues to run beside the others.
func (c *container) sidecar() bool { return c.RestartPolicy == "Always" }

type resources struct {
	Requests amounts `yaml:"requests"`
	Limits   amounts `yaml:"limits"`
}

// amounts are a resource list; nil is a missing amount. Neither the kubelet's cgroups nor the
// QoS class depend on other resources.
type amounts struct {
	CPU    *amount              `yaml:"cpu"`
	Memory *amount              `yaml:"memory"`
	Others map[string]yaml.Node `yaml:",inline"`
}

// textMap is a map of labels or annotations, whose values must be text for the API server.
type textMap map[string]string

// UnmarshalYAML refuses values that are not text, such as numbers or booleans without quotes.
func (s *textMap) UnmarshalYAML(node *yaml.Node) error {
	var values map[string]yaml.Node
	if err := node.Decode(&values); err != nil {
		return err
	}
	*s = make(textMap, len(values))
	for key, value := range values {
		if value.Kind == yaml.AliasNode {
			value = *value.Alias
		}
		switch value.ShortTag() {
		case "!!map", "!!seq", "!!int", "!!float", "!!bool":
			return fmt.Errorf("line %d: the value of %.80q must be text: Kubernetes takes no other; put it in quotes: %.80s", value.Line, key, strconv.Quote(value.Value))
		}
		(*s)[key] = value.Value
	}
	return nil
}

// templateOf returns the pod in an object; nil if it has none.
func templateOf(o *object) (*template, error) {
	switch o.Kind {
	case "Pod":
		t := &template{Metadata: o.Metadata}
		return t, safeyaml.Decode(&o.Spec, &t.Spec)
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job":
		var spec struct {
			Template template `yaml:"template"`
		}
		err := safeyaml.Decode(&o.Spec, &spec)
		return spec.Template.of(o), err
	case "CronJob":
		var spec struct {
			JobTemplate struct {
				Spec struct {
					Template template `yaml:"template"`
				} `yaml:"spec"`
			} `yaml:"jobTemplate"`
		}
		err := safeyaml.Decode(&o.Spec, &spec)
		return spec.JobTemplate.Spec.Template.of(o), err
	}
	return nil, nil
}

// of gives the template's pods the name and namespace of their owner.
func (t *template) of(owner *object) *template {
	t.Metadata.Name, t.Metadata.Namespace = owner.Metadata.Name, owner.Metadata.Namespace
	return t
}
