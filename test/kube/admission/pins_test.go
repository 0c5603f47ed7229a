package admission

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

// TestPins: pods of class LSE and LSR request the CPUs that they get for themselves.
func TestPins(t *testing.T) {
	t.Parallel()
	cluster := start(t)
	cluster.Apply(t, policy(t, "pins.yaml"))
	client := cluster.Client(t)
	const lsr = "annotations: {class.sluice.dev: LSR}"
	whole := "limits: {cpu: 2, memory: 1Gi}"
	container := func(name, resources string) string {
		return fmt.Sprintf("  - {name: %s, image: x, resources: {%s}}\n", name, resources)
	}
	requests := func(metadata, containers string) (map[string]int64, error) {
		pods := podsOf(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p, "+metadata+"}\nspec:\n  containers:\n"+containers, "default")
		made, err := create(t, client, pods[0], true)
		if err != nil {
			return nil, err
		}
		got := map[string]int64{}
		for _, list := range [][]corev1.Container{made.Spec.Containers, made.Spec.InitContainers} {
			for i := range list {
				request, limit := list[i].Resources.Requests[selling.PinnableCPU], list[i].Resources.Limits[selling.PinnableCPU]
				if request.Cmp(limit) != 0 {
					t.Errorf("container %s requests %s, and its limit is %s", list[i].Name, request.String(), limit.String())
				}
				if !request.IsZero() {
					got[list[i].Name] = request.Value()
				}
			}
		}
		return got, nil
	}
	bed.Await(t, "the policy acts", func() error {
		if got, err := requests(lsr, container("a", whole)); err != nil || got["a"] != 2 {
			return fmt.Errorf("requests %v: %w", got, err)
		}
		return nil
	})
	for name, test := range map[string]struct {
		metadata, containers string
		want                 map[string]int64
	}{
		"LSE":                          {"annotations: {class.sluice.dev: LSE}", container("a", whole), map[string]int64{"a": 2}},
		"no class":                     {"", container("a", whole), nil},
		"another class":                {"annotations: {class.sluice.dev: LS}", container("a", whole), nil},
		"a sidecar with a fraction":    {lsr, container("a", whole) + container("b", "limits: {cpu: 100m, memory: 1Gi}"), map[string]int64{"a": 2}},
		"the class of one container":   {"annotations: {class.sluice.dev/container.b: LSE}", container("a", whole) + container("b", whole), map[string]int64{"b": 2}},
		"a container of another class": {"annotations: {class.sluice.dev: LSR, class.sluice.dev/container.b: LS}", container("a", whole) + container("b", whole), map[string]int64{"a": 2}},
		"an init container":            {lsr, container("a", whole) + "  initContainers:\n" + container("i", "limits: {cpu: 3, memory: 1Gi}"), map[string]int64{"a": 2, "i": 3}},
		"thousandths that are whole":   {lsr, container("a", "limits: {cpu: 4000m, memory: 1Gi}"), map[string]int64{"a": 4}},
		"a limit above the request":    {lsr, container("a", "requests: {cpu: 1}, limits: {cpu: 2}"), nil},
		"no resources":                 {lsr, container("a", ""), nil},
		"fewer than requested":         {"annotations: {class.sluice.dev: LSR, cpus.sluice.dev: '1'}", container("a", whole), map[string]int64{"a": 1}},
		"fewer than a fraction":        {"annotations: {class.sluice.dev: LSR, cpus.sluice.dev/container.a: '1'}", container("a", "limits: {cpu: 1500m, memory: 1Gi}"), map[string]int64{"a": 1}},
		"nonsense for a number":        {"annotations: {class.sluice.dev: LSR, cpus.sluice.dev: '99999999999999999999'}", container("a", whole), map[string]int64{"a": 2}},
		"Koordinator's class":          {"labels: {koordinator.sh/qosClass: LSR}", container("a", whole), map[string]int64{"a": 2}},
		"Koordinator's batch":          {"labels: {koordinator.sh/qosClass: BE}", container("a", whole), nil},
		"Katalyst's class":             {"annotations: {katalyst.kubewharf.io/qos_level: dedicated_cores}", container("a", whole), map[string]int64{"a": 2}},
		"Sluice's class before theirs": {"annotations: {class.sluice.dev: LS}, labels: {koordinator.sh/qosClass: LSR}", container("a", whole), nil},
		"a forged amount":              {lsr, container("a", `limits: {cpu: 2, memory: 1Gi, sluice.dev/pinnable-cpu: "1"}`), map[string]int64{"a": 2}},
		"resources of the whole pod":   {lsr, container("a", "") + "  resources: {limits: {cpu: 2, memory: 1Gi}}\n", nil},
	} {
		got, err := requests(test.metadata, test.containers)
		if err != nil || !maps.Equal(got, test.want) {
			t.Errorf("%s: requests %v, want %v: %v", name, got, test.want, err)
		}
	}
}
