package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/status"
)

// text is a value as a node's command prints it.
func text(value any) string {
	is, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(is)
}

// examined is a cluster whose doctors find this and that.
func examined(worst doctor.Level) *api {
	a := &api{}
	for _, name := range []string{"a", "b", "c", "old", "away"} {
		a.add(name, name, "", nil, "node")
	}
	a.runs = func(node string, words []string) ran {
		if got := strings.Join(words, " "); got != "sluice doctor -o json" {
			return ran{errs: "unexpected: " + got, exit: 2}
		}
		burst := doctor.Finding{Area: "cpu", Name: "burst", What: "cpu.max.burst"}
		switch node {
		case "a":
			return ran{out: text(doctor.Report{Findings: []doctor.Finding{burst, {Area: "machine", Name: "swap", Level: doctor.Warn, What: "swap of 2 GiB is on", Do: "swapoff -a"}}})}
		case "b":
			return ran{out: text(doctor.Report{Findings: []doctor.Finding{
				burst, {Area: "machine", Name: "swap", Level: doctor.Warn, What: "swap of 7 GiB is on", Do: "swapoff -a"},
				{Area: "runtime", Name: "nri \x1b[2J", Level: worst, What: "NRI is \u009b1m off", Do: "set disable = false in the section of NRI of /etc/containerd/config.toml, and restart containerd"},
			}}), errs: "sluice: 1 finding\n", exit: 1}
		case "c":
			return ran{out: text(doctor.Report{Findings: []doctor.Finding{burst, {Area: "cpu", Name: "group identity", Level: doctor.Note, What: "cpu.idle", Do: "nothing"}}})}
		case "old":
			return ran{out: `{"findings": [{"name": "x", "level": "catastrophe"}]}`}
		}
		return ran{errs: "sluice: permission denied\n", exit: 1}
	}
	return a
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	a := examined(doctor.Fail)
	a.shows(t, "doctor", "doctor", 1)
	a.shows(t, "doctor-note", "doctor --level note", 1)
	a.shows(t, "doctor-json", "doctor -o json", 1)
	calm := examined(doctor.OK)
	for line, want := range map[string]int{
		"doctor -l topology.kubernetes.io/zone=a":            0,
		"doctor -l topology.kubernetes.io/zone=a --strict":   1,
		"doctor -l topology.kubernetes.io/zone=c --strict":   0,
		"doctor -l topology.kubernetes.io/zone=away":         1,
		"doctor -l topology.kubernetes.io/zone=old":          1,
		"doctor -l topology.kubernetes.io/zone=z":            1,
		"doctor -l topology.kubernetes.io/zone=a -n another": 1,
		"doctor n1": 2,
	} {
		if exit, out, errs := calm.call(t, line); exit != want {
			t.Errorf("%s: exit status %d, %s%s", line, exit, out, errs)
		}
	}
}

// What is read of a node's answer is what the node's command writes.
func TestAnswersAgree(t *testing.T) {
	t.Parallel()
	for level := doctor.OK; level <= doctor.Fail; level++ {
		want := doctor.Finding{Area: "a", Name: "n", Level: level, What: "w", Do: "d"}
		got, err := readFindings("n", &kube.Printed{Out: []byte(text(doctor.Report{Findings: []doctor.Finding{want}}))})
		if err != nil || len(got.Findings) != 1 || got.Findings[0] != (fleet.Finding{Area: "a", Name: "n", Level: level.String(), What: "w", Do: "d"}) {
			t.Errorf("%s: %+v, %v", level, got, err)
		}
	}
	until := time.Date(2026, 11, 23, 15, 0, 0, 0, time.UTC)
	got, err := readOutcome("n", &kube.Printed{Out: []byte(text(batchswitch.Report{
		Switch: status.Switch{State: "off", Evict: true, EndsAt: until}, Batch: &status.Batch{State: status.BatchClosed}, Preview: "p", Lacks: []string{"l"},
	}))})
	if err != nil || got.Node != "n" || got.Switch != "off" || !got.Evict || !got.EndsAt.Equal(until) || got.Batch != "closed" || got.Preview != "p" || !slices.Equal(got.Lacks, []string{"l"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// switched is a cluster whose nodes follow the switch, or not.
func switched() *api {
	a := &api{}
	for _, name := range []string{"a", "b", "preview", "stuck", "away"} {
		a.add(name, name, "", nil, "node")
	}
	a.runs = func(node string, words []string) ran {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		a.ran = append(a.ran, node+": "+strings.Join(words, " "))
		r := batchswitch.Report{Loop: batchswitch.LoopFollows, Batch: &status.Batch{State: status.BatchOpen}}
		if slices.Contains(words, "off") {
			r.Switch.State, r.Batch.State = "off", status.BatchClosed
			if slices.Contains(words, "--for") {
				r.Switch.EndsAt = time.Date(2026, 11, 23, 13, 0, 0, 0, time.Local)
			}
		}
		switch node {
		case "preview":
			r.Preview = "control.mode is preview; set it to on in /etc/sluice/sluice.yaml"
		case "stuck":
			r.Batch, r.Lacks = nil, []string{"batch work stays as it is \x1b[2J"}
			return ran{out: text(r), errs: "sluice: batch off is not in force as a whole\n", exit: 1}
		case "away":
			return ran{errs: "sluice: the switch can't be written to /var/lib/sluice\n", exit: 1}
		}
		return ran{out: text(r)}
	}
	return a
}

func TestBatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line string
		in   string
		exit int
		ran  string // the command of node a; "" for none
	}{
		"batch-off":      {"batch off --for 1h --yes", "", 1, "sluice batch -o json off --for 1h0m0s"},
		"batch-dry":      {"batch off --dry-run --evict", "", 1, "sluice batch -o json"},
		"batch-show":     {"batch -l topology.kubernetes.io/zone=stuck", "", 0, ""},
		"batch-json":     {"batch auto -o json -l topology.kubernetes.io/zone=a", "", 0, "sluice batch -o json auto"},
		"batch-asked":    {"batch off --evict -l topology.kubernetes.io/zone!=away,topology.kubernetes.io/zone!=stuck,topology.kubernetes.io/zone!=preview", "Y\n", 0, "sluice batch -o json off --evict"},
		"batch-no":       {"batch off", "n\n", 1, ""},
		"batch-no-input": {"batch off", "", 1, ""},
	} {
		a := switched()
		a.in = test.in
		if strings.HasPrefix(name, "batch-no") {
			if exit, out, errs := a.call(t, test.line); exit != 1 || out != "" || !strings.Contains(errs, "nothing was switched") || !strings.Contains(errs, "5 nodes (a, away, b, preview, stuck)? [y/N]") {
				t.Errorf("%s: exit status %d, %q, %q", test.line, exit, out, errs)
			}
		} else {
			a.shows(t, name, test.line, test.exit)
		}
		if ran := slices.ContainsFunc(a.ran, func(s string) bool { return s == "a: "+test.ran }); ran != (test.ran != "") || test.in == "n\n" && len(a.ran) > 0 {
			t.Errorf("%s: the nodes ran %q", test.line, a.ran)
		}
	}
	for line, says := range map[string]string{
		"batch stop":          "on, off, auto or no word",
		"batch on --evict":    "--evict goes with off alone",
		"batch auto --for 1h": "--for goes with on or off",
		"batch off --for 0s":  "longer than nothing",
		"batch --dry-run":     "--dry-run goes with",
	} {
		a := switched()
		if exit, _, errs := a.call(t, line); exit != 2 || !strings.Contains(errs, says) || len(a.ran) > 0 {
			t.Errorf("%s: exit status %d, %q", line, exit, errs)
		}
	}
}
