package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
)

// These are FIFREEZE and FITHAW of include/uapi/linux/fs.h, which golang.org/x/sys lacks.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// frozenFor is how long the disk stays frozen, which is about as long as a backup's snapshot
// takes.
const frozenFor = 3 * time.Second

// TestFrozenDisk freezes a real file system, as a guest agent does for a snapshot. If it has the
// journal, every start waits until it thaws; if it has the state folder and the journal is in
// memory, no start waits.
func TestFrozenDisk(t *testing.T) {
	disk := loopDisk(t)
	memory, err := os.MkdirTemp("/dev/shm", "sluice-")
	if err != nil {
		t.Skipf("SKIPPED: a folder in memory: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(memory) })
	for _, test := range []struct {
		name, dir string
		waits     bool
	}{
		{"journal on the frozen disk", disk, true},
		{"journal in memory", memory, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t, setup{
				originals: filepath.Join(test.dir, "originals.jsonl"),
				config:    func(c *config.Config) { c.RecordUpdates.Enabled = false }, // in real time, the runtime would make one while the test goes on
			})
			defer n.stop()
			n.connect("")
			n.synchronize()
			n.run("web", "LS", 1)
			thawed := freeze(t, disk)
			var longest time.Duration
			for i := range 3 {
				asked := time.Now()
				n.run(fmt.Sprintf("db%d", i), "LSR", 1)
				longest = max(longest, time.Since(asked))
			}
			t.Logf("the longest creation and start took %s, on a disk frozen for %s", longest.Round(time.Microsecond), frozenFor)
			if waited := longest > frozenFor/2; waited != test.waits {
				t.Errorf("it waited for the disk: %t, want %t", waited, test.waits)
			}
			<-thawed
		})
	}
}

// TestFrozenSwitch: while the disk with the batch switch does not answer, starts wait a moment
// for it once, and what it said last holds. A named pipe that nobody writes to is a file whose
// reads hang.
func TestFrozenSwitch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, hung := filepath.Join(dir, batchswitch.File), filepath.Join(dir, "hung")
	n := newNode(t, setup{stateDir: dir, config: func(c *config.Config) { c.Mode, c.Control.Mode = config.On, control.On }})
	defer n.stop()
	n.connect("")
	n.synchronize()
	n.run("first", "BE", 0)
	if err := errors.Join(unix.Mkfifo(hung, 0o600), os.Link(hung, file)); err != nil {
		t.Fatal(err)
	}
	problem := func() (text string) {
		n.loop(func() { text = n.agent.loop.BatchStatus().Switch.Problem })
		return text
	}
	began := time.Now()
	n.run("second", "BE", 0)
	n.run("third", "BE", 0)
	if took := time.Since(began); took > frozenFor/2 {
		t.Errorf("the starts took %s", took)
	}
	for deadline := began.Add(time.Minute); problem() == "" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		n.create("again", "BE", 0) // reads the switch
	}
	if text, told := problem(), n.log.count("batch switch can't be read"); !strings.Contains(text, "has not answered") || told != 1 {
		t.Errorf("the status says %q, and the log tells it %d times", text, told)
	}
	if err := batchswitch.Write(dir, batchswitch.Setting{To: control.SwitchOff}); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(hung, os.O_WRONLY, 0) // whoever reads it finds it empty
	if err != nil {
		t.Fatal(err)
	}
	pipe.Close()
	for deadline := time.Now().Add(time.Minute); problem() != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the switch is not read again")
		}
		n.create("refused", "BE", 0) // reads the switch
	}
	if err := n.create("last", "BE", 0); err == nil || !strings.Contains(err.Error(), "switched off") {
		t.Errorf("switched off, a start answers %v", err)
	}
}

// loopDisk returns a folder on an ext4 file system of its own.
func loopDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: mounting a file system takes root")
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 32<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: no loop device here: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// freeze freezes a file system and thaws it after frozenFor.
func freeze(t *testing.T, dir string) (thawed <-chan struct{}) {
	t.Helper()
	folder, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(folder.Fd()), fiFreeze, 0); err != nil {
		t.Fatalf("FIFREEZE: %v", err)
	}
	done := make(chan struct{})
	time.AfterFunc(frozenFor, func() {
		defer close(done)
		defer folder.Close()
		if err := unix.IoctlSetInt(int(folder.Fd()), fiThaw, 0); err != nil {
			t.Errorf("FITHAW: %v", err)
		}
	})
	return done
}
