package annotation

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestParseSLO(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]workload.SLO{
		"{runDelay: 5%}": {RunDelay: 0.05},
		`{"cpuPressure": "12.5%", "memoryPressure": "0.1%"}`: {CPUPressure: 0.125, MemoryPressure: 0.001},
		"{ioPressure: 100%, runDelay: 07%}":                  {IOPressure: 1, RunDelay: 0.07},
		"{latency: {metric: request_seconds, bound: 20ms, port: 80}}": {Latency: workload.Objective{
			Metric: "request_seconds", Quantile: 0.99, Bound: 20 * time.Millisecond, Unit: time.Second, Port: 80, Path: "/metrics",
		}},
		`{"latency": {"metric": "a:b", "quantile": 0.999, "bound": "1m", "port": "65535", "path": "/stats/prometheus", "unit": "ms", "labels": {"code": "200", "le_": ""}}}`: {Latency: workload.Objective{
			Metric: "a:b", Quantile: 0.999, Bound: time.Minute, Unit: time.Millisecond, Port: 65535, Path: "/stats/prometheus", Labels: [4]workload.Label{{Name: "code", Value: "200"}, {Name: "le_"}},
		}},
	} {
		if got, err := parseSLO(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"{}":                                "must have a bound on runDelay, cpuPressure, memoryPressure, ioPressure or latency",
		"5%":                                "must be one mapping in YAML or JSON",
		"{latency: 5ms}":                    "latency: must be one mapping",
		"{latency: {metric: a, port: 80}}":  "latency: must have metric, bound and port",
		"{latency: {bound: 20ms, port: 1}}": "latency: must have metric, bound and port",
		"{latency: {metric: 1a}}":           "metric: must be the name of a Prometheus histogram",
		"{latency: {bound: 20}}":            "bound: must be a time from 100µs to 1m0s",
		"{latency: {bound: 99us}}":          "bound: must be a time from 100µs to 1m0s",
		"{latency: {quantile: NaN}}":        "quantile: must be a number from 0.5 to 0.9999",
		"{latency: {quantile: 1}}":          "quantile: must be a number from 0.5 to 0.9999",
		"{latency: {port: 65536}}":          "port: must be a port number",
		"{latency: {path: metrics}}":        "path: must be the path of a page",
		"{latency: {path: '/a?b=c'}}":       "path: must be the path of a page",
		"{latency: {path: '//b@c/d'}}":      "path: must be the path of a page",
		"{latency: {unit: us}}":             "unit: must be s or ms",
		"{latency: {labels: [a]}}":          "labels: must be a mapping of up to 4 labels",
		"{latency: {labels: {a: 1, b: 2, c: 3, d: 4, e: 5}}}": "labels: must be a mapping of up to 4 labels",
		"{latency: {labels: {le: '1'}}}":                      "can't be a label",
		"{latency: {labels: {a: 1, a: 2}}}":                   "is there twice",
		"{latency: {labels: {a: [1]}}}":                       "must have a text of up to 200 bytes",
		`{latency: {labels: {a: "b\n"}}}`:                     "must have a text of up to 200 bytes",
		"{latency: {host: example.com}}":                      "there is no",
		"{runDelay: 5}":                                       "must be a share of time, 0.1% to 100%",
		"{runDelay: 0%}":                                      "must be a share of time, 0.1% to 100%",
		"{runDelay: 100.1%}":                                  "must be a share of time, 0.1% to 100%",
		"{runDelay: -5%}":                                     "must be a share of time, 0.1% to 100%",
		"{runDelay: NaN%}":                                    "must be a share of time, 0.1% to 100%",
		"{runDelay: 1e1%}":                                    "must be a share of time, 0.1% to 100%",
		"{runDelay: 0x1p3%}":                                  "must be a share of time, 0.1% to 100%",
		"{runDelay: [5%]}":                                    "must be a share of time, 0.1% to 100%",
		"{runDelay: 5%, runDelay: 6%}":                        "runDelay",
		"{runDelay: 5%, memoryPressure: }":                    "must be a share of time, 0.1% to 100%",
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
