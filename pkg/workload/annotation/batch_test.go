package annotation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// The grant of a batch container comes from the kubelet's record if that has it, and otherwise
// from an annotation, which counts for BE only.
func TestGrant(t *testing.T) {
	t.Parallel()
	const own = "grant.sluice.dev="
	record := func(cpu workload.MilliCPU, memory int64) workload.Granted {
		return workload.Granted{Pod: true, Container: true, BatchCPU: cpu, BatchMemory: memory, MostBatchCPU: cpu, MostBatchMemory: memory}
	}
	inPod := func(cpu workload.MilliCPU, memory int64) workload.Granted {
		return workload.Granted{Pod: true, MostBatchCPU: cpu, MostBatchMemory: memory}
	}
	koord := koordExtended + `={"containers":{"app":{"requests":{"kubernetes.io/batch-cpu":"4000","kubernetes.io/batch-memory":"4Gi"},"limits":{"kubernetes.io/batch-cpu":"4000","kubernetes.io/batch-memory":"4Gi"}}}}`
	for name, c := range map[string]struct {
		class   string
		qos     workload.QoS
		says    string
		granted workload.Granted
		want    string // CPU, memory, memory limit, and the source
		text    string // part of the only warning, or of the error if want is "refused"
		cut     bool
	}{
		"nothing":                        {"BE", workload.BestEffort, "", workload.Granted{}, "0 0 0 inferred", "", false},
		"the record":                     {"BE", workload.BestEffort, "", record(2500, 2*gib), "2500 2147483648 2147483648 kubelet", "", false},
		"the record of CPU alone":        {"BE", workload.BestEffort, "", record(2500, 0), "2500 0 0 kubelet", "", false},
		"the annotation":                 {"BE", workload.BestEffort, own + `{app: {cpu: "1.5", memory: 1Gi}, other: {cpu: x}}`, workload.Granted{}, "1500 1073741824 1073741824 annotation", "", false},
		"as JSON, CPU alone":             {"BE", workload.BestEffort, own + `{"app":{"cpu":"500m"}}`, workload.Granted{}, "500 0 0 annotation", "", false},
		"another container's":            {"BE", workload.BestEffort, own + `{other: {cpu: "1"}}`, workload.Granted{}, "0 0 0 inferred", "", false},
		"both agree":                     {"BE", workload.BestEffort, own + `{app: {cpu: "2", memory: 1Gi}}`, record(2000, gib), "2000 1073741824 1073741824 kubelet", "", false},
		"a forged one":                   {"BE", workload.BestEffort, own + `{app: {cpu: "64", memory: 1Gi}}`, record(2000, gib), "2000 1073741824 1073741824 kubelet", "claims CPU 64, memory 1Gi of batch resources, and the kubelet's record grants CPU 2, memory 1Gi", true},
		"forged by a pod without":        {"BE", workload.BestEffort, own + `{app: {cpu: "64"}}`, record(0, 0), "0 0 0 kubelet", "grants CPU 0", true},
		"a modest one":                   {"BE", workload.BestEffort, own + `{app: {cpu: "1", memory: 512Mi}}`, record(2000, gib), "2000 1073741824 536870912 kubelet", "", false},
		"Koordinator's":                  {"BE", workload.BestEffort, koord, workload.Granted{}, "4000 4294967296 4294967296 annotation", "", false},
		"Koordinator's, forged":          {"BE", workload.BestEffort, koord, record(1000, gib), "1000 1073741824 1073741824 kubelet", "the record counts", true},
		"an init container":              {"BE", workload.BestEffort, own + `{app: {cpu: "2", memory: 1Gi}}`, inPod(3000, 2*gib), "2000 1073741824 1073741824 annotation", "", false},
		"an init container's, forged":    {"BE", workload.BestEffort, own + `{app: {cpu: "64", memory: 1Gi}}`, inPod(3000, 2*gib), "3000 1073741824 1073741824 annotation", "the record counts", true},
		"an init container without":      {"BE", workload.BestEffort, "", inPod(3000, 2*gib), "0 0 0 inferred", "", false},
		"LS":                             {"LS", workload.BestEffort, own + `{app: {cpu: "2", memory: 1Gi}}`, workload.Granted{}, "0 0 1073741824 inferred", "counts for class BE alone", false},
		"LS on mid resources":            {"LS", workload.BestEffort, "", record(2000, gib), "0 0 1073741824 kubelet", "", false},
		"a pin":                          {"SYSTEM", workload.BestEffort, own + `{app: {cpu: "2"}}`, workload.Granted{}, "0 0 0 inferred", "has no effect on class SYSTEM", false},
		"a pod with requests":            {"BE", workload.Burstable, own + `{app: {cpu: "64"}}`, workload.Granted{}, "500 0 0 inferred", "those count", false},
		"recorded requests":              {"BE", workload.Burstable, "", workload.Granted{Pod: true, Container: true, CPU: 700, Memory: gib}, "700 1073741824 0 kubelet", "", false},
		"not a mapping":                  {"BE", workload.BestEffort, own + "2", workload.Granted{}, "refused", `must be one mapping in YAML or JSON, like {main: {cpu: "2", memory: 4Gi}`, false},
		"not a mapping of the container": {"BE", workload.BestEffort, own + "{app: 2}", workload.Granted{}, "refused", `"app": must be one mapping`, false},
		"a misspelt amount":              {"BE", workload.BestEffort, own + "{app: {cpus: 2}}", workload.Granted{}, "refused", "did you mean cpu?", false},
		"no amount":                      {"BE", workload.BestEffort, own + "{app: {cpu: many}}", workload.Granted{}, "refused", "must be a number", false},
		"zero":                           {"BE", workload.BestEffort, own + "{app: {cpu: 0}}", workload.Granted{}, "refused", "must be above 0", false},
		"more than any machine":          {"BE", workload.BestEffort, own + "{app: {cpu: 9P}}", workload.Granted{}, "refused", "no more than a machine has", false},
		"twice":                          {"BE", workload.BestEffort, own + "{app: {cpu: 1}, app: {cpu: 2}}", workload.Granted{}, "refused", "twice", false},
		"too long":                       {"BE", workload.BestEffort, own + "{" + strings.Repeat("x: {cpu: 1}, ", 400) + "}", workload.Granted{}, "refused", "at most 4096 are read", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := rules()
			rules.Authorize = []Authorization{{Features: []Feature{SystemClass}, Namespaces: []string{"team"}}}
			milli := int64(0)
			if c.qos == workload.Burstable {
				milli = 500
			}
			says := []string{"class.sluice.dev=" + c.class}
			if c.says != "" {
				says = append(says, c.says)
			}
			p, app := pod(c.qos, milli, says...)
			app.OOMScoreAdj = 1000
			got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2, Granted: c.granted}, p, app)
			if c.want == "refused" {
				if err == nil || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v, want %q", err, c.text)
				}
				return
			}
			cpu, memory := got.Grant()
			if text := fmt.Sprintf("%d %d %d %s", cpu, memory, got.Batch.MemoryLimit.Value, got.From); err != nil || text != c.want {
				t.Errorf("got %q, %v, want %q", text, err, c.want)
			}
			if len(warnings) > 1 || (len(warnings) > 0) != (c.text != "") || c.text != "" && (!strings.Contains(warnings[0].Text, c.text) || warnings[0].Cut != c.cut) {
				t.Errorf("warnings %+v, want %q", warnings, c.text)
			}
		})
	}
}

// CPU weights set by the kubelet end at 256 CPUs, and OOM scores have steps of 0.1 % of the node's
// memory. The record has both exactly.
func TestRecordedRequestsAreExact(t *testing.T) {
	t.Parallel()
	rules := rules()
	p, c := pod(workload.Burstable, 300000)
	c.OOMScoreAdj = 999
	facts := Facts{ThreadsPerCore: 2, Memory: 512 * gib}
	if got, _, err := rules.Request(facts, p, c); err != nil || got.Milli != 256000 || got.Memory == 300<<20 {
		t.Errorf("without the record %d, %d, %v", got.Milli, got.Memory, err)
	}
	facts.Granted = workload.Granted{Pod: true, Container: true, CPU: 300000, Memory: 300 << 20}
	if got, _, err := rules.Request(facts, p, c); err != nil || got.Milli != 300000 || got.Memory != 300<<20 {
		t.Errorf("by the record %d, %d, %v", got.Milli, got.Memory, err)
	}
	// A Guaranteed pod has the resources in force, also while a resize is granted but not carried
	// out.
	p, c = pod(workload.Guaranteed, 4000, "class.sluice.dev=LSR")
	facts.Granted = workload.Granted{Pod: true, Container: true, CPU: 6000, Memory: 3 * gib}
	if got, _, err := rules.Request(facts, p, c); err != nil || got.CPUs != 4 || got.Memory != 2*gib {
		t.Errorf("while a resize is under way %d CPUs, %d, %v", got.CPUs, got.Memory, err)
	}
	// The exception is a pod with pod-level requests, of which the runtime reports the total.
	facts.Granted.PodLevel, facts.Granted.CPU = true, 2000
	if got, _, err := rules.Request(facts, p, c); err != nil || got.CPUs != 2 || got.Memory != 3*gib {
		t.Errorf("of a pod's own requests %d CPUs, %d, %v", got.CPUs, got.Memory, err)
	}
}
