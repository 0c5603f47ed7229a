package convert

import (
	"cmp"
	"strings"

	"gopkg.in/yaml.v3"
)

// object converts the pods in an object, and reports whether it changed any.
func (c *converter) object(o *yaml.Node) bool {
	if text(o, "kind") == "List" && text(o, "apiVersion") == "v1" {
		changed := false
		if items := at(o, "items"); items != nil && items.Kind == yaml.SequenceNode {
			for _, item := range items.Content {
				changed = text(item, "kind") != "List" && c.object(item) || changed
			}
		}
		return changed
	}
	name := text(o, "kind") + " " + title(o)
	owner, ok := podOwner(o)
	switch {
	case !ok:
		if group, _, _ := strings.Cut(text(o, "apiVersion"), "/"); strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
			c.note(o, name, "is left as it is: only Kubernetes' own kinds are converted; the admission policies convert the pods that its controller creates")
		}
		return false
	case !isMapping(at(owner, "spec")):
		c.note(o, name, "is left as it is: it has no pod")
		return false
	}
	return c.pod(owner, name)
}

// title returns the name of an object with its namespace, if it has one.
func title(o *yaml.Node) string {
	name := cmp.Or(text(o, "metadata", "name"), text(o, "metadata", "generateName"), "without a name")
	if namespace := text(o, "metadata", "namespace"); namespace != "" {
		return namespace + "/" + name
	}
	return name
}

// podOwner returns the mapping in an object that has the metadata and the spec of its pods. False is an
// object that has none.
func podOwner(o *yaml.Node) (*yaml.Node, bool) {
	switch text(o, "apiVersion") + " " + text(o, "kind") {
	case "v1 Pod":
		return o, true
	case "v1 ReplicationController", "apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 DaemonSet", "apps/v1 ReplicaSet", "batch/v1 Job":
		return at(o, "spec", "template"), true
	case "batch/v1 CronJob":
		return at(o, "spec", "jobTemplate", "spec", "template"), true
	}
	return nil, false
}
