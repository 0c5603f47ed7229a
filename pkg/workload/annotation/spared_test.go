package annotation

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestSpared checks that pods which keep the node running are never evicted, and are not batch
// work by default.
func TestSpared(t *testing.T) {
	t.Parallel()
	const static, critical = "kubernetes.io/config.source=file", "node-critical"
	for name, c := range map[string]struct {
		says   []string
		qos    workload.QoS
		cdi    bool
		class  workload.Class
		never  bool
		source string // part of the class's source
	}{
		"a pod of a user":              {class: workload.BE, source: "config defaults.besteffort"},
		"a static pod":                 {says: []string{static}, class: workload.LS, never: true, source: "the pod is static"},
		"a pod from a URL":             {says: []string{"kubernetes.io/config.source=http"}, class: workload.LS, never: true, source: "the pod is static"},
		"a pod of the system":          {says: []string{"namespace=kube-system"}, class: workload.LS, never: true, source: "control.eviction.never has namespace kube-system"},
		"a critical pod":               {says: []string{critical}, class: workload.LS, never: true, source: "system-node-critical"},
		"a critical Burstable pod":     {says: []string{critical}, qos: workload.Burstable, class: workload.LS, never: true, source: "config defaults.burstable"},
		"a Guaranteed pod":             {qos: workload.Guaranteed, class: workload.LS, source: "config defaults.guaranteed"},
		"a static pod that asks to be": {says: []string{static, "class.sluice.dev=BE"}, class: workload.BE, never: true, source: "annotation class.sluice.dev"},
		"a claim of a device":          {cdi: true, class: workload.LS, source: "CDI"},
		"a claim that asks to be":      {cdi: true, says: []string{"class.sluice.dev=BE"}, class: workload.BE, source: "annotation class.sluice.dev"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := rules()
			rules.Defaults.BestEffort, rules.NeverEvict = workload.BE, []string{"kube-*"}
			if c.qos == workload.UnknownQoS {
				c.qos = workload.BestEffort
			}
			p, app := pod(c.qos, 0, c.says...)
			app.HasCDI = c.cdi
			if _, is := p.Annotations[critical]; is {
				app.OOMScoreAdj = -997
			}
			got, _, err := rules.Request(Facts{ThreadsPerCore: 2}, p, app)
			if err != nil || got.Class != c.class || got.Evict.Never != c.never || !strings.Contains(got.Keys[0].Source, c.source) {
				t.Errorf("got %s, never evicted: %v, settings %v, %v", got.Class, got.Evict.Never, got.Keys, err)
			}
		})
	}
}
