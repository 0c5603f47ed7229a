package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/sim"
)

const scenarioYAML = `about: a test
machine: 4 cores
duration: 20s
pods:
- name: web
  requests: {cpu: 2}
  load: {cpu: 1, noise: 10%}
  service: {time: 2ms, slo: 20ms}
- name: train
  annotations: {class.sluice.dev: BE}
  load: {cpu: 4}
`

const recordingJSON = `{"machine":MACHINE}
{"containers":[{"id":"1","ref":"shop/web/main","class":"LS"}]}
{"snapshot":{"now":"2026-03-01T12:00:00Z","containers":[{"id":"1","cpu":{"at":"2026-03-01T12:00:00Z","over":1000000000,"milli":1000}}]}}
{"snapshot":{"now":"2026-03-01T12:00:20Z","containers":[{"id":"1","cpu":{"at":"2026-03-01T12:00:20Z","over":1000000000,"milli":1000}}]}}
`

func TestSim(t *testing.T) {
	t.Parallel()
	good, bad := file(t, "good.yaml", scenarioYAML), file(t, "bad.yaml", scenarioYAML+"- {name: web, load: {cpu: 1}}\n")
	machine := strings.TrimSpace(runs(t, "topology", "--machine", "4 cores", "-o", "json"))
	recording := file(t, "r.jsonl", strings.Replace(recordingJSON, "MACHINE", strings.ReplaceAll(machine, "\n", ""), 1))
	for _, test := range []struct {
		args string
		exit int
		want string
	}{
		{"sim --list", 0, "daily-tide"},
		{"sim -f " + good, 0, "unmanaged"},
		{"sim -f " + good + " --policy pools -o json", 0, `"policy": "pools"`},
		{"sim -f " + good + " --equal", 0, "Pools against unmanaged"},
		{"sim -f " + good + " --seed 9", 0, "seed 9"},
		{"sim -f " + bad, exitFailure, "line 12: pods[2].name: \"web\" is there twice"},
		{"sim -f /nonexistent", exitFailure, "no such file"},
		{"sim -f " + good + " --policy best", exitFailure, "must be unmanaged, static, suppression, koordinator, lar, pools or forecast"},
		{"sim nothing", exitFailure, "there are burst-storm"},
		{"sim", exitUsage, "sim takes one scenario"},
		{"sim -f " + good + " --policy pools,forecast -o markdown", 0, "| `good` | "},
		{"sim --list daily-tide", exitUsage, "sim takes one scenario"},
		{"sim --all daily-tide", exitUsage, "sim takes one scenario"},
		{"sim --all --svg x.svg", exitUsage, "--svg draws one scenario"},
		{"replay", exitUsage, "required flag(s) \"file\" not set"},
		{"replay -f " + recording, 0, "r.jsonl, 4 CPUs, 20s"},
		{"sim -f " + recording + " --policy pools", 0, "r.jsonl, 4 CPUs, 20s"},
		{"sim --tune -f " + good, 0, "# control.batch.thresholdPercent 50"},
		{"sim --tune -f " + good + " -o json", 0, `"verdict": "present"`},
		{"sim -f " + good + " -c ../../configs/sluice.yaml", exitFailure, "its configuration under its key config"},
		{"sim --tune", exitUsage, "takes recordings or scenarios"},
		{"sim --tune --equal daily-tide", exitUsage, "without --list, --all, --equal"},
		{"sim --tune nothing", exitFailure, "there are burst-storm"},
		{"sim --tune -f " + recording, exitFailure, "tuning takes two days at least"},
		{"sim --tune -f " + good + " --late 2", exitFailure, "like 0.1%"},
		{"sim --tune -f " + good + " --windows 1", exitFailure, "--windows 1: it must be 2 to 1000"},
		{"grade -f " + recording, 0, "only 0.0 h of it were recorded"},
		{"grade -f " + recording + " -o json", 0, `"grade": "kept"`},
		{"grade", exitUsage, "required flag(s) \"file\" not set"},
		{"grade -f " + good, exitFailure, "line 1 is not of a recording"},
		{"record -f x --max-size 2Mi", exitUsage, "--days alone"},
		{"record -f x --days --interval 1s", exitUsage, "at least 10s"},
		{"record -f x --days --interval 2h", exitUsage, "10s to 1h0m0s in whole seconds"},
		{"record -f x --days --max-size 1", exitUsage, "at least 1Mi"},
		{"replay -f " + good, exitFailure, "line 1 is not of a recording"},
	} {
		var out, errs strings.Builder
		exit := execute(strings.Fields(test.args), strings.NewReader(""), &out, &errs)
		if got := out.String() + errs.String(); exit != test.exit || !strings.Contains(got, test.want) {
			t.Errorf("sluice %s: exit %d, want %d with %q:\n%s", test.args, exit, test.exit, test.want, got)
		}
	}
}

func TestSimDraws(t *testing.T) {
	t.Parallel()
	drawing := filepath.Join(t.TempDir(), "pools.svg")
	runs(t, "sim", "-f", file(t, "good.yaml", scenarioYAML), "--svg", drawing)
	if text, err := os.ReadFile(drawing); err != nil || !strings.HasPrefix(string(text), "<svg") {
		t.Errorf("the drawing is %.20q, %v", text, err)
	}
}

// Results of several scenarios have the scenarios' names in JSON; those of one are a plain list.
func TestSimJSON(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{`[{"policy":"pools",`: {"a"}, `[{"scenario":"a","budgetFraction":0.5,"results":[{"policy":"pools",`: {"a", "b"}} {
		var b strings.Builder
		out := &simOutput{Writer: &b, format: "json"}
		for _, name := range names {
			c := sim.Comparison{Scenario: name, Budget: 0.5, Results: []*sim.Result{{Policy: sim.Pools}}}
			if err := out.add(&sim.Scenario{}, c); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.end(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(b.String()), ""); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %.120s, want %s", names, got, want)
		}
	}
}

func runs(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if exit := execute(args, strings.NewReader(""), &out, &errs); exit != 0 {
		t.Fatalf("sluice %s: exit %d: %s", strings.Join(args, " "), exit, errs.String())
	}
	return out.String()
}

// What sim --tune and grade print is a configuration, or a comment alone.
func TestAdviceIsAConfiguration(t *testing.T) {
	t.Parallel()
	machine := strings.TrimSpace(runs(t, "topology", "--machine", "4 cores", "-o", "json"))
	lines := `{"machine":` + strings.ReplaceAll(machine, "\n", "") + "}\n" + `{"containers":[{"id":"1","ref":"pay/pay-0/main","class":"LS","pool":"online"}]}` + "\n"
	for minute := range 70 {
		at := time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC).Format(time.RFC3339)
		lines += fmt.Sprintf(`{"snapshot":{"now":%q,"containers":[{"id":"1","cpu":{"at":%q,"over":1000000000,"milli":100},"delay":{"at":%q,"waiting":0.02}}]}}`+"\n", at, at, at)
	}
	graded := runs(t, "grade", "-f", file(t, "r.jsonl", lines))
	if !strings.Contains(graded, "namespaces: [pay]") || !strings.Contains(graded, "pool: critical") {
		t.Errorf("no rule in\n%s", graded)
	}
	for _, text := range []string{graded, runs(t, "sim", "--tune", "-f", file(t, "good.yaml", scenarioYAML))} {
		runs(t, "check", "-f", file(t, "part.yaml", text))
	}
}
