// Package node executes what the documentation shows of a node: each block of the kinds
//
//	sh node             Sluice is installed by its package and runs, and with it the pods
//	                    db (LSR), web (LS) and crunch (BE)
//	sh node bare        on a node without Sluice, where it must run in the end
//	sh node foreground  as sh node, but the last command is a Sluice that runs until it is
//	                    interrupted
//
// The blocks' folder has what a build leaves in bin, configs, sluice.deb and pod.yaml.
//
// The node is this machine, with a containerd of the test's own and real containers. The
// test process has its own mounts: a layer over each folder that the blocks write to, so
// that all paths are as documented and nothing of it stays. systemctl alone is not the
// real one: it runs the unit's command lines in systemd's place. What systemd itself
// makes of the unit, test/vm tests.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/docs/markdown"
	"github.com/sluice-dev/sluice/test/runtime"
)

const root = "../../.."

// ownMounts is an environment variable of a process that has its own mounts.
const ownMounts = "SLUICE_OWN_MOUNTS"

// TestMain replaces its process by one with its own mounts, which takes a process of one thread.
func TestMain(m *testing.M) {
	if os.Getenv(ownMounts) == "" && runtime.Unavailable(runtime.Options{}) == nil {
		words := append([]string{"unshare", "--mount", "--propagation", "private", "--"}, os.Args...)
		fmt.Fprintln(os.Stderr, syscall.Exec("/usr/bin/unshare", words, append(os.Environ(), ownMounts+"=yes")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// usual is the node's configuration. The loop acts, so that the batch switch is in force at once.
const usual = "control: {mode: on, eviction: {by: cri}}\n"

func TestBlocks(t *testing.T) {
	n := begin(t)
	pages, err := markdown.Pages(root)
	must(t, err)
	for _, p := range pages {
		config := usual
		for _, b := range p.Blocks {
			if strings.HasPrefix(b.Text, "web:") { // the rest needs a node with the web page
				config = b.Text
			}
			kind, ok := strings.CutPrefix(b.Kind, "sh node")
			if !ok {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", p.Name, b.Line), func(t *testing.T) {
				switch strings.TrimSpace(kind) {
				case "":
					n.runs(t, config)
					n.execute(t, b, "")
				case "foreground":
					n.runs(t, config)
					n.execute(t, b, "synchronized with the runtime")
				case "bare":
					n.bare(t)
					n.execute(t, b, "")
					if _, err := client().Status(); err != nil {
						t.Errorf("after this Sluice does not run: %v", err)
					}
				default:
					t.Fatalf("blocks are not of kind %q", b.Kind)
				}
			})
		}
	}
	n.bare(t)
}

// patience is the maximum duration of one block.
const patience = 2 * time.Minute

// execute runs a block, which must succeed and print what is shown. If until is not empty, the
// block is interrupted as soon as it has logged that text.
func (n *node) execute(t *testing.T, b markdown.Block, until string) {
	t.Helper()
	// The output goes to files, because processes that a block leaves running keep it open.
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	must(t, err)
	defer out.Close()
	errs, err := os.Create(filepath.Join(dir, "errs"))
	must(t, err)
	defer errs.Close()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", b.Text)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, out, errs
	cmd.Env = append(os.Environ(), "PATH="+n.ctr+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	signal := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	cmd.Cancel = func() error { return signal(syscall.SIGKILL) }
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for until != "" && len(ended) == 0 {
		if strings.Contains(read(t, errs.Name()), until) {
			must(t, signal(syscall.SIGINT))
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	err = <-ended
	printed := read(t, out.Name())
	if err != nil {
		t.Fatalf("%v\n%s%s", errors.Join(err, context.Cause(ctx)), printed, read(t, errs.Name()))
	}
	if b.Next != "" && printed != b.Next {
		t.Errorf("prints\n%s\nthe page shows\n%s", printed, b.Next)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	return string(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
