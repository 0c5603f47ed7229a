package daemon

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/host"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
	"github.com/sluice-dev/sluice/topology/synth"
)

// openBelow returns the files below a folder that this process has open.
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

// machine creates the files of a node with 4 cores below a folder.
func machine(t *testing.T, host string) {
	t.Helper()
	spec, err := synth.Parse("4 cores")
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.WriteTo(host); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory\n",
		"proc/stat":                        "cpu  0 0 0 0 0 0 0 0 0 0\n",
		"proc/sys/vm/min_free_kbytes":      "67584\n",
		"proc/pressure/memory":             "",
	} {
		name = filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A stopped service has closed everything that it opened: the host's trees, the PSI triggers,
// the journal, the audit trail, the log and the lock.
func TestServiceClosesAll(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "daemon") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	host, state := filepath.Join(root, "host"), filepath.Join(root, "state")
	machine(t, host)
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
	if open := strings.Join(openBelow(t, root), " "); !strings.Contains(open, "/lock") || !strings.Contains(open, "/sys/fs/cgroup") || !strings.Contains(open, "/log") || !strings.Contains(open, "/proc/pressure") {
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

// The audit trail includes the decisions that the agent takes while it stops.
func TestAuditOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	root, state := t.TempDir(), t.TempDir()
	machine(t, root)
	cfg := config.Default()
	cfg.Mode = config.Preview
	s := service{Options: &Options{HostRoot: root}, host: host.Open(root)}
	loop, writing := s.acting.begin(), s.writing.begin()
	o := agent.Options{Config: cfg, Host: os.DirFS(root), Log: logrus.New()}
	if err := s.addLoop(loop, writing, statedir.Of(cfg, state, ""), &o); err != nil {
		t.Fatal(err)
	}
	const late = 100
	s.acting.running.Go(func() {
		<-loop.Done()
		for range late {
			o.Audit.Record(time.Now(), control.Preview, &control.Decision{Controller: "pools"})
			runtime.Gosched()
		}
	})
	s.stop()
	if n := len(audit.Last(os.DirFS(state), audit.Filter{}, 2*late)); n != late {
		t.Errorf("of %d decisions at the end, the audit trail has %d", late, n)
	}
}

// A plugin that the runtime has started ends with its connection, even if it watches a
// configuration file.
func TestRunEndsWithTheConnection(t *testing.T) {
	root, err := os.MkdirTemp("", "daemon") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	host, file := filepath.Join(root, "host"), filepath.Join(root, "sluice.yaml")
	machine(t, host)
	if err := os.WriteFile(file, []byte("mode: preview\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(api.PluginSocketEnvVar, "no descriptor")
	err = Run(t.Context(), Options{Config: file, HostRoot: host, StateDir: filepath.Join(root, "state"), StatusSocket: filepath.Join(root, "s")})
	if err == nil || !strings.Contains(err.Error(), "no descriptor") {
		t.Errorf("it ends with %v", err)
	}
}
