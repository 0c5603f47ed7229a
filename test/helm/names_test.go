package helm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The longest names of a release and of a group give valid names. Helm refuses a longer name of
// a release. The name of a Job becomes a label of its pods, and so has the limit of labels; the
// other kinds have that of DNS subdomains.
func TestLongestNames(t *testing.T) {
	t.Parallel()
	const (
		longestRelease = 53
		longestLabel   = 63
		longestName    = 253
	)
	group := strings.Repeat("g", 30)
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("{kube: {enabled: true}, nodeGroups: [{name: "+group+", nodeSelector: {a: b}}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	jobs := 0
	for _, o := range objects(t, render(t, strings.Repeat("r", longestRelease), "sluice", "--values", file)) {
		longest := longestName
		if o.Kind == "Job" {
			longest = longestLabel
			jobs++
		}
		if n := len(o.Metadata.Name); n > longest {
			t.Errorf("%s %s has a name of %d characters, and at most %d are allowed", o.Kind, o.Metadata.Name, n, longest)
		}
		for key, value := range o.Spec.Template.Metadata.Labels {
			if len(value) > longestLabel {
				t.Errorf("%s %s: label %s has %d characters, and at most %d are allowed", o.Kind, o.Metadata.Name, key, len(value), longestLabel)
			}
		}
	}
	if jobs != 1 {
		t.Errorf("%d Jobs were rendered, want 1", jobs)
	}
	if out, _, err := helm(t, "template", strings.Repeat("r", longestRelease+1), chart); err == nil {
		t.Errorf("helm accepts a name of %d characters for a release:\n%s", longestRelease+1, out)
	}
}
