package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files are the documents of the policies in configs/kubernetes, one after the other as helm prints
// them.
func files(t *testing.T, names ...string) string {
	t.Helper()
	all := ""
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, "configs/kubernetes/policies", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			all += "---\n" + strings.TrimRight(document, "\n") + "\n"
		}
	}
	return all
}

// sorted puts documents into one order, for helm sorts them by kind.
func sorted(text string) map[string]bool {
	set := map[string]bool{}
	for document := range strings.SplitSeq(text, "---\n") {
		set[document] = true
	}
	return set
}

// The chart's policies are those of configs/kubernetes with the names of the release and of the
// resources, also in a packaged chart.
func TestPolicies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, errs, err := helm(t, "package", chart, "--destination", dir); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	all := files(t, "own-node", "pins", "priorities", "batch-pods", "annotations", "pinned", "parameters")
	values := []string{"--set", "kube.enabled=true,kube.pins=true,policies.batch=true,policies.services=true"}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"own node alone": {[]string{"--set", "kube.enabled=true"}, files(t, "own-node")},
		"batch alone":    {[]string{"--set", "policies.batch=true"}, files(t, "priorities", "batch-pods", "parameters")},
		"none":           {nil, ""},
		"all":            {values, all},
		"Koordinator's resources": {append(values, "--set", "kube.resources=koordinator"), strings.NewReplacer(
			"cpu: batch.sluice.dev/cpu", "cpu: kubernetes.io/batch-cpu",
			"memory: batch.sluice.dev/memory", "memory: kubernetes.io/batch-memory",
			"keptPriorityClasses: sluice-batch-high sluice-mid sluice-free", "keptPriorityClasses: sluice-batch-high sluice-mid sluice-free koord-mid koord-batch koord-free").Replace(all)},
		"other resources and namespaces": {append(values, "--set", "kube.resources=katalyst,policies.pinnedNamespaces={db,web}"), strings.NewReplacer(
			"cpu: batch.sluice.dev/cpu", "cpu: resource.katalyst.kubewharf.io/reclaimed_millicpu",
			"memory: batch.sluice.dev/memory", "memory: resource.katalyst.kubewharf.io/reclaimed_memory",
			`pinnedNamespaces: "*"`, `pinnedNamespaces: "db web"`).Replace(all)},
	} {
		for _, from := range []string{chart, filepath.Join(dir, "sluice-0.0.0.tgz")} {
			_, got := template(t, from, "sluice", "sluice", c.args...)
			if fmt.Sprint(sorted(got)) != fmt.Sprint(sorted(c.want)) {
				t.Errorf("%s, %s: the policies are\n%s\nwant\n%s", name, from, got, c.want)
			}
		}
	}
	_, got := template(t, chart, "x", "other", values...)
	want := strings.NewReplacer("system:serviceaccount:sluice:sluice-kube", "system:serviceaccount:other:x-kube", "namespace: sluice", "namespace: other").Replace(all)
	if fmt.Sprint(sorted(got)) != fmt.Sprint(sorted(want)) {
		t.Errorf("with another name and namespace the policies are\n%s", got)
	}
	_, got = template(t, chart, "sluice", "sluice", append(values, "--set", "policies.mutatingVersion=v1beta1")...)
	if n := strings.Count(got, "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: MutatingAdmissionPolicy"); n != 5 {
		t.Errorf("%d mutating policies and bindings are v1beta1, want 5", n)
	}
}
