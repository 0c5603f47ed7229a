package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
)

// trailOf writes decisions to an audit trail and returns its folder.
func trailOf(t *testing.T, all []status.Decision) string {
	t.Helper()
	dir := t.TempDir()
	trail := audit.Open(dir, logrus.New())
	for i := range all {
		trail.Record(all[i].Time, all[i].Mode, &all[i].Decision)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	trail.Run(ended)
	return dir
}

func TestLog(t *testing.T) {
	t.Parallel()
	dir := trailOf(t, statustest.Looped().Loop.Decisions)
	got := run(t, "", "log", "--state-dir", dir)
	checkWidth(t, got.out)
	if got.exit != 0 || strings.Count(got.out, "\n") < 2*len(statustest.Looped().Loop.Decisions) {
		t.Errorf("%+v", got)
	}
	for args, want := range map[string][]string{
		"":                                 {"pool online", "data/db-0/proxy", "node", "batch/db-0"},
		"--pod data/db-0":                  {"data/db-0/proxy"},
		"--controller pools":               {"pool online"},
		"--controller windows --since 1ns": nil,
		"--pod online":                     {"pool online"},
		"--pod nobody -c " + file(t, "c.yaml", "mode: on\n"): nil,
	} {
		got := run(t, "", append([]string{"log", "--state-dir", dir, "-o", "json"}, strings.Fields(args)...)...)
		var objects []string
		for line := range strings.Lines(got.out) {
			var e audit.Entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			objects = append(objects, e.Object)
		}
		if got.exit != 0 || strings.Join(objects, ",") != strings.Join(want, ",") {
			t.Errorf("log %s: %q, want %q; %s", args, objects, want, got.errs)
		}
	}
	if got := run(t, "", "log", "--why", "--pod", "data/db-0/proxy", "--state-dir", dir); !strings.Contains(got.out, "    limit 1 CPU\n") {
		t.Errorf("%+v", got)
	}
}

func TestLogOfNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := run(t, "", "log", "--state-dir", dir); got.exit != 0 || got.out != "No such decision in "+dir+".\n" {
		t.Errorf("%+v", got)
	}
	none := filepath.Join(dir, "none")
	if got := run(t, "", "log", "--state-dir", none); !strings.HasPrefix(got.out, "No such decision in "+none+", which is not there: ") {
		t.Errorf("%+v", got)
	}
	if got := run(t, "", "log", "--state-dir", dir, "-o", "json"); got.exit != 0 || got.out != "" {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "audit.jsonl"), []byte("{\"obj\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "", "log", "--state-dir", dir); got.exit != 0 || !strings.Contains(got.errs, "1 line of the trail left out") {
		t.Errorf("%+v", got)
	}
}

func TestLogCompletes(t *testing.T) {
	t.Parallel()
	socket := serve(t, plugin{status: statustest.Calm()})
	for args, want := range map[string]string{
		"--controller ": "batch\nburst\n", "--pod ": "batch/db-0\ndata/db-0\ndata/db-1\n",
	} {
		if got := run(t, "", "__complete", "log", "--status-socket", socket, strings.TrimSpace(args), ""); !strings.HasPrefix(got.out, want) {
			t.Errorf("%s: %q", args, got.out)
		}
	}
}

// Explain shows the trail's decisions and the plugin's, each once.
func TestExplainReadsTheTrail(t *testing.T) {
	t.Parallel()
	s := statustest.Looped()
	older := s.Loop.Decisions[1]
	older.Time = older.Time.Add(-time.Hour)
	s.Loop.StateDir = trailOf(t, []status.Decision{older, s.Loop.Decisions[0], s.Loop.Decisions[1]})
	got := run(t, "", "explain", "data/db-0", "--status-socket", serve(t, plugin{status: s}))
	if got.exit != 0 || strings.Count(got.out, "data/db-0/proxy: raise, 1 to 1.2") != 2 || strings.Contains(got.out, "pool online: grow") {
		t.Errorf("%d\n%s%s", got.exit, got.out, got.errs)
	}
}
