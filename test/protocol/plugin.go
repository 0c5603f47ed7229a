package protocol

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/topology/synth"
)

// Build compiles a main package of the product's module into dir. Tests of another module that
// requires the product's can use it, too.
func Build(dir, pkg string) (binary string, err error) {
	const module = "github.com/sluice-dev/sluice"
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("finding the folder of %s: %w", module, err)
	}
	binary = filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", binary, module+"/"+pkg)
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return binary, nil
}

// Host writes a machine's tree into the runtime's folder and returns its root.
func (r *Runtime) Host(t testing.TB, machine string) string {
	t.Helper()
	spec, err := synth.Parse(machine)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(r.Dir, "host")
	if err := spec.WriteTo(root); err != nil {
		t.Fatal(err)
	}
	m, err := synth.Machine(machine)
	if err != nil {
		t.Fatal(err)
	}
	r.Memory = m.Memory(m.MemoryNodes())
	return root
}

// Plugin is the process of a plugin.
type Plugin struct {
	Log    *Log
	cmd    *exec.Cmd
	gone   chan struct{}
	status string
}

// Sluice starts sluice on a host's tree with a configuration file ("" for none) and further flags, and
// waits until it is synchronized.
func (r *Runtime) Sluice(t testing.TB, binary, host, config string, more ...string) *Plugin {
	t.Helper()
	p, err := r.Launch(t, binary, append(r.SluiceFlags(host, config), more...)...)
	if err != nil {
		t.Fatalf("%v; its log:\n%s", err, p.Log)
	}
	p.status = filepath.Join(r.Dir, "status.sock")
	for p.Alive() { // the status socket may appear later than the connection
		if _, err := p.Status(); err == nil {
			return p
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("sluice ended; its log:\n%s", p.Log)
	return nil
}

// SluiceFlags returns the arguments of a sluice for this runtime.
func (r *Runtime) SluiceFlags(host, config string) []string {
	flags := []string{"run", "--socket", r.Socket, "--host-root", host,
		"--state-dir", filepath.Join(r.Dir, "state"), "--status-socket", filepath.Join(r.Dir, "status.sock")}
	if config != "" {
		flags = append(flags, "--config", config)
	}
	return flags
}

// Launch starts a plugin and waits until it is synchronized. The plugin ends with the test.
func (r *Runtime) Launch(t testing.TB, binary string, args ...string) (*Plugin, error) {
	p := Spawn(t, binary, args...)
	return p, r.awaitSync(p.gone)
}

// Spawn starts a plugin and does not wait for it. The plugin ends with the test.
func Spawn(t testing.TB, binary string, args ...string) *Plugin {
	p := &Plugin{Log: &Log{}, cmd: exec.Command(binary, args...), gone: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.gone)
		p.cmd.Wait()
	}()
	t.Cleanup(p.Kill)
	return p
}

// Kill ends the plugin with SIGKILL and waits for its end.
func (p *Plugin) Kill() { p.end(syscall.SIGKILL) }

// Stop ends the plugin with SIGTERM and waits for its end.
func (p *Plugin) Stop() { p.end(syscall.SIGTERM) }

func (p *Plugin) end(with syscall.Signal) {
	p.cmd.Process.Signal(with)
	<-p.gone
}

// Signal sends the plugin's process a signal.
func (p *Plugin) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// PID returns the ID of the plugin's process.
func (p *Plugin) PID() int { return p.cmd.Process.Pid }

// Alive reports whether the plugin's process still runs.
func (p *Plugin) Alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// Wait waits for the plugin to end by itself.
func (p *Plugin) Wait() { <-p.gone }

// ExitCode returns the exit code after the plugin has ended.
func (p *Plugin) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Status returns sluice's status.
func (p *Plugin) Status() (*status.Status, error) { return statusapi.NewClient(p.status).Status() }

// Log holds what a plugin has written to its standard output and error.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
