package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/pkg/workload/convert"
)

func policy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../configs/kubernetes/policies", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// variable returns the texts in quotes in a variable of a policy.
func variable(t *testing.T, policy, name string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(policy, "- name: "+name+"\n")
	list, _, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		t.Fatalf("there is no list %s", name)
	}
	var texts []string
	for _, m := range regexp.MustCompile("'([^']+)'").FindAllStringSubmatch(list, -1) {
		texts = append(texts, m[1])
	}
	return texts
}

// The policy knows the keys that the node knows.
func TestPolicyKnowsTheKeys(t *testing.T) {
	t.Parallel()
	text := policy(t, "annotations.yaml")
	if got := variable(t, text, "keys"); !slices.Equal(got, annotation.Keys()) {
		t.Errorf("the keys are %q, want %q", got, annotation.Keys())
	}
	if got := variable(t, text, "ofConfig"); !slices.Equal(got, annotation.GivenKeys()) {
		t.Errorf("the configuration's keys are %q, want %q", got, annotation.GivenKeys())
	}
}

// What a policy refuses, it refuses with the words of the node. CEL cannot find the nearest word, so that it lists
// the keys where the node asks "did you mean".
func TestPoliciesSpeakAsTheNode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ policy, key, value, message string }{
		{"annotations.yaml", "xyzzy.sluice.dev", "1", "is not a key that Sluice knows; the keys are "},
		{"annotations.yaml", "weight.sluice.dev", "1", "is not a key that a pod may say: the node's config gives it to classes, pools or the pods that a classify rule matches"},
		{"annotations.yaml", "class.sluice.dev/main", "LSE", "is not a key that Sluice knows: after the slash comes pod or container.NAME"},
		{"annotations.yaml", "class.sluice.dev", "gold", "must be LSE, LSR, LS, BE or SYSTEM"},
		{"pinned.yaml", "class.sluice.dev", "LSR", " pins whole CPUs, and this container requests "},
		{"pinned.yaml", "class.sluice.dev", "LSR", ", or annotate class.sluice.dev/container."},
	} {
		pod := &workload.Pod{Namespace: "default", Name: "p", Annotations: map[string]string{test.key: test.value}, CgroupParent: "/kubepods/burstable/podx"}
		c := &workload.Container{Name: "main", Resources: workload.Resources{Shares: 512}}
		_, _, err := (&annotation.Rules{}).Request(annotation.Facts{}, pod, c)
		if err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("the node says %v of %s = %s, and not %q", err, test.key, test.value, test.message)
		}
		if !strings.Contains(policy(t, test.policy), test.message) {
			t.Errorf("%s doesn't say %q", test.policy, test.message)
		}
	}
}

// The names and priorities of the parameters are those of the other files and of "sluice convert".
func TestPolicyParameters(t *testing.T) {
	t.Parallel()
	var parameters struct{ Data map[string]string }
	text := policy(t, "parameters.yaml")
	if err := yaml.Unmarshal([]byte(text), &parameters); err != nil {
		t.Fatal(err)
	}
	target := convert.For("sluice")
	data := parameters.Data
	if data["cpu"] != target.CPU || data["memory"] != target.Memory || data["priorityClass"] != target.PriorityClass ||
		!slices.Equal(strings.Fields(data["keptPriorityClasses"]), target.KeptPriorityClasses) {
		t.Errorf("%q, and convert has %+v", data, target)
	}
	ours := variable(t, policy(t, "own-node.yaml"), "resources")
	for _, scheme := range convert.Schemes() {
		target := convert.For(scheme)
		if !strings.Contains(text, target.CPU) || !strings.Contains(text, target.Memory) {
			t.Errorf("parameters.yaml doesn't name the resources of %s", scheme)
		}
		if kept := strings.Join(target.KeptPriorityClasses, " "); !strings.Contains(text, kept) {
			t.Errorf("parameters.yaml doesn't name the priority classes that pods of %s keep: %s", scheme, kept)
		}
		if !slices.Contains(ours, target.CPU) || !slices.Contains(ours, target.Memory) {
			t.Errorf("own-node.yaml doesn't let the agent publish the resources of %s", scheme)
		}
	}
	found := map[string]bool{}
	decoder := yaml.NewDecoder(strings.NewReader(policy(t, "priorities.yaml")))
	for {
		var class struct {
			Metadata         struct{ Name string }
			Value            int
			PreemptionPolicy string `yaml:"preemptionPolicy"`
		}
		if decoder.Decode(&class) != nil {
			break
		}
		found[class.Metadata.Name] = true
		if class.Metadata.Name == target.PriorityClass && (fmt.Sprint(class.Value) != data["priority"] || class.PreemptionPolicy != data["preemptionPolicy"]) {
			t.Errorf("%+v, and parameters.yaml has %q", class, data)
		}
	}
	for _, name := range append(target.KeptPriorityClasses, target.PriorityClass) {
		if !found[name] {
			t.Errorf("priorities.yaml has no %s", name)
		}
	}
}
