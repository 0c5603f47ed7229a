package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

func TestStatusText(t *testing.T) {
	t.Parallel()
	golden(t, "status", statusText(calm(), false))
	golden(t, "status-wide", statusText(calm(), true))
	golden(t, "status-troubled", statusText(troubled(), false))
	golden(t, "status-loop", statusText(looped(), false))
	golden(t, "status-loop-wide", statusText(looped(), true))
	golden(t, "status-new", statusText(&status.Status{Version: "v0.1.0", Mode: "on"}, false))
}

func TestExplainText(t *testing.T) {
	t.Parallel()
	s := calm()
	golden(t, "explain", explainText(s, s.Containers[:2], nil))
	golden(t, "explain-short", explainText(s, s.Containers[2:3], nil))
	s = looped()
	golden(t, "explain-loop", explainText(s, s.Containers[1:2], nil))
	s.Mode = "preview"
	golden(t, "explain-preview", explainText(s, s.Containers[3:], nil))
}

func TestDefaultOutputKeepsTo80Columns(t *testing.T) {
	t.Parallel()
	for _, s := range []*status.Status{calm(), troubled(), huge(), looped(), hugeLoop()} {
		checkWidth(t, statusText(s, false))
		checkWidth(t, explainText(s, s.Containers, nil))
	}
	long := strings.Repeat("n", 63)
	manifest := "kind: Pod\nmetadata: {name: " + strings.Repeat("p", 253) + ", namespace: " + long + `, annotations: {class.sluice.dev: LSR,
  cpuset.sluice.dev: "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62", smt.sluice.dev: any}}
spec: {containers: [{name: ` + long + `, resources: {limits: {cpu: 32, memory: 1Gi}}}, {name: b, resources: {limits: {cpu: 500m, memory: 1Gi}}}]}`
	plans, err := planAll(testPlanner(t, "4 packages 4 nodes 16 cores 2 threads numbering adjacent"), "-", []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	if plans[0].Answers[0].Error != "" || plans[0].Answers[1].Error == "" {
		t.Errorf("one placed and one refused are wanted: %+v", plans[0].Answers)
	}
	checkWidth(t, planText(plans))
}

func TestFind(t *testing.T) {
	t.Parallel()
	containers := calm().Containers
	for name, want := range map[string]string{
		"data/db-0":       "data/db-0/main data/db-0/proxy",
		"data/db-0/proxy": "data/db-0/proxy",
		"db-0/proxy":      "data/db-0/proxy",
		"db-1":            "data/db-1/main",
		"4f1c2a9":         "data/db-0/main data/db-0/proxy",
		"6":               "batch/db-0/main",
		"db-0":            `"db-0" may mean any of batch/db-0, data/db-0: name one of them`,
		"db-0/main":       `"db-0/main" may mean any of batch/db-0, data/db-0: name one of them`,
		"main":            `no container on this node is named "main" or has an id that begins so; 'sluice status' lists them`,
		"":                `no container on this node is named "" or has an id that begins so; 'sluice status' lists them`,
	} {
		found, err := find(containers, name)
		var got []string
		for _, c := range found {
			got = append(got, c.Ref)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%q: %s, want %s", name, text, want)
		}
	}
}

func TestFindListsAFewPods(t *testing.T) {
	t.Parallel()
	var containers []status.Container
	for i := range 30 {
		containers = append(containers, status.Container{Ref: string(rune('a'+i)) + "/p/c"})
	}
	_, err := find(containers, "p")
	if err == nil || !strings.Contains(err.Error(), "t/p and 10 more") {
		t.Error(err)
	}
}

func TestStatusComesBackFromJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(looped())
	if err != nil {
		t.Fatal(err)
	}
	var back status.Status
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&back)
	if err != nil || string(again) != string(text) {
		t.Errorf("%v\ngot  %s\nwant %s", err, again, text)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 64 << 30: "64 GiB", 1 << 62: "4096 PiB"} {
		if got := size(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

// Explain's quota is the one in the kernel: the loop's, where the loop has set it.
func TestExplainedQuota(t *testing.T) {
	t.Parallel()
	quota := status.Kernel{Level: "pod", Setting: knobs.Quota.String(), Value: "0.2 CPUs"}
	refused := quota
	refused.Problem = "no"
	for want, c := range map[string]status.Container{
		"as the kubelet set it":                {Kernel: []status.Kernel{{Level: "pod", Setting: "cpu.weight", Value: "7"}, refused}},
		"set by Sluice: 0.2 CPUs for the pod":  {Kernel: []status.Kernel{quota}},
		"lifted: nobody else may use its CPUs": {Unlimited: true, Kernel: []status.Kernel{quota}},
	} {
		if got := quotaOf(&c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
