package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// These are the annotations and labels that name a pod's class, and the annotation with its grant. The node
// reads them in pkg/workload/annotation.
const (
	classKey            = "class.sluice.dev"
	classOfPodKey       = "class.sluice.dev/pod"
	classOfContainer    = "class.sluice.dev/container."
	koordinatorClass    = "koordinator.sh/qosClass"
	koordinatorPriority = "koordinator.sh/priority-class"
	katalystClass       = "katalyst.kubewharf.io/qos_level"
	grantKey            = "grant.sluice.dev"
	grantScope          = "grant.sluice.dev/" // followed by pod or container.NAME
	staticPodKey        = "kubernetes.io/config.mirror"
	batchClass          = "BE"
	maxAnnotation       = 4096 // bytes that the node reads of an annotation
)

// class returns the class that a pod names, and whether it names one. A key of Sluice names one even if its value
// is empty. The sources have the node's precedence.
func class(metadata *yaml.Node) (string, bool) {
	annotations, labels := at(metadata, "annotations"), at(metadata, "labels")
	for _, key := range []string{classOfPodKey, classKey} {
		if index(annotations, key) >= 0 {
			return strings.TrimSpace(text(annotations, key)), true
		}
	}
	if named := text(labels, koordinatorClass); named != "" {
		return named, true
	}
	if priority := text(labels, koordinatorPriority); priority == "koord-batch" || priority == "koord-free" {
		return batchClass, true
	}
	level := text(annotations, katalystClass)
	if level == "reclaimed_cores" {
		return batchClass, true
	}
	return level, level != ""
}

// kept returns why a pod stays as it is; "" if it is to be converted.
func (c *converter) kept(owner *yaml.Node) string {
	metadata := at(owner, "metadata")
	switch name, named := class(metadata); {
	case !named && !c.batch:
		return "it names no class; annotate class.sluice.dev: BE, or convert all such pods with --batch"
	case named && name != batchClass:
		return "its class is " + strconv.Quote(name)
	case index(at(metadata, "annotations"), staticPodKey) >= 0:
		return "it is the copy of a static pod, which must equal the file on its node"
	case isMapping(at(owner, "spec", "resources")):
		return "its resources are those of the pod as a whole, where Kubernetes knows no batch resources; give its containers their own"
	case text(owner, "spec", "os", "name") == "windows", text(owner, "spec", "nodeSelector", "kubernetes.io/os") == "windows":
		return "it runs on Windows, whose nodes have no batch resources"
	case strings.HasPrefix(text(owner, "spec", "priorityClassName"), "system-"):
		return "its priority is that of the system"
	}
	annotations := at(metadata, "annotations")
	for i := 0; annotations != nil && i+1 < len(annotations.Content); i += 2 {
		key, value := annotations.Content[i].Value, strings.TrimSpace(annotations.Content[i+1].Value)
		if strings.HasPrefix(key, classOfContainer) && value != batchClass {
			return "annotation " + key + " gives a container the class " + strconv.Quote(value)
		}
	}
	if hasHugePages(owner) {
		return "it has huge pages, which Kubernetes takes only beside CPU or memory"
	}
	if hasAlias(owner) {
		return "it has YAML anchors or aliases, which stand for several places at once; write them out"
	}
	return ""
}

// hasHugePages reports whether a container has huge pages. Their request must equal their limit.
func hasHugePages(owner *yaml.Node) bool {
	for _, list := range []string{"containers", "initContainers"} {
		for _, container := range sequence(at(owner, "spec", list)) {
			limits := at(container, "resources", "limits")
			for i := 0; limits != nil && i+1 < len(limits.Content); i += 2 {
				if strings.HasPrefix(limits.Content[i].Value, "hugepages-") {
					return true
				}
			}
		}
	}
	return false
}

// pod converts the pod whose metadata and spec are in owner, and reports whether that changed anything.
func (c *converter) pod(owner *yaml.Node, name string) bool {
	if why := c.kept(owner); why != "" {
		c.note(owner, name, "is left as it is: %s", why)
		return false
	}
	var all []container
	for _, list := range []string{"containers", "initContainers"} {
		for _, node := range sequence(at(owner, "spec", list)) {
			read, err := c.container(node)
			if err != nil {
				c.note(node, name, "is left as it is: container %s %v", read.name, err)
				return false
			}
			all = append(all, read)
		}
	}
	notes := len(c.notes)
	c.note(owner, name, "")
	changed := false
	for i := range all {
		if text := all[i].move(&c.target); text != "" {
			c.note(all[i].node, name, "container %s: %s", all[i].name, text)
			changed = true
		}
	}
	changed = c.annotate(owner, all) || changed
	changed = c.prioritize(at(owner, "spec")) || changed
	c.notes[notes].Text = "is a batch pod already"
	if changed {
		c.notes[notes].Text = "becomes a batch pod of priority class " + text(owner, "spec", "priorityClassName")
	}
	return changed
}

func sequence(node *yaml.Node) []*yaml.Node {
	if node == nil || node.Kind != yaml.SequenceNode {
		return nil
	}
	return node.Content
}

// annotate writes class and grant, and removes other annotations that name a grant.
func (c *converter) annotate(owner *yaml.Node, all []container) bool {
	annotations := child(child(owner, "metadata"), "annotations")
	changed := false
	if index(annotations, classKey) < 0 && index(annotations, classOfPodKey) < 0 {
		set(annotations, classKey, batchClass)
		changed = true
	}
	for i := len(annotations.Content) - 2; i >= 0; i -= 2 {
		if strings.HasPrefix(annotations.Content[i].Value, grantScope) {
			changed = remove(annotations, annotations.Content[i].Value) || changed
		}
	}
	text := grant(all)
	if text == "" {
		return remove(annotations, grantKey) || changed
	}
	if at := at(annotations, grantKey); at == nil || at.Value != text {
		set(annotations, grantKey, text)
		changed = true
	}
	return changed
}

// grant returns the annotation that tells the node what each container requests, where the kubelet's record
// doesn't; "" for none, or one that is longer than the node reads.
func grant(all []container) string {
	var grants []string
	for i := range all {
		var parts []string
		if all[i].milli > 0 {
			parts = append(parts, fmt.Sprintf(`"cpu":"%dm"`, all[i].milli))
		}
		if all[i].bytes > 0 {
			parts = append(parts, fmt.Sprintf(`"memory":"%d"`, all[i].bytes))
		}
		if len(parts) > 0 {
			name, _ := json.Marshal(all[i].name) // a string can always be marshalled
			grants = append(grants, fmt.Sprintf("%s:{%s}", name, strings.Join(parts, ",")))
		}
	}
	text := "{" + strings.Join(grants, ",") + "}"
	if len(grants) == 0 || len(text) > maxAnnotation {
		return ""
	}
	return text
}

// prioritize gives a pod the batch priority class, unless it names one that it may keep. Priority and
// preemption policy follow from the class when the pod is created.
func (c *converter) prioritize(spec *yaml.Node) bool {
	old := text(spec, "priorityClassName")
	if old == c.target.PriorityClass || slices.Contains(c.target.KeptPriorityClasses, old) {
		return false
	}
	set(spec, "priorityClassName", c.target.PriorityClass)
	remove(spec, "priority")
	remove(spec, "preemptionPolicy")
	return true
}
