package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
	"github.com/sluice-dev/sluice/topology/synth"
)

// madeUpHost writes a machine's tree without cgroups and returns its root.
func madeUpHost(t *testing.T) string {
	t.Helper()
	spec, err := synth.Parse("4 cores")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := spec.WriteTo(root); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestRestoreNothing(t *testing.T) {
	t.Parallel()
	r := run(t, "", "restore", "--state-dir", t.TempDir(), "--host-root", madeUpHost(t))
	if r.exit != 0 || !strings.HasPrefix(r.out, "Nothing to give back") {
		t.Errorf("exit %d\n%s%s", r.exit, r.out, r.errs)
	}
}

// Without a flag, the folder is that of the installed configuration.
func TestRestoreByTheUsualConfiguration(t *testing.T) {
	t.Parallel()
	host, state := madeUpHost(t), t.TempDir()
	usual := filepath.Join(host, config.UsualFile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(usual), 0o700), os.WriteFile(usual, []byte("stateDir: "+state+"\nruntimeDir: "+state+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "restore", "--dry-run", "--host-root", host); r.exit != 0 || !strings.Contains(r.out, state+" tells of no change") {
		t.Errorf("exit %d\n%s%s", r.exit, r.out, r.errs)
	}
	if err := os.WriteFile(usual, []byte("statDir: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "restore", "--dry-run", "--host-root", host); r.exit != exitFailure || !strings.Contains(r.errs, "--state-dir without --config works as well") {
		t.Errorf("exit %d\n%s%s", r.exit, r.out, r.errs)
	}
	if r := run(t, "", "restore", "--dry-run", "--host-root", host, "--state-dir", state); r.exit != 0 {
		t.Errorf("exit %d\n%s%s", r.exit, r.out, r.errs)
	}
}

func TestRestoreOfABadJournal(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	text := "{}\n{\"path\":\"/a\",\"knob\":\"cpu.idle\",\"value\":\"x\"}\n"
	if err := os.WriteFile(filepath.Join(state, "originals.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, "", "restore", "--state-dir", state, "--host-root", madeUpHost(t))
	if r.exit != exitFailure || !strings.Contains(r.errs, "line 2") {
		t.Errorf("exit %d\n%s%s", r.exit, r.out, r.errs)
	}
}

// Restore refuses to run beside a plugin, which would set everything again.
func TestRestoreBesideThePlugin(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	file, err := os.Create(filepath.Join(state, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	root := madeUpHost(t)
	if r := run(t, "", "restore", "--state-dir", state, "--host-root", root); r.exit != exitFailure || !strings.Contains(r.errs, "another sluice works") {
		t.Errorf("exit %d\n%s%s", r.exit, r.out, r.errs)
	}
	if r := run(t, "", "restore", "--dry-run", "--state-dir", state, "--host-root", root); r.exit != 0 {
		t.Errorf("a look alone: exit %d\n%s%s", r.exit, r.out, r.errs)
	}
}

func TestRestoreNothingAsData(t *testing.T) {
	t.Parallel()
	r := run(t, "", "restore", "--state-dir", t.TempDir(), "--host-root", madeUpHost(t), "-o", "json", "--dry-run")
	if want := "{\n  \"dryRun\": true,\n  \"changes\": [],\n  \"irqs\": 0,\n  \"disks\": 0,\n  \"limited\": 0,\n  \"leftAlone\": []\n}\n"; r.exit != 0 || r.out != want {
		t.Errorf("exit %d\n%s%s", r.exit, r.out, r.errs)
	}
}

// TestRestoreWaitsAndStays checks the container of a DaemonSet: it waits for the plugin's end,
// restores everything, lets a plugin start again, and continues to run.
func TestRestoreWaitsAndStays(t *testing.T) {
	t.Parallel()
	state, root := t.TempDir(), madeUpHost(t)
	unlock, err := statedir.Lock(t.Context(), state, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	command := newRestore()
	out, written := io.Pipe()
	command.SetOut(written)
	command.SetArgs([]string{"--state-dir", state, "--host-root", root, "--wait", "5m", "--stay"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	unlock()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "Nothing to give back") {
		t.Errorf("it says %q, %v", line, err)
	}
	again, err := statedir.Lock(t.Context(), state, time.Minute)
	if err != nil {
		t.Fatalf("a plugin can't start beside it: %v", err)
	}
	again()
	select {
	case err := <-ended:
		t.Errorf("it has ended: %v", err)
	default:
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
