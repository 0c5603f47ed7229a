package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kube"
)

var update = flag.Bool("update", false, "write the golden file anew")

// The file lists the metrics in the form of pkg/view/metrics; test/promql reads both.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.published(kube.Attempt{Amounts: map[string]int64{"batch.sluice.dev/cpu": 1000}})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		fmt.Fprintf(&text, "%s %s {%s} %s\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","), f.GetHelp())
	}
	const file = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != text.String() {
		t.Errorf("%s differs, %v (go test -update writes it anew); got:\n%s", file, err, text.String())
	}
}
