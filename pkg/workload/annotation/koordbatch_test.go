package annotation

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Koordinator's annotation of batch resources counts for a pod without requests of its own. If the
// pod has requests, these are its grant.
func TestBatchResources(t *testing.T) {
	t.Parallel()
	const key = koordExtended + "="
	both := func(cpu, memory string) string {
		list := `{"kubernetes.io/batch-cpu":` + cpu + `,"kubernetes.io/batch-memory":` + memory + `}`
		return key + `{"containers":{"app":{"requests":` + list + `,"limits":` + list + `},"other":{}}}`
	}
	for name, c := range map[string]struct {
		qos   workload.QoS
		milli int64
		says  string
		want  string
		text  string // part of the warning, or of the error if want is "refused"
	}{
		"a batch pod":            {workload.BestEffort, 0, both(`"1000"`, `"1Gi"`), "shares=1000 quota=1000 limit=1073741824", ""},
		"numbers":                {workload.BestEffort, 0, both("1500", "1048576"), "shares=1500 quota=1500 limit=1048576", ""},
		"mid":                    {workload.BestEffort, 0, key + `{"containers":{"app":{"requests":{"kubernetes.io/mid-cpu":"2k"}}}}`, "shares=2000", ""},
		"another container":      {workload.BestEffort, 0, key + `{"containers":{"other":{"requests":{"kubernetes.io/batch-cpu":"1000"}}}}`, "", ""},
		"a pod with requests":    {workload.Burstable, 500, both(`"1000"`, `"1Gi"`), "quota=1000 limit=1073741824", "those count"},
		"above the kubelet's":    {workload.Guaranteed, 500, both(`"1000"`, `"4Gi"`), "quota=500 limit=2147483648", "those count"},
		"below the kubelet's":    {workload.Guaranteed, 4000, both(`"1000"`, `"1Gi"`), "quota=1000 limit=1073741824", "those count"},
		"nothing":                {workload.BestEffort, 0, key + `{}`, "", ""},
		"no amount":              {workload.BestEffort, 0, both(`"1 CPU"`, `"1Gi"`), "refused", "kubernetes.io/batch-cpu must be a number"},
		"a negative amount":      {workload.BestEffort, 0, both(`"-1"`, `"1Gi"`), "refused", "must not be negative"},
		"more than any machine":  {workload.BestEffort, 0, both(`"5P"`, `"1Gi"`), "refused", "must be at most"},
		"an object as an amount": {workload.BestEffort, 0, both(`{}`, `"1Gi"`), "refused", "must be a number"},
		"no JSON":                {workload.BestEffort, 0, key + "x", "refused", "JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := rules()
			p, app := pod(c.qos, c.milli, c.says, qosClass+"BE")
			got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2}, p, app)
			if c.want == "refused" {
				if err == nil || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v, want %q", err, c.text)
				}
				return
			}
			if batch := spell(&workload.Tuning{Batch: got.Batch}); err != nil || batch != c.want {
				t.Errorf("got %q, %v, want %q", batch, err, c.want)
			}
			if (len(warnings) > 0) != (c.text != "") || c.text != "" && !strings.Contains(warnings[0].Text, c.text) {
				t.Errorf("warnings %q, want %q", warnings, c.text)
			}
		})
	}
}
