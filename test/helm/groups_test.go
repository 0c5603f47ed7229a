package helm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// matches reports whether the pod may be on a node with the labels, as the scheduler decides:
// see "Assigning Pods to Nodes" in the Kubernetes documentation. NotIn holds for a node without
// the label.
func (p podSpec) matches(labels map[string]string) bool {
	for key, value := range p.NodeSelector {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	terms := p.Affinity.NodeAffinity.Required.NodeSelectorTerms
	for _, term := range terms {
		if !slices.ContainsFunc(term.MatchExpressions, func(e expression) bool {
			has, ok := labels[e.Key]
			return e.Operator != "NotIn" || ok && slices.Contains(e.Values, has)
		}) {
			return true
		}
	}
	return len(terms) == 0
}

type group struct {
	Name         string            `json:"name,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// No node has two pods of Sluice, whatever the groups' selectors are: it has that of the first
// group which matches, as the values say.
func TestGroupsDoNotOverlap(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(least int) map[string]string {
		labels := map[string]string{}
		for len(labels) < least {
			for _, key := range []string{"a", "b", "c"} {
				if random.IntN(2) == 0 {
					labels[key] = fmt.Sprint(random.IntN(2))
				}
			}
		}
		return labels
	}
	for range 20 {
		groups := []group{}
		for i := range random.IntN(5) {
			groups = append(groups, group{fmt.Sprint("g", i), pick(1)})
		}
		rest := pick(0)
		values, err := yaml.Marshal(map[string]any{"nodeGroups": groups, "nodeSelector": rest})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, values, 0o600); err != nil {
			t.Fatal(err)
		}
		sets := map[string]podSpec{}
		for _, o := range objects(t, render(t, "sluice", "sluice", "--no-hooks", "--values", file)) {
			if o.Kind == "DaemonSet" {
				sets[o.Metadata.Name] = o.Spec.Template.Spec
			}
		}
		if len(sets) != len(groups)+1 {
			t.Fatalf("%d DaemonSets for %d groups and the rest", len(sets), len(groups))
		}
		for range 100 {
			node := pick(0)
			node["kubernetes.io/os"] = "linux"
			want := ""
			for _, g := range append(slices.Clone(groups), group{"", rest}) {
				if podSpec.matches(podSpec{NodeSelector: g.NodeSelector}, node) {
					want = "sluice"
					if g.Name != "" {
						want += "-" + g.Name
					}
					break
				}
			}
			var got []string
			for _, name := range slices.Sorted(maps.Keys(sets)) {
				if sets[name].matches(node) {
					got = append(got, name)
				}
			}
			if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want}) {
				t.Fatalf("node %v has pods of %q, want %q, with\n%s", node, got, want, values)
			}
		}
	}
}

// sluice-kube is on a node as long as a pod of Sluice is: also while the node is given back, where it
// closes the sale and lets what batch pods free go.
func TestKubeIsWhereverSluiceIs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	for mode, want := range map[string][]string{
		"on":      {"sluice", "sluice-a", "sluice-kube", "sluice-kube-a"},
		"preview": {"sluice", "sluice-a", "sluice-kube", "sluice-kube-a"},
		"restore": {"sluice", "sluice-a", "sluice-kube", "sluice-kube-a"},
		"off":     {"sluice", "sluice-kube"},
	} {
		values := fmt.Sprintf("{kube: {enabled: true}, nodeGroups: [{name: a, nodeSelector: {a: b}, mode: %q}]}", mode)
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range objects(t, render(t, "sluice", "sluice", "--no-hooks", "--values", file)) {
			if o.Kind == "DaemonSet" {
				got = append(got, o.Metadata.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("with a group in mode %s the DaemonSets are %q, want %q", mode, got, want)
		}
	}
}
