package annotation

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// A pod that was granted mid resources is in tier mid, unless the pod, Koordinator's label or the
// configuration says another, and needs no authorization for it.
func TestTierOfAGrant(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says []string
		set  Set // of class BE
		mid  bool
		want string // the tier and where it is from
	}{
		"without a word":           {mid: true, want: "mid of the kubelet's record, which grants mid resources"},
		"no mid resources":         {want: "unset"},
		"as the pod says":          {says: []string{"tier.sluice.dev=mid"}, mid: true, want: "mid of annotation tier.sluice.dev"},
		"as Koordinator says":      {says: []string{"label " + koordPriority + "=koord-mid"}, mid: true, want: "mid of label " + koordPriority},
		"the pod says less":        {says: []string{"tier.sluice.dev=free"}, mid: true, want: "free of annotation tier.sluice.dev"},
		"the configuration's":      {set: given("tier", "free"), mid: true, want: "free of config classes.BE"},
		"not of a pod of class LS": {says: []string{"class.sluice.dev=LS"}, mid: true, want: "unset"},
	} {
		rules := rules()
		rules.Classes.BE = c.set
		p, app := pod(workload.BestEffort, 0, append([]string{"class.sluice.dev=BE"}, c.says...)...)
		got, warnings, err := rules.Request(Facts{Granted: workload.Granted{Pod: true, Container: true, Mid: c.mid}}, p, app)
		text := "unset"
		for _, k := range got.Keys {
			if k.Key == "tier" {
				text = k.Value + " of " + k.Source
			}
		}
		if err != nil || len(warnings) > 0 || text != c.want || got.Tier.Set && !strings.HasPrefix(text, got.Tier.Value.String()) {
			t.Errorf("%s: %q, %v, %v, %v", name, text, got.Tier, warnings, err)
		}
	}
}
