package switching

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// plugin is a running plugin with a status.
type plugin struct{ status *status.Status }

func (p plugin) Status() (*status.Status, error) { return p.status, nil }

func (plugin) Machine() (*topology.Machine, error) { return nil, errors.New("not asked for") }

func (plugin) WhatIf(*workload.Pod, []workload.Container) ([]status.Answer, error) { return nil, nil }

// hanging is a stopped plugin, whose socket accepts a connection and never answers.
type hanging struct {
	plugin
	goOn chan struct{}
}

func (p hanging) Status() (*status.Status, error) {
	<-p.goOn
	return nil, errors.New("late")
}

// serve serves a plugin on a socket until the test ends.
func serve(t *testing.T, p statusapi.Source) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "switching") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- statusapi.Serve(ctx, socket, p) }()
	t.Cleanup(func() { stop(); <-ended; os.RemoveAll(dir) })
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			return socket
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
}

// said returns the command's output on one line, and its error.
func said(t *testing.T, o Options) (string, error) {
	t.Helper()
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := render.Batch(&text, report); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(text.String()), " "), o.Verdict(report)
}

// floored returns a host with a batch cgroup, and a state folder with the failsafe's plan.
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

// If no loop follows the switch, the command squeezes batch work itself.
func TestBatchOffWithoutTheLoop(t *testing.T) {
	t.Parallel()
	still := statustest.Looped()
	still.Loop.MeasuredAt, still.Loop.StateDir = still.Time.Add(-time.Hour), ""
	stopped := hanging{goOn: make(chan struct{})}
	t.Cleanup(func() { close(stopped.goOn) })
	for name, test := range map[string]struct {
		word, socket string
		evict, whole bool
		quota, want  string
	}{
		"away":           {"off", "/nonexistent", false, true, "20000 100000", "1 setting written in the loop's place"},
		"hangs":          {"off", serve(t, stopped), false, true, "20000 100000", "doesn't answer: the plugin is away or hangs"},
		"with evictions": {"off", "/nonexistent", true, false, "20000 100000", "nothing was evicted: that needs the loop"},
		"stands still":   {"off", serve(t, plugin{status: still}), false, true, "20000 100000", "has not taken the switch over, though the plugin answers"},
		"on":             {"on", "/nonexistent", false, false, "", "batch work stays as it is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, root, quota := floored(t)
			wait := 10 * time.Millisecond
			if name == "stands still" { // waits for the first answer
				wait = 5 * time.Second
			}
			o := Options{Word: test.word, Evict: test.evict, StateDir: dir, HostRoot: root, Socket: test.socket, Wait: wait}
			text, err := said(t, o)
			if wrote, unread := os.ReadFile(quota); (err == nil) != test.whole || !strings.Contains(text, test.want) || unread != nil || string(wrote) != test.quota {
				t.Errorf("%v, quota %q, %v\n%s", err, wrote, unread, text)
			}
			if _, acted := failsafe.TakeReport(dir); acted != (test.quota != "") {
				t.Errorf("word of it is left: %v", acted)
			}
		})
	}
}

// With a configuration in preview, nothing is written.
func TestBatchOffInPreview(t *testing.T) {
	t.Parallel()
	dir, root, quota := floored(t)
	config := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(config, []byte("control: {mode: preview}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := said(t, Options{Word: "off", Config: config, StateDir: dir, HostRoot: root, Socket: "/nonexistent"})
	if wrote, unread := os.ReadFile(quota); err == nil || unread != nil || len(wrote) > 0 || !strings.Contains(text, "control.mode is preview; set it to on in "+config) {
		t.Errorf("%v, quota %q, %v\n%s", err, wrote, unread, text)
	}
}

func TestBatchOffFails(t *testing.T) {
	t.Parallel()
	dir, root, quota := floored(t)
	if err := errors.Join(os.Remove(quota), os.Mkdir(quota, 0o755)); err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{Word: "off", StateDir: dir, HostRoot: root, Socket: "/nonexistent"})
	if err != nil || report.Floor == nil || report.Floor.Problem == "" || report.Loop != batchswitch.LoopSilent || len(report.Lacks) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// A disk that does not answer is told of. A named pipe that nobody reads is a file whose writes
// hang.
func TestDiskHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, batchswitch.File+".new")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), Options{Word: "off", StateDir: dir, HostRoot: dir, Socket: "/nonexistent"})
	if err == nil || !strings.Contains(err.Error(), dir+": the disk does not answer: nothing is switched") {
		t.Errorf("%v", err)
	}
	if _, err := os.ReadFile(pipe); err != nil { // lets the write end
		t.Error(err)
	}
}

// Arguments and flags that contradict each other are refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Evict: true}, {Word: "on", Evict: true}, {For: time.Hour}, {Word: "auto", For: time.Hour}, {Word: "off", For: -time.Hour}} {
		if o.Check() == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	for _, o := range []Options{{}, {Word: "off", Evict: true, For: time.Hour}, {Word: "on", For: time.Hour}, {Word: "auto"}} {
		if err := o.Check(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
