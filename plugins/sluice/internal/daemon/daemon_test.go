package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/topology/synth"
)

// openBelow are the files that this process has open below a folder.
func openBelow(t *testing.T, root string) (names []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(links) == 0 {
		t.Fatal(links, err)
	}
	for _, link := range links {
		if name, _ := os.Readlink(link); strings.HasPrefix(name, root) {
			names = append(names, name)
		}
	}
	return names
}

// What the service opens is closed when it has stopped: the host's trees, the journal, the
// audit trail, the log and the lock.
func TestServiceClosesAll(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "daemon") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	spec, err := synth.Parse("4 cores")
	if err != nil {
		t.Fatal(err)
	}
	host, state := filepath.Join(root, "host"), filepath.Join(root, "state")
	if err := spec.WriteTo(host); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory\n",
		"proc/stat":                        "cpu  0 0 0 0 0 0 0 0 0 0\n",
		"proc/sys/vm/min_free_kbytes":      "67584\n",
	} {
		name = filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Default()
	cfg.Mode, cfg.Log.File = config.Preview, filepath.Join(root, "log")
	s := service{Options: &Options{HostRoot: host, StateDir: state, StatusSocket: filepath.Join(root, "s")}}
	a, _, err := s.start(cfg, configured("", nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Status(); err != nil {
		t.Error(err)
	}
	if open := strings.Join(openBelow(t, root), " "); !strings.Contains(open, "/lock") || !strings.Contains(open, "/sys/fs/cgroup") || !strings.Contains(open, "/log") {
		t.Errorf("while it runs these are open: %s", open)
	}
	s.stop()
	if open := openBelow(t, root); len(open) > 0 {
		text, _ := os.ReadFile(cfg.Log.File)
		t.Errorf("still open: %q; the log says\n%s", open, text)
	}
	if _, err := statusapi.NewClient(filepath.Join(root, "s")).Status(); err == nil {
		t.Error("its socket still answers")
	}
}
