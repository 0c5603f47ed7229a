package annotation

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestParseSLO(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]workload.SLO{
		"{runDelay: 5%}": {RunDelay: 0.05},
		`{"cpuPressure": "12.5%", "memoryPressure": "0.1%"}`: {CPUPressure: 0.125, MemoryPressure: 0.001},
		"{ioPressure: 100%, runDelay: 07%}":                  {IOPressure: 1, RunDelay: 0.07},
	} {
		if got, err := parseSLO(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"{}":                               "must have a bound on runDelay, cpuPressure, memoryPressure or ioPressure",
		"5%":                               "must be one mapping in YAML or JSON",
		"{latency: 5ms}":                   "latency",
		"{runDelay: 5}":                    "must be a share of time, 0.1% to 100%",
		"{runDelay: 0%}":                   "must be a share of time, 0.1% to 100%",
		"{runDelay: 100.1%}":               "must be a share of time, 0.1% to 100%",
		"{runDelay: -5%}":                  "must be a share of time, 0.1% to 100%",
		"{runDelay: NaN%}":                 "must be a share of time, 0.1% to 100%",
		"{runDelay: 1e1%}":                 "must be a share of time, 0.1% to 100%",
		"{runDelay: 0x1p3%}":               "must be a share of time, 0.1% to 100%",
		"{runDelay: [5%]}":                 "must be a share of time, 0.1% to 100%",
		"{runDelay: 5%, runDelay: 6%}":     "runDelay",
		"{runDelay: 5%, memoryPressure: }": "must be a share of time, 0.1% to 100%",
	} {
		if got, err := parseSLO(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}

// Batch work has no bounds, and a container that says nothing leaves the pod's.
func TestSLOOfClasses(t *testing.T) {
	t.Parallel()
	for class, applies := range map[string]bool{"LS": true, "LSR": true, "LSE": true, "BE": false, "SYSTEM": false} {
		rules := rules()
		rules.Authorize = []Authorization{{Features: []Feature{SystemClass}, Namespaces: []string{"*"}}}
		qos, milli := workload.Guaranteed, int64(2000)
		if class == "BE" {
			qos, milli = workload.BestEffort, 0
		}
		p, app := pod(qos, milli, "class.sluice.dev="+class, "slo.sluice.dev={runDelay: 20%}")
		got, warnings, err := rules.Request(Facts{}, p, app)
		if err != nil || (got.SLO.RunDelay == 0.2) != applies || applies == (len(warnings) > 0) {
			t.Errorf("%s: %+v, %v, %v", class, got.SLO, warnings, err)
		}
	}
}
