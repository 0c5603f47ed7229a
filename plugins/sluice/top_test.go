package main

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status/statustest"
)

func TestTopOnce(t *testing.T) {
	t.Parallel()
	s := statustest.Looped()
	planner := testPlanner(t, "2 nodes 8 cores 2 threads")
	socket := serve(t, plugin{status: s, planner: planner})
	for _, args := range [][]string{{"top"}, {"top", "--once"}, {"top", "--once", "--sort", "memory"}} {
		got := run(t, "", append(args, "--status-socket", socket)...)
		if got.exit != 0 || got.errs != "" {
			t.Fatalf("%+v", got)
		}
		for _, want := range []string{"sluice v0.1.0", "P0 N1", "data/db-0/main", "BATCH", "DISTURBED", `memory \x1b[2J is short`} {
			if !strings.Contains(got.out, want) {
				t.Errorf("%v: %q is not in\n%s", args, want, got.out)
			}
		}
		checkWidth(t, got.out)
	}
	if got := run(t, "", "top", "--once", "--status-socket", "/nonexistent"); got.exit != exitFailure || !strings.Contains(got.errs, "is sluice running") {
		t.Errorf("%+v", got)
	}
	if got := run(t, "", "top", "--interval", "1ms"); got.exit != exitUsage || !strings.Contains(got.errs, "at least 200ms") {
		t.Errorf("%+v", got)
	}
}
