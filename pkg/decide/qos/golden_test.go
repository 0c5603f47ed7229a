package qos

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestEveryClassOnEveryKernel compares the settings of a pod of two containers, for each class and
// kernel, with the table in testdata/settings.golden.
func TestEveryClassOnEveryKernel(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	kernels := nodes()
	for _, class := range []workload.Class{workload.LSR, workload.LS, workload.BE, workload.System} {
		for _, name := range slices.Sorted(maps.Keys(kernels)) {
			n := kernels[name]
			n.BEPageCachePercent = 30
			fmt.Fprintf(&text, "=== %s on %s\n", class, name)
			write(&text, For(n, pod(class, 2)))
		}
	}
	const file = "testdata/settings.golden"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() == string(want) {
		return
	}
	got, section := strings.Split(text.String(), "\n"), ""
	for i, line := range strings.Split(string(want), "\n") {
		if strings.HasPrefix(line, "===") {
			section = line
		}
		if i >= len(got) || got[i] != line {
			t.Fatalf("%s:%d, in %q: %q, want %q (go test -update writes the file anew; git diff shows how it differs)", file, i+1, section, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), line)
		}
	}
	t.Errorf("more lines than %s has (go test -update writes it anew)", file)
}

func write(text *strings.Builder, s Settings) {
	line := func(of string, s Setting) {
		value := fmt.Sprint(s.Percent, " % of the original")
		if s.Value != nil {
			value = knobs.FormatValue(s.Value)
		}
		fmt.Fprintf(text, "%s %s = %s (%s)\n", of, s.Knob, strings.ReplaceAll(value, "\n", "; "), s.Why)
	}
	for _, setting := range s.Pod {
		line("pod", setting)
	}
	if len(s.Containers) == 0 {
		return
	}
	for _, setting := range s.Containers[0] {
		line("ctr", setting)
	}
	if s.Reclaim != nil {
		r := s.Reclaim[0]
		fmt.Fprintf(text, "ctr reclaim above %d until %d, cache above %d\n", r.StartAt, r.Until, r.CacheMax)
	}
	for _, n := range s.Notes[0] {
		kind := "note"
		if n.Missing {
			kind = "MISSING"
		}
		fmt.Fprintf(text, "ctr %s %s: %s\n", kind, n.Key, n.Text)
	}
}
