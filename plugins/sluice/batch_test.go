package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// switching is a plugin whose loop reads the state folder's switch.
type switching struct {
	plugin
	dir   string
	asked chan struct{} // with room for one; nil: the switch is followed from the first
	tell  func(*status.Loop)
}

func (p switching) Status() (*status.Status, error) {
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

// hanging is a plugin that is stopped: its socket takes a connection, and that is all.
type hanging struct {
	plugin
	goOn chan struct{}
}

func (p hanging) Status() (*status.Status, error) {
	<-p.goOn
	return nil, errors.New("late")
}

// What the command says and writes by what a loop answers; pkg/engine/batchswitch tests each
// of its answers.
func TestBatch(t *testing.T) {
	t.Parallel()
	silence := func(l *status.Loop) { l.MeasuredAt = l.MeasuredAt.Add(-time.Hour) }
	for name, test := range map[string]struct {
		args   string
		plugin func(dir string) statusapi.Source // nil: none answers
		exit   int
		want   string // in the output, in one line
		said   string // the file; "" is none
	}{
		"off": {"off", func(dir string) statusapi.Source { return switching{dir: dir, asked: make(chan struct{}, 1)} },
			0, "loop follows the switch", `{"to":"off"}`},
		"on":   {"on", func(dir string) statusapi.Source { return switching{dir: dir} }, 0, "switch on", `{"to":"on"}`},
		"auto": {"auto", func(dir string) statusapi.Source { return switching{dir: dir} }, 0, "batch open", `{}`},
		"only told": {"off --evict", func(dir string) statusapi.Source { return switching{dir: dir} },
			exitFailure, "NOT DONE evictions are reported and not carried out: control.eviction.mode is preview, by report", `{"to":"off","evict":true}`},
		"another folder": {"on", func(dir string) statusapi.Source {
			return switching{dir: dir, tell: func(l *status.Loop) { l.StateDir = "/var/lib/other" }}
		}, exitFailure, "state folder is /var/lib/other: name it with --state-dir", `{"to":"on"}`},
		"a loop that stands still": {"on", func(dir string) statusapi.Source { return switching{dir: dir, tell: silence} },
			exitFailure, "has not taken the switch over", `{"to":"on"}`},
		"no loop": {"off", func(string) statusapi.Source { return plugin{status: statustest.Calm()} },
			exitFailure, "loop none: control.mode is off", `{"to":"off"}`},
		"nobody":          {"on", nil, exitFailure, "NOT DONE batch work stays as it is until a loop takes the switch over", `{"to":"on"}`},
		"no plan":         {"off", nil, exitFailure, "NOT DONE the failsafe has no plan for this boot", `{"to":"off"}`},
		"ask":             {"", func(dir string) statusapi.Source { return switching{dir: dir} }, 0, "switch auto: the configured windows count", ""},
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

// floored is a host with a batch box, and a state folder with the failsafe's plan.
func floored(t *testing.T) (dir, root, quota string) {
	t.Helper()
	dir, root = t.TempDir(), t.TempDir()
	box := filepath.Join(root, "sys/fs/cgroup/kubepods/besteffort")
	quota = filepath.Join(box, "cpu.max")
	if err := os.MkdirAll(box, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{filepath.Join(root, "sys/fs/cgroup/cgroup.controllers"): "cpuset cpu\n", quota: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	floor := knobs.Change{
		Object: knobs.Object{Path: "/kubepods/besteffort", Name: "besteffort", Level: knobs.ClassLevel}, Knob: knobs.Quota,
		To: knobs.CPUQuota{Quota: 20 * time.Millisecond, Period: 100 * time.Millisecond}, Why: "batch work's floor",
	}
	if err := failsafe.Save(dir, procfs.BootID(os.DirFS(root)), []knobs.Change{floor}); err != nil {
		t.Fatal(err)
	}
	return dir, root, quota
}

// Where no loop follows, off is carried out all the same.
func TestBatchOffWithoutTheLoop(t *testing.T) {
	t.Parallel()
	still := statustest.Looped()
	still.Loop.MeasuredAt, still.Loop.StateDir = still.Time.Add(-time.Hour), ""
	stopped := hanging{goOn: make(chan struct{})}
	t.Cleanup(func() { close(stopped.goOn) })
	for name, test := range map[string]struct {
		args, socket string
		exit         int
		quota, want  string
	}{
		"away":           {"off", "/nonexistent", 0, "20000 100000", "1 setting written in the loop's place"},
		"hangs":          {"off", serve(t, stopped), 0, "20000 100000", "doesn't answer: the plugin is away or hangs"},
		"with evictions": {"off --evict", "/nonexistent", exitFailure, "20000 100000", "nothing was evicted: that needs the loop"},
		"stands still":   {"off", serve(t, plugin{status: still}), 0, "20000 100000", "has not taken the switch over, though the plugin answers"},
		"on":             {"on", "/nonexistent", exitFailure, "", "batch work stays as it is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, root, quota := floored(t)
			wait := "10ms"
			if name == "stands still" { // for the first answer
				wait = "5s"
			}
			got := run(t, "", append([]string{"batch", "--state-dir", dir, "--host-root", root, "--status-socket", test.socket, "--wait", wait}, strings.Fields(test.args)...)...)
			line := strings.Join(strings.Fields(got.out), " ")
			if wrote, err := os.ReadFile(quota); got.exit != test.exit || !strings.Contains(line, test.want) || err != nil || string(wrote) != test.quota {
				t.Errorf("exit %d, quota %q, %v\n%s%s", got.exit, wrote, err, got.out, got.errs)
			}
			if _, acted := failsafe.Noted(dir); acted != (test.quota != "") {
				t.Errorf("word of it is left: %v", acted)
			}
		})
	}
}

// By a configuration that only previews, nothing is written.
func TestBatchOffInPreview(t *testing.T) {
	t.Parallel()
	dir, root, quota := floored(t)
	config := file(t, "sluice.yaml", "control: {mode: preview}\n")
	got := run(t, "", "batch", "off", "-c", config, "--state-dir", dir, "--host-root", root, "--status-socket", "/nonexistent", "--wait", "10ms")
	if wrote, err := os.ReadFile(quota); got.exit != exitFailure || err != nil || len(wrote) > 0 {
		t.Errorf("exit %d, quota %q, %v\n%s", got.exit, wrote, err, got.out)
	}
}

func TestBatchOffFails(t *testing.T) {
	t.Parallel()
	dir, root, quota := floored(t)
	if err := errors.Join(os.Remove(quota), os.Mkdir(quota, 0o755)); err != nil {
		t.Fatal(err)
	}
	got := run(t, "", "batch", "off", "--state-dir", dir, "--host-root", root, "--status-socket", "/nonexistent", "--wait", "10ms", "-o", "json")
	var report batchswitch.Report
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		t.Fatal(err, got.out)
	}
	if got.exit != exitFailure || report.Floor == nil || report.Floor.Problem == "" || report.Loop != batchswitch.LoopSilent || len(report.Lacks) != 1 {
		t.Errorf("%+v", got)
	}
}

// The folder can't be written, or the file in it not be read.
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
