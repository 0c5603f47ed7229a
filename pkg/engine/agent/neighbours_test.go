package agent

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
)

func host(more fstest.MapFS) fstest.MapFS {
	all := fstest.MapFS{"proc": &fstest.MapFile{Mode: fs.ModeDir}}
	maps.Copy(all, more)
	return all
}

// hostDir returns a host whose files a test can change.
func hostDir(t *testing.T, files fstest.MapFS) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.CopyFS(dir, files), os.MkdirAll(filepath.Join(dir, "proc"), 0o700)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o600} }

const stateFile = "var/lib/kubelet/cpu_manager_state"

var (
	static = fstest.MapFS{stateFile: file(`{"policyName":"static","defaultCpuSet":"0,3-7","entries":{"p":{"c":"1-2"}},"checksum":1}`)}
	other  = fstest.MapFS{"proc/7/comm": file("koordlet\n"), "proc/7/status": file("Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n")}
)

func TestKubeletsStaticPolicy(t *testing.T) {
	inBubble(t, setup{host: host(static)}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("batch", "BE", 0)
		if err := n.create("db", "LSR", 2); err == nil || !strings.Contains(err.Error(), "cpuManagerPolicy: none") {
			t.Errorf("got %v, want a refusal with the fix", err)
		}
		if err := n.update("web", 2); err != nil {
			t.Error(err)
		}
		n.pod("found", "LSR", 2)
		n.runc("found")
		n.synchronize()
		n.sleep(time.Minute)
		if writes, sent := n.kernel.took(), n.runtime.sent(); writes != nil || sent != nil {
			t.Errorf("wrote %v, sent %v", writes, sent)
		}
		if got := n.status().Machine.External.String(); got != "1-2" {
			t.Errorf("external pins %s", got)
		}
	})
}

func TestKoordletMeansPreview(t *testing.T) {
	inBubble(t, setup{host: host(other)}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.sleep(time.Minute)
		if got := n.kernel.took(); got != nil {
			t.Errorf("wrote %v", got)
		}
		if s := n.status(); s.Mode != status.ModePreview || !strings.Contains(s.Why, "koordlet") {
			t.Errorf("%s: %s", s.Mode, s.Why)
		}
	})
	t.Run("unless told otherwise", func(t *testing.T) {
		inBubble(t, setup{host: host(other), config: func(c *config.Config) { c.Neighbours = "ignore" }}, func(_ *testing.T, n *testNode) {
			n.run("db", "LSR", 2)
			n.expect(map[string]string{"db": "0-1"})
		})
	})
}

// TestNeighbourGoes checks that what was decided in preview is carried out when the preview ends.
func TestNeighbourGoes(t *testing.T) {
	dir := hostDir(t, other)
	inBubble(t, setup{host: os.DirFS(dir)}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.expect(map[string]string{"web": "all", "db": "all"})
		if err := os.RemoveAll(filepath.Join(dir, "proc/7")); err != nil {
			t.Fatal(err)
		}
		n.sleep(2 * neighboursInterval)
		n.expect(map[string]string{"web": "2-7", "db": "0-1"})
	})
}

// TestUnreadableNeighbour checks that an agent which can't be read any more still counts as
// present.
func TestUnreadableNeighbour(t *testing.T) {
	dir := hostDir(t, static)
	inBubble(t, setup{host: os.DirFS(dir)}, func(t *testing.T, n *testNode) {
		if err := os.WriteFile(filepath.Join(dir, stateFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.sleep(2 * neighboursInterval)
		if err := n.create("db", "LSR", 2); err == nil {
			t.Error("pinned beside the kubelet")
		}
	})
}

// TestKubeletsMemoryManager checks that Sluice does not write memory nodes beside the kubelet's
// memory manager.
func TestKubeletsMemoryManager(t *testing.T) {
	memory := fstest.MapFS{"var/lib/kubelet/memory_manager_state": file(`{"policyName":"Static","machineState":{},"entries":{},"checksum":1}`)}
	for name, c := range map[string]struct {
		host fs.FS
		mems string
	}{"there": {host(memory), ""}, "not there": {host(nil), "0"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, setup{host: c.host}, func(t *testing.T, n *testNode) {
				n.run("db", "LSR", 2)
				if got := n.container("db").Mems.String(); got != c.mems {
					t.Errorf("memory nodes %q, want %q", got, c.mems)
				}
			})
		})
	}
}

func TestVirtualMachines(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.pod("vm", "LS", 1)
		n.pods["vm"].RuntimeHandler = "kata-qemu"
		n.run("vm", "LS", 1)
		n.run("db", "LSR", 2)
		n.expect(map[string]string{"vm": "all"})
		if c := n.container("vm"); c.Controlled || c.Requested != 1000 {
			t.Errorf("%+v", c)
		}
		n.pods["vm"].Annotations["class.sluice.dev"] = "LSR"
		if err := n.create("vm/two", "", 1); err == nil || !strings.Contains(err.Error(), "virtual machine") {
			t.Errorf("got %v", err)
		}
	})
}
