package convert

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/workload/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type testCase struct {
	Name, Resources, Manifest string
	Batch, Refused            bool
}

func cases(t *testing.T) []testCase {
	t.Helper()
	text, err := os.ReadFile("testdata/cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []testCase
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil || len(all) == 0 {
		t.Fatalf("%d cases: %v", len(all), err)
	}
	return all
}

// TestCases compares each case with its golden file, in which the notes are comments.
func TestCases(t *testing.T) {
	t.Parallel()
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			out, notes, err := Manifest([]byte(c.Manifest), For(c.Resources), c.Batch)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			for _, note := range notes {
				fmt.Fprintln(&got, "#", note)
			}
			got.Write(out)
			golden := filepath.Join("testdata", "want", c.Name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", &got, want)
			}
			again, _, err := Manifest(out, For(c.Resources), c.Batch)
			if err != nil || !bytes.Equal(again, out) {
				t.Errorf("converted again: %v\n%s\nafter\n%s", err, again, out)
			}
			if json.Valid([]byte(c.Manifest)) && !json.Valid(out) {
				t.Errorf("this is no JSON any more:\n%s", out)
			}
		})
	}
}

// TestGoldenFilesHaveCases: a case that was renamed leaves no file behind.
func TestGoldenFilesHaveCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/want/*.yaml")
	if err != nil || len(files) != len(cases(t)) {
		t.Errorf("%d files for %d cases: %v", len(files), len(cases(t)), err)
	}
}

// TestPlanReadsTheGrant: what the node would take from the converted pods is what they asked for.
func TestPlanReadsTheGrant(t *testing.T) {
	t.Parallel()
	const batch = "kind: Pod\napiVersion: v1\nmetadata: {name: p, annotations: {class.sluice.dev: BE}}\nspec: {containers: [{name: main, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 2Gi}}}]}\n"
	for _, scheme := range Schemes() {
		out, _, err := Manifest([]byte(batch), For(scheme), false)
		if err != nil {
			t.Fatal(err)
		}
		pods, err := manifest.Parse(out, 0)
		if err != nil {
			t.Fatal(err)
		}
		if g := pods[0].Containers[0].Granted; g.BatchCPU != 500 || g.BatchMemory != 2<<30 || g.CPU != 0 || g.Memory != 0 {
			t.Errorf("%s: %+v", scheme, g)
		}
	}
}

// TestLeftAlone says why a pod is left, and changes no byte.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	for manifest, why := range map[string]string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n":                                                                                           "Pod p is left as it is: it has no pod",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: p}\n":                                                                                     "Job p is left as it is: it has no pod",
		"apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\n":                                                                         "",
		"apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\n":                                                                     "Rollout r is left as it is: only Kubernetes' own kinds",
		"apiVersion: v1\nkind: Pod\nmetadata: &m {name: p}\nspec: {containers: [*m]}\n":                                                              "it has YAML anchors or aliases",
		"apiVersion: v1\nkind: Pod\nspec: {containers: [{<<: {name: p}}]}\n":                                                                         "it has YAML anchors or aliases",
		"apiVersion: v1\nkind: Pod\nmetadata: {generateName: p-, namespace: n}\nspec: {containers: [{name: c, resources: {limits: {cpu: many}}}]}\n": `Pod n/p- is left as it is: container c asks for "many", which must be a number`,
	} {
		out, notes, err := Manifest([]byte(manifest), For("sluice"), true)
		var said []string
		for _, note := range notes {
			said = append(said, note.String())
		}
		if err != nil || string(out) != manifest || !strings.Contains(strings.Join(said, "\n"), why) || why == "" && said != nil {
			t.Errorf("%v, %q in\n%s", err, said, manifest)
		}
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	_, _, err := Manifest([]byte("a: 1\n---\nb: [\n"), For("sluice"), true)
	if err == nil || !strings.Contains(err.Error(), "begins at line 2") {
		t.Errorf("%v", err)
	}
}

// TestComments converts resources of which nothing is left, and that have a comment.
func TestComments(t *testing.T) {
	t.Parallel()
	const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {class.sluice.dev: BE}}\nspec:\n  containers:\n    - resources: # few\n        requests: {memory: }\n      name: c\n"
	out, _, err := Manifest([]byte(manifest), For("sluice"), false)
	var pod struct {
		Spec struct{ Containers []map[string]any }
	}
	if err != nil || yaml.Unmarshal(out, &pod) != nil || len(pod.Spec.Containers) != 1 || pod.Spec.Containers[0]["name"] != "c" {
		t.Errorf("%v, got\n%s", err, out)
	}
}

// FuzzManifest: no input makes it panic, what it writes is converted, and what it leaves is untouched.
func FuzzManifest(f *testing.F) {
	text, err := os.ReadFile("testdata/cases.yaml")
	if err != nil {
		f.Fatal(err)
	}
	var all []testCase
	if err := yaml.Unmarshal(text, &all); err != nil {
		f.Fatal(err)
	}
	for _, c := range all {
		f.Add(c.Manifest)
	}
	f.Add("a: 1\n...\nb: 2\n--- |\n x\n")
	f.Fuzz(func(t *testing.T, manifest string) {
		out, notes, err := Manifest([]byte(manifest), For("sluice"), true)
		if err != nil {
			return
		}
		if len(notes) == 0 && string(out) != manifest {
			t.Fatalf("changed without a word: %q", out)
		}
		again, _, err := Manifest(out, For("sluice"), true)
		if err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		if !bytes.Equal(again, out) {
			t.Fatalf("%q was converted again: %q", out, again)
		}
	})
}
