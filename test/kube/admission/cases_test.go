package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/pkg/workload/convert"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

// limits makes the limits of a container from pairs of name and amount.
func limits(pairs ...string) corev1.ResourceRequirements {
	list := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return corev1.ResourceRequirements{Limits: list}
}

type testCase struct {
	Name, Resources, Manifest string
	Batch, Refused            bool
}

func (c *testCase) namespace() string {
	if c.Batch {
		return "etl"
	}
	return "default"
}

func cases(t *testing.T) []testCase {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "pkg/workload/convert/testdata/cases.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []testCase
	if err := yaml.Unmarshal(text, &all); err != nil || len(all) < 40 {
		t.Fatalf("%d cases: %v", len(all), err)
	}
	return all
}

// podsOf returns the pods that a manifest has, and those that controllers would make of its workloads, which copy
// labels, annotations and spec of the template (GetPodFromTemplate in Kubernetes' pkg/controller).
func podsOf(t *testing.T, manifest, namespace string) []*corev1.Pod {
	t.Helper()
	objects, err := bed.Objects(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	for len(objects) > 0 {
		object := objects[0]
		objects = objects[1:]
		var owner map[string]any
		switch object.GetKind() {
		case "List":
			items, _, _ := unstructured.NestedSlice(object.Object, "items")
			for _, item := range items {
				objects = append(objects, &unstructured.Unstructured{Object: item.(map[string]any)})
			}
		case "Pod":
			owner = object.Object
		case "CronJob":
			owner, _, _ = unstructured.NestedMap(object.Object, "spec", "jobTemplate", "spec", "template")
		default:
			owner, _, _ = unstructured.NestedMap(object.Object, "spec", "template")
		}
		if owner == nil {
			continue
		}
		text, err := json.Marshal(owner)
		if err != nil {
			t.Fatal(err)
		}
		automount := false
		p := &corev1.Pod{}
		if err := json.Unmarshal(text, p); err != nil {
			t.Fatal(err)
		}
		p.Name, p.Namespace, p.Spec.AutomountServiceAccountToken = "p", namespace, &automount
		pods = append(pods, p)
	}
	if len(pods) == 0 {
		t.Fatal("there is no pod in the case")
	}
	return pods
}

// accept creates all pods of a manifest in dry runs, and returns what the API server made of them; nil for a pod
// that it refused.
func accept(t *testing.T, client kubernetes.Interface, manifest, namespace string) []*corev1.Pod {
	t.Helper()
	var made []*corev1.Pod
	for _, p := range podsOf(t, manifest, namespace) {
		got, err := create(t, client, p, true)
		if err != nil {
			t.Logf("%s: refused: %v", p.Name, err)
			got = nil
		} else {
			got.ObjectMeta = metav1.ObjectMeta{Labels: got.Labels, Annotations: got.Annotations}
		}
		made = append(made, got)
	}
	return made
}

// koordinatorPriorities are the priority classes of Koordinator's batch pods, as its chart has them.
const koordinatorPriorities = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: koord-batch}
value: 5000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: koord-free}
value: 3000
`

// TestCases compares what the policies make of a pod with what the API server, without policies, makes of the pod
// that "sluice convert" wrote. What the latter wrote, the policies leave as it is.
func TestCases(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	cluster.Apply(t, policy(t, "priorities.yaml")+"---\n"+koordinatorPriorities)
	all := cases(t)
	converted := map[string]string{}
	want := map[string][]*corev1.Pod{}
	schemes := map[string][]testCase{}
	for _, c := range all {
		t.Run("converted/"+c.Name, func(t *testing.T) {
			out, _, err := convert.Manifest([]byte(c.Manifest), convert.For(c.Resources), c.Batch)
			if err != nil {
				t.Fatal(err)
			}
			converted[c.Name] = string(out)
			want[c.Name] = accept(t, client, string(out), c.namespace())
			if slices.Contains(want[c.Name], nil) != c.Refused {
				t.Errorf("refused: %t", !c.Refused)
			}
		})
		schemes[c.Resources] = append(schemes[c.Resources], c)
	}
	for _, scheme := range slices.Sorted(maps.Keys(schemes)) {
		install(t, cluster, scheme)
		for _, c := range schemes[scheme] {
			t.Run("policies/"+c.Name, func(t *testing.T) {
				compare(t, accept(t, client, c.Manifest, c.namespace()), want[c.Name])
			})
			t.Run("both/"+c.Name, func(t *testing.T) {
				compare(t, accept(t, client, converted[c.Name], c.namespace()), want[c.Name])
			})
		}
	}
}

func compare(t *testing.T, got, want []*corev1.Pod) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d pods, want %d", len(got), len(want))
	}
	for i := range got {
		if !equality.Semantic.DeepEqual(got[i], want[i]) {
			t.Errorf("got\n%s\nwant\n%s", show(got[i]), show(want[i]))
		}
	}
}

func show(p *corev1.Pod) string {
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}
