package doctor

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// The labels of each node are those of testdata/labels.golden, and Kubernetes accepts them.
func TestLabels(t *testing.T) {
	t.Parallel()
	all := nodes(t)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text.WriteString(name + "\n")
		labels := Labels(all[name])
		for i, l := range labels {
			text.WriteString("  " + l.Name + "=" + l.Value + "\n")
			problems := append(validation.IsQualifiedName(l.Name), validation.IsValidLabelValue(l.Value)...)
			if len(problems) > 0 || i > 0 && labels[i-1].Name >= l.Name {
				t.Errorf("%s: label %s=%s: %q", name, l.Name, l.Value, problems)
			}
		}
	}
	golden(t, "labels.golden", text.String())
}

// A kernel whose group identity crashes the host does not have it, and one that could not be tried has nothing
// that a probe would tell.
func TestLabelsNeedProbes(t *testing.T) {
	t.Parallel()
	all := nodes(t)
	for _, l := range Labels(all["alios-crash"]) {
		if l.Name == "feature.sluice.dev/group-identity" {
			t.Error("a kernel that crashes has group identity")
		}
	}
	unprobed := *all["anolis-8"]
	unprobed.Features, unprobed.CoreSched = nil, knobs.Inconclusive
	for _, l := range Labels(&unprobed) {
		if name := strings.TrimPrefix(l.Name, labelPrefix); !slices.Contains([]string{"cgroup-version", "numa-nodes", "smt", "swap"}, name) {
			t.Errorf("a node that was not probed has %s", name)
		}
	}
}

func TestFeatureFile(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("east", 3600))
	want := "# Written by sluice run --labels-file, which writes it anew every hour.\n# +expiry-time=2026-01-02T02:04:05Z\n" +
		"feature.sluice.dev/cgroup-version=2\nfeature.sluice.dev/psi=true\n"
	if got := FeatureFile([]Label{{labelPrefix + "cgroup-version", "2"}, {labelPrefix + "psi", "true"}}, until); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}
