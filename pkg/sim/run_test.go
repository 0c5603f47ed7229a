package sim

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

var update = flag.Bool("update", false, "write the golden files anew")

// brief has a service whose load rises and falls, beside batch work.
const brief = `
about: a test
machine: 8 cores 2 threads memory 32G
duration: 10m
pods:
- name: web
  count: 3
  requests: {cpu: 2, memory: 2Gi}
  limits: {cpu: 4, memory: 4Gi}
  load: {curve: steps, cpu: 2, steps: [{at: 0s, load: 20%}, {at: 3m, load: 90%}, {at: 6m, load: 20%}], noise: 10%, threads: 16}
  service: {time: 2ms, slo: 20ms}
  memory: {anon: 1Gi, cache: 1Gi}
- name: train
  annotations: {class.sluice.dev: BE}
  count: 2
  load: {cpu: 8, threads: 8}
  memory: {anon: 4Gi, cache: 4Gi}
config:
  classes: {BE: {cpu-identity: -1}}
`

func parsed(t testing.TB, text string) *Scenario {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// The results of policies without a controller change only with the model.
func TestGolden(t *testing.T) {
	t.Parallel()
	results, err := Compare(t.Context(), parsed(t, brief), []Policy{Unmanaged, Static})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		r.Series, r.Decisions = Series{}, nil
	}
	got, file := asJSON(t, results), filepath.Join("testdata", "brief.json")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the model gives other results than %s (-update writes it):\n%s", file, got)
	}
}

func TestSameSeedSameOutput(t *testing.T) {
	t.Parallel()
	var before string
	for _, seed := range []int{1, 1, 2} {
		s := parsed(t, brief)
		s.Seed = seed
		results, err := Compare(t.Context(), s, Policies())
		if err != nil {
			t.Fatal(err)
		}
		if got := asJSON(t, results); (got == before) != (seed == 1) && before != "" {
			t.Errorf("seed %d: the same output: %t", seed, got == before)
		} else {
			before = got
		}
	}
}

// Batch work causes all violations: without it the services keep their SLO, and at an equal rate
// of violations no policy exceeds the budget.
func TestEqualViolations(t *testing.T) {
	t.Parallel()
	s := parsed(t, brief)
	s.Duration, s.Budget = 4*time.Minute, 0.01
	results, err := CompareEqual(t.Context(), s, Policies())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.LoadRatio < 0 || r.LoadRatio > 1 || r.LoadRatio > 0 && r.LateFraction > float64(s.Budget) {
			t.Errorf("%s: load %g has %g of violations, the budget is %g", r.Policy, r.LoadRatio, r.LateFraction, s.Budget)
		}
		if r.UtilizationFraction < 0 || r.UtilizationFraction > 1.000001 {
			t.Errorf("%s: the node is %g busy", r.Policy, r.UtilizationFraction)
		}
	}
}

func TestShippedScenarios(t *testing.T) {
	t.Parallel()
	for _, name := range Shipped() {
		text, err := Text(name)
		if err != nil {
			t.Fatal(err)
		}
		s := parsed(t, string(text))
		if s.About == "" {
			t.Errorf("%s says nothing about itself", name)
		}
		s.Duration = 2 * time.Second
		for _, p := range Policies() {
			r, err := Run(t.Context(), s, p, 1)
			if err != nil {
				t.Errorf("%s, %s: %v", name, p, err)
			} else if r.Refused > 0 || r.UtilizationFraction <= 0 {
				t.Errorf("%s, %s: %d containers refused, %g busy", name, p, r.Refused, r.UtilizationFraction)
			}
		}
	}
	if _, err := Text("nothing"); err == nil || !strings.Contains(err.Error(), "daily-tide") {
		t.Errorf("an unknown scenario: %v, want the names that there are", err)
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	t.Parallel()
	results, err := Compare(t.Context(), parsed(t, brief), Policies())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := SVG(&b, `<"a" & b>`, results); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"unmanaged", "over the SLO", "prefers-color-scheme:dark", `class="usage`, "batch"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %s in the drawing", want)
		}
	}
}

// A replayed recording has the usage that was recorded.
func TestReplay(t *testing.T) {
	t.Parallel()
	m, err := synth.Machine("8 cores memory 32G")
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	recorder := recording.NewLines(&file)
	known := []recording.Container{
		{ID: "0123456789abcdef", Ref: "shop/web/main", Class: workload.LS, Pool: "online", Request: 2000, Limit: 4000, Memory: 1 << 30, MemoryLimit: 2 << 30},
		{ID: "fedcba", Ref: "ml/train/main", Class: workload.BE},
	}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 61 {
		at := start.Add(time.Duration(i) * 5 * time.Second)
		usage := observe.ContainerCPU{At: at, Interval: time.Second, Usage: 2000}
		look := &observe.Snapshot{Now: at, Containers: []observe.Container{{ID: "0123456789abcdef", CPU: usage, Memory: observe.ContainerMemory{At: at, Anon: 1 << 29}}}}
		if i >= 30 {
			look.Containers = append(look.Containers, observe.Container{ID: "fedcba", CPU: usage})
		}
		if err := recorder.Record(m, known[:1+i/30%2], look); err != nil {
			t.Fatal(err)
		}
	}
	s, err := LoadRecording(strings.NewReader(file.String()+`{"snapshot":{"now`), config.Default(), Service{Time: 2 * time.Millisecond, SLO: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), s, Unmanaged, 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3.0 / 8; r.UtilizationFraction < want-0.02 || r.UtilizationFraction > want+0.02 || s.Duration != 5*time.Minute {
		t.Errorf("replayed for %s, the node is %.3f busy, want %.3f", s.Duration, r.UtilizationFraction, want)
	}
	for text, want := range map[string]string{
		"":         "no machine",
		"{}\n{}\n": "no machine",
		"x\n{}\n":  "line 1 is not of a recording",
		file.String()[:strings.Index(file.String(), "\n")+1]: "fewer than two looks",
	} {
		if _, err := LoadRecording(strings.NewReader(text), config.Default(), Service{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("recording %.40q: %v, want %q", text, err, want)
		}
	}
}
