package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// following is a plugin whose loop reads the switch in the state folder.
type following struct {
	plugin
	dir   string
	asked chan struct{} // receives requests, with room for one; nil if the switch is followed at once
	tell  func(*status.Loop)
}

func (p following) Status() (*status.Status, error) {
	s := statustest.Looped()
	l := s.Loop
	l.StateDir, l.Batch = p.dir, status.Batch{State: status.BatchOpen, Mechanism: "quota", Known: true, Budget: 6000, Floor: 200, Switch: status.Switch{State: "auto"}}
	select {
	case p.asked <- struct{}{}: // not read yet
	default:
		said, err := batchswitch.Read(p.dir)
		if err != nil {
			return nil, err
		}
		l.Batch.Switch = said.Status()
		if said.To == control.SwitchOff {
			l.Batch.State, l.Batch.Why, l.Batch.Budget = status.BatchClosed, "batch is switched off", 200
		}
	}
	if p.tell != nil {
		p.tell(l)
	}
	return s, nil
}

// The command reports, and writes if necessary, what follows from a loop's answer.
// pkg/engine/batchswitch tests each answer.
func TestBatch(t *testing.T) {
	t.Parallel()
	silence := func(l *status.Loop) { l.MeasuredAt = l.MeasuredAt.Add(-time.Hour) }
	for name, test := range map[string]struct {
		args   string
		plugin func(dir string) statusapi.Source // nil if no plugin answers
		exit   int
		want   string // part of the output, on one line
		said   string // text of the file; "" for none
	}{
		"off": {"off", func(dir string) statusapi.Source { return following{dir: dir, asked: make(chan struct{}, 1)} },
			0, "loop follows the switch", `{"to":"off"}`},
		"on":   {"on", func(dir string) statusapi.Source { return following{dir: dir} }, 0, "switch on", `{"to":"on"}`},
		"auto": {"auto", func(dir string) statusapi.Source { return following{dir: dir} }, 0, "batch open", `{}`},
		"only told": {"off --evict", func(dir string) statusapi.Source { return following{dir: dir} },
			exitFailure, "NOT DONE evictions are reported and not carried out: control.eviction.mode is preview, by report", `{"to":"off","evict":true}`},
		"another folder": {"on", func(dir string) statusapi.Source {
			return following{dir: dir, tell: func(l *status.Loop) { l.StateDir = "/var/lib/other" }}
		}, exitFailure, "state folder is /var/lib/other: name it with --state-dir", `{"to":"on"}`},
		"on, and the fleet is off": {"on", func(dir string) statusapi.Source {
			return following{dir: dir, tell: func(l *status.Loop) { l.Batch.FleetSwitch = &status.Switch{State: control.SwitchOff, Evict: true} }}
		}, exitFailure, "fleet the fleet's switch is off, with eviction batch open CPU", `{"to":"on"}`},
		"off, and the fleet is on": {"off", func(dir string) statusapi.Source {
			return following{dir: dir, tell: func(l *status.Loop) {
				l.Batch.FleetSwitch = &status.Switch{State: control.SwitchOn, Problem: "the key batch is missing"}
			}}
		}, 0, "the fleet's switch is on; it stays so: the key batch is missing", `{"to":"off"}`},
		"a loop that stands still": {"on", func(dir string) statusapi.Source { return following{dir: dir, tell: silence} },
			exitFailure, "has not taken the switch over", `{"to":"on"}`},
		"no loop": {"off", func(string) statusapi.Source { return plugin{status: statustest.Calm()} },
			exitFailure, "loop none: control.mode is off", `{"to":"off"}`},
		"nobody":  {"on", nil, exitFailure, "NOT DONE batch work stays as it is until a loop takes the switch over", `{"to":"on"}`},
		"no plan": {"off", nil, exitFailure, "NOT DONE the failsafe has no plan for this boot", `{"to":"off"}`},
		"previewed": {"off", func(dir string) statusapi.Source {
			return following{dir: dir, tell: func(l *status.Loop) {
				l.Mode, l.Controllers = control.Preview, []status.Controller{{Name: "windows", Mode: control.Preview}, {Name: "batch", Mode: control.Preview}}
			}}
		}, exitFailure, "which changes nothing on this node: control.mode is preview; set it to on in sluice.yaml NOT DONE batch work keeps its CPUs", `{"to":"off"}`},
		"ask":             {"", func(dir string) statusapi.Source { return following{dir: dir} }, 0, "switch auto: the configured windows count", ""},
		"ask nobody":      {"", nil, exitFailure, "NOT DONE what is in force isn't known", ""},
		"a word too many": {"off on", nil, exitUsage, "", ""},
		"no such word":    {"of", nil, exitUsage, "", ""},
		"evict with on":   {"on --evict", nil, exitUsage, "", ""},
		"for no time":     {"off --for 0s", nil, exitUsage, "", ""},
		"auto for a time": {"auto --for 1h", nil, exitUsage, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, socket := t.TempDir(), "/nonexistent"
			if test.plugin != nil {
				socket = serve(t, test.plugin(dir))
			}
			wait := "1m" // as long as it takes
			switch {
			case test.plugin == nil:
				wait = "10ms"
			case name == "a loop that stands still": // for the first answer
				wait = "5s"
			}
			got := run(t, "", append([]string{"batch", "--state-dir", dir, "--host-root", t.TempDir(), "--status-socket", socket, "--wait", wait}, strings.Fields(test.args)...)...)
			checkWidth(t, got.out)
			if line := strings.Join(strings.Fields(got.out), " "); got.exit != test.exit || !strings.Contains(line, test.want) || (got.exit == 0) != (got.errs == "") {
				t.Errorf("exit status %d, want %d with %q\n%s%s", got.exit, test.exit, test.want, got.out, got.errs)
			}
			said, err := os.ReadFile(filepath.Join(dir, batchswitch.File))
			if strings.TrimSpace(string(said)) != test.said || (test.said != "") != (err == nil) {
				t.Errorf("the file says %s, %v", said, err)
			}
		})
	}
}

// The folder can't be written, or its file can't be read.
func TestBatchFolder(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"): "sluice has not run with this state folder",
		file(t, "f", ""):                   "not a directory: nothing is switched",
	} {
		if got := run(t, "", "batch", "on", "--state-dir", state); got.exit != exitFailure || !strings.Contains(got.errs, want) {
			t.Errorf("%s: %+v", state, got)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, batchswitch.File), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "", "batch", "--state-dir", dir); got.exit != exitFailure || !strings.Contains(got.errs, "write it anew with sluice batch") {
		t.Errorf("%+v", got)
	}
	broken := file(t, "sluice.yaml", "mode: of\n")
	if got := run(t, "", "batch", "on", "--config", broken); got.exit != exitFailure || !strings.Contains(got.errs, "--state-dir without --config") {
		t.Errorf("%+v", got)
	}
	if got := run(t, "", "__complete", "batch", "o"); !strings.HasPrefix(got.out, "on\noff\n") {
		t.Errorf("%+v", got)
	}
}
