package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
)

func TestDoctorOfANode(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc", "sluice"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A path below a file can't exist, so neither this machine's socket nor its folder is used.
	blocked := filepath.Join(root, "file")
	text := "statusSocket: " + blocked + "/s\nstateDir: " + blocked + "/d\n"
	for name, text := range map[string]string{config.UsualFile: text, "file": ""} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := run(t, "", "doctor", "--host-root", root, "-o", "json")
	var report struct {
		Level    doctor.Level
		Findings []doctor.Finding
	}
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		t.Fatalf("%v\n%s", err, got.out)
	}
	if got.exit != exitFailure || report.Level != doctor.Fail || !strings.Contains(got.errs, "of level fail") {
		t.Errorf("%d %s\n%s", got.exit, report.Level, got.errs)
	}
	for _, want := range []string{"no cgroup tree", root + config.UsualFile, blocked + "/s", blocked + "/d: not a directory"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q not in\n%s", want, got.out)
		}
	}

	broken := file(t, "sluice.yaml", "mode: of\n")
	got = run(t, "", "doctor", "--host-root", root, "--config", broken, "--status-socket", serve(t, plugin{status: statustest.Troubled()}))
	checkWidth(t, got.out)
	for _, want := range []string{"fail  configuration", "answers; version", "kernel writes"} {
		if got.exit != exitFailure || !strings.Contains(got.out, want) {
			t.Errorf("%q not in\n%s", want, got.out)
		}
	}
	if got := run(t, "", "doctor", "--host-root", blocked); got.exit != exitFailure || !strings.Contains(got.errs, "the host's root") {
		t.Errorf("%+v", got)
	}
}

// TestCheckOfEviction checks that a configuration whose evictions can't work on a node gets a
// warning.
func TestCheckOfEviction(t *testing.T) {
	t.Parallel()
	root := madeUpHost(t)
	for text, want := range map[string]bool{
		"control: {eviction: {by: cri}}":                               true,
		"control: {eviction: {by: cri, socket: /run/none.sock}}":       true,
		"control: {eviction: {by: cri, mode: \"off\"}}":                false,
		"control: {mode: \"off\", eviction: {by: cri, mode: default}}": false,
		"control: {eviction: {by: report}}":                            false,
	} {
		got := run(t, "", "check", "-f", file(t, "sluice.yaml", text+"\n"), "--host-root", root)
		if got.exit != 0 || strings.Contains(got.errs, "no pod can be evicted: name the kubelet's CRI socket") != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
