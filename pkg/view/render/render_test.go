package render

import (
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/whatif"
	"github.com/sluice-dev/sluice/topology/synth"
)

// text returns the output of a function of this package.
func text(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var out strings.Builder
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with testdata/name.golden.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got:\n%s", file, text)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	golden(t, "status", text(t, func(w io.Writer) error { return Status(w, statustest.Calm(), false) }))
	golden(t, "status-wide", text(t, func(w io.Writer) error { return Status(w, statustest.Calm(), true) }))
	golden(t, "status-troubled", text(t, func(w io.Writer) error { return Status(w, statustest.Troubled(), false) }))
	golden(t, "status-loop", text(t, func(w io.Writer) error { return Status(w, statustest.Looped(), false) }))
	golden(t, "status-loop-wide", text(t, func(w io.Writer) error { return Status(w, statustest.Looped(), true) }))
	golden(t, "status-new", text(t, func(w io.Writer) error { return Status(w, &status.Status{Version: "v0.1.0", Mode: "on"}, false) }))
}

func TestExplain(t *testing.T) {
	t.Parallel()
	s := statustest.Calm()
	golden(t, "explain", text(t, func(w io.Writer) error { return Explain(w, s, s.Containers[:2], nil) }))
	golden(t, "explain-short", text(t, func(w io.Writer) error { return Explain(w, s, s.Containers[2:3], nil) }))
	s = statustest.Looped()
	golden(t, "explain-loop", text(t, func(w io.Writer) error { return Explain(w, s, s.Containers[1:2], nil) }))
	s.Mode = "preview"
	golden(t, "explain-preview", text(t, func(w io.Writer) error { return Explain(w, s, s.Containers[3:], nil) }))
}

func TestDefaultOutputKeepsTo80Columns(t *testing.T) {
	t.Parallel()
	for _, s := range []*status.Status{statustest.Calm(), statustest.Troubled(), statustest.Huge(), statustest.Looped(), statustest.HugeLoop()} {
		checkWidth(t, text(t, func(w io.Writer) error { return Status(w, s, false) }))
		checkWidth(t, text(t, func(w io.Writer) error { return Explain(w, s, s.Containers, nil) }))
	}
	long := strings.Repeat("n", 63)
	manifest := "kind: Pod\nmetadata: {name: " + strings.Repeat("p", 253) + ", namespace: " + long + `, annotations: {class.sluice.dev: LSR,
  cpuset.sluice.dev: "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62", smt.sluice.dev: any}}
spec: {containers: [{name: ` + long + `, resources: {limits: {cpu: 32, memory: 1Gi}}}, {name: b, resources: {limits: {cpu: 500m, memory: 1Gi}}}]}`
	machine, err := synth.Machine("4 packages 4 nodes 16 cores 2 threads numbering adjacent")
	if err != nil {
		t.Fatal(err)
	}
	plans, err := whatif.Pods(whatif.Empty{Config: config.Default(), Machine: machine}, "-", []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	if plans[0].Answers[0].Problem != "" || plans[0].Answers[1].Problem == "" {
		t.Errorf("one placed and one refused are wanted: %+v", plans[0].Answers)
	}
	checkWidth(t, text(t, func(w io.Writer) error { return Plan(w, plans) }))
}

// Status and Explain, in JSON too, name the part of the fleet's policy from which a value comes that they show.
func TestParts(t *testing.T) {
	t.Parallel()
	s := statustest.Looped()
	s.Loop.Batch.ThresholdPercent, s.Loop.Batch.ThresholdWhy = 70, "one pod does not yield"
	s.Config.Parts = []status.ConfigPart{{Name: "hidden"}, {Name: "mild", Keys: []string{"control.batch.thresholdPercent"}}}
	shown := text(t, func(w io.Writer) error { return Status(w, s, true) })
	for _, want := range []string{"part hidden sets nothing: other parts set all of its keys", "part mild sets control.batch.thresholdPercent", "70% of the node, from part mild of the fleet's policy; one pod does not yield"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the status lacks %q:\n%s", want, shown)
		}
	}
	for of, want := range map[int]bool{1: false, 3: true} { // an LS container, and batch work
		explained := text(t, func(w io.Writer) error { return Explain(w, s, s.Containers[of:of+1], nil) })
		if got := strings.Contains(explained, "control.batch.thresholdPercent  mild"); got != want {
			t.Errorf("%s:\n%s", s.Containers[of].Ref, explained)
		}
		var answer []struct {
			Ref    string
			Policy []PolicyKey
		}
		shown := text(t, func(w io.Writer) error { return ExplainJSON(w, s, s.Containers[of:of+1], nil) })
		if err := json.Unmarshal([]byte(shown), &answer); err != nil || len(answer) != 1 || answer[0].Ref != s.Containers[of].Ref {
			t.Fatalf("%v: %s", err, shown)
		}
		if got := slices.Contains(answer[0].Policy, PolicyKey{Key: "control.batch.thresholdPercent", Part: "mild"}); got != want {
			t.Errorf("%s: policy %v", answer[0].Ref, answer[0].Policy)
		}
	}
	s.Config.Parts, s.Loop.Decisions = []status.ConfigPart{{Name: "mild", Keys: []string{"control.eviction.cpuPause"}}}, []status.Decision{{Decision: control.Decision{Controller: "eviction", Object: "data/db-0"}}}
	if explained := text(t, func(w io.Writer) error { return Explain(w, s, s.Containers[1:2], nil) }); !strings.Contains(explained, "control.eviction.cpuPause  mild") {
		t.Errorf("the keys of a controller that decided about it are missing:\n%s", explained)
	}
}

// Explain shows the kernel's quota, which may be the loop's.
func TestExplainedQuota(t *testing.T) {
	t.Parallel()
	quota := status.Setting{Level: "pod", Knob: knobs.Quota.String(), Value: "0.2 CPUs"}
	refused := quota
	refused.Problem = "no"
	for want, c := range map[string]status.Container{
		"as the kubelet set it":                {Settings: []status.Setting{{Level: "pod", Knob: "cpu.weight", Value: "7"}, refused}},
		"set by Sluice: 0.2 CPUs for the pod":  {Settings: []status.Setting{quota}},
		"lifted: nobody else may use its CPUs": {Unlimited: true, Settings: []status.Setting{quota}},
	} {
		if got := quotaOf(&c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// examined returns a report with findings of every kind.
func examined() *doctor.Report {
	return &doctor.Report{Level: doctor.Fail, Findings: []doctor.Finding{
		{Area: "kernel", Name: "release", What: "Linux 6.8.0-45-generic, Ubuntu 24.04 LTS"},
		{Area: "cpu", Name: "burst", What: "cpu.max.burst (v2): at most 100 % of the quota", On: []string{"pod", "container"}},
		{Area: "cpu", Name: "group identity", Level: doctor.Note, What: "cpu.idle, cpu.weight (v2): idle for BestEffort pods, weights for others; SMT siblings are not kept free",
			Do: "no action needed; the kernels of Anolis OS and Alibaba Cloud Linux, openEuler, TencentOS and OpenCloudOS have it", On: []string{"pod", "container"}},
		{Area: "pinned cpus", Name: "bound processes", Level: doctor.Warn, What: "1 process outside of pods, bound to CPUs of which some are pinned: evil\x1b[2J (600) on 2-3", Do: "change their taskset or CPUAffinity="},
		{Area: "runtime", Name: "NRI", Level: doctor.Fail, What: "switched off in /etc/containerd/config.toml", Do: strings.Repeat("long", 40)},
	}}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	report := text(t, func(w io.Writer) error { return Doctor(w, examined()) })
	checkWidth(t, report)
	golden(t, "doctor", report)
	if got := text(t, func(w io.Writer) error { return Doctor(w, &doctor.Report{}) }); got != "Nothing keeps Sluice from working: 0 warnings, 0 notes.\n" {
		t.Error(got)
	}
}

// A decision's facts are displayed with units that people use.
func TestFactsText(t *testing.T) {
	t.Parallel()
	d := control.Decision{
		Facts: []control.Fact{
			{Name: "online_bytes", Value: 4.35112e+09}, {Name: "growth_bytes_per_second", Value: 3 << 20}, {Name: "others_cpus", Value: 2.25},
			{Name: "threshold_percent", Value: 65}, {Name: "age_seconds", Value: 4.5}, {Name: "excess", Value: 0.125},
		},
		FirstFacts: []control.Fact{{Name: "online_bytes", Value: 1 << 30}, {Name: "growth_bytes_per_second", Value: 3 << 20}, {Name: "others_cpus", Value: 1}},
	}
	want := "online 1 GiB to 4.1 GiB, growth 3 MiB/s, others 1 CPU to 2.25 CPUs, threshold 65%, age 4.5 s, excess 0.125"
	if got := factsText(&d); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRestored(t *testing.T) {
	t.Parallel()
	r := status.Restored{
		Changes: []status.Returned{
			{Where: "shop/web/main", Knob: "cpuset.cpus", From: "2-3", To: "all"},
			{Where: "shop/web/main", Knob: "cpu.burst", From: "50ms a period", To: "0s a period"},
			{Where: "shop/web", Knob: "cpu.weight", From: "unknown", To: "1024 shares"},
		},
		LeftAlone: []string{"memory.high of shop/db/main"},
		IRQs:      12,
	}
	done := text(t, func(w io.Writer) error { return Restored(w, &r, "/var/lib/sluice", false) })
	r.DryRun = true
	golden(t, "restore", done+"\n"+text(t, func(w io.Writer) error { return Restored(w, &r, "/var/lib/sluice", false) }))
	for missing, want := range map[bool]string{
		false: "Nothing to give back: /x tells of no change since the node was started.\n",
		true:  "Nothing to give back: /x tells of no change since the node was started, which is not there: the plugin has not run, or keeps its state elsewhere.\n",
	} {
		if got := text(t, func(w io.Writer) error { return Restored(w, &status.Restored{}, "/x", missing) }); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestDecision(t *testing.T) {
	t.Parallel()
	log := text(t, func(w io.Writer) error {
		for _, d := range statustest.Looped().Loop.Decisions {
			if err := Decision(w, (*audit.Entry)(&d), false); err != nil {
				return err
			}
		}
		return nil
	})
	checkWidth(t, log)
	golden(t, "log", log)
}

func checkWidth(t interface{ Errorf(string, ...any) }, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		if n := utf8.RuneCountInString(line); n > terminal.Columns {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.ContainsRune(line, '\x1b') {
			t.Errorf("an escape in: %q", line)
		}
	}
}
