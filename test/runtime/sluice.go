package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/host"
)

// SluiceOptions say how to run the plugin.
type SluiceOptions struct {
	Binary string   // "" for bin/sluice of the repository, beside the tools
	Config string   // text of sluice.yaml
	Name   string   // "" is "sluice"
	Index  string   // "" is "10"
	Args   []string // more flags of `sluice run`
	// Quiet shows it a machine that does the pods' work and nothing else. The rest is as
	// real as without it.
	Quiet bool
}

// Sluice is the plugin, connected to the runtime.
type Sluice struct {
	StatusSocket string
	StateDir     string
	RuntimeDir   string // in memory, as /run is on a node

	rt      *Runtime
	options SluiceOptions
	dir     string
	process *host.Process
}

// synchronized is in the line that the plugin logs once it has answered the
// runtime's Synchronize.
const synchronized = "synchronized"

// StartSluice runs the plugin and returns when it is synchronized. A plugin that isn't in
// time is killed, as it would take part in whatever follows.
func (rt *Runtime) StartSluice(options SluiceOptions) (*Sluice, error) {
	if options.Binary == "" {
		options.Binary = rt.tools.sluice()
	}
	if options.Name == "" {
		options.Name = "sluice"
	}
	if options.Index == "" {
		options.Index = "10"
	}
	dir, err := os.MkdirTemp(rt.Dir, options.Name+"-")
	if err != nil {
		return nil, err
	}
	s := &Sluice{
		StatusSocket: filepath.Join(dir, "status.sock"),
		StateDir:     filepath.Join(dir, "state"),
		RuntimeDir:   filepath.Join(dir, "run"),
		rt:           rt, options: options, dir: dir,
	}
	if err := errors.Join(os.Mkdir(s.StateDir, 0o700), os.Mkdir(s.RuntimeDir, 0o700)); err != nil {
		return nil, err
	}
	if err := unix.Mount("sluice", s.RuntimeDir, "tmpfs", 0, "mode=700"); err != nil { // rt.Close unmounts it
		return nil, fmt.Errorf("a tmpfs on %s: %w", s.RuntimeDir, err)
	}
	if err := s.Configure(options.Config); err != nil {
		return nil, err
	}
	if err := s.Restart(); err != nil {
		if s.process != nil {
			err = errors.Join(err, s.Kill())
		}
		return nil, err
	}
	return s, nil
}

// Configure replaces the config file.
func (s *Sluice) Configure(text string) error {
	return os.WriteFile(s.ConfigFile(), []byte(text), 0o600)
}

// ConfigFile is the path of the plugin's config.
func (s *Sluice) ConfigFile() string { return filepath.Join(s.dir, "sluice.yaml") }

// Launch runs the plugin without waiting for it to connect.
func (s *Sluice) Launch() error {
	args := append([]string{
		"run",
		"--config", s.ConfigFile(),
		"--socket", s.rt.NRISocket,
		"--index", s.options.Index,
		"--name", s.options.Name,
		"--state-dir", s.StateDir,
		"--runtime-dir", s.RuntimeDir,
		"--status-socket", s.StatusSocket,
		"--log-level", "debug",
	}, s.options.Args...)
	program := s.options.Binary
	if s.options.Quiet {
		stat, err := s.rt.quietStat()
		if err != nil {
			return err
		}
		program, args = s.rt.tools.of("", "probe"), append([]string{"under", stat, program}, args...)
	}
	var err error
	s.process, err = s.rt.tree.Start(s.logPath(), os.Environ(), program, args...)
	return err
}

// Restart kills the plugin if it runs, starts it with the same state, and returns when it is
// synchronized.
func (s *Sluice) Restart() error {
	if s.process != nil {
		if err := s.Kill(); err != nil {
			return err
		}
	}
	if err := s.Launch(); err != nil {
		return err
	}
	return s.AwaitLog(synchronized)
}

// AwaitLog waits until the plugin has logged the text since it was last started.
func (s *Sluice) AwaitLog(text string) error { return s.process.AwaitLine(text) }

// Synchronizations returns how often the plugin has answered Synchronize since its first start,
// which is once per connection.
func (s *Sluice) Synchronizations() int { return strings.Count(s.Log(), synchronized) }

// Status returns the plugin's status.
func (s *Sluice) Status() (*status.Status, error) {
	return statusapi.NewClient(s.StatusSocket).Status()
}

// Explain returns the output of `sluice explain` for a pod or container.
func (s *Sluice) Explain(name string) (string, error) {
	return s.Command("explain", name, "--status-socket", s.StatusSocket)
}

// Restore restores what the plugin, which must have ended, has changed.
func (s *Sluice) Restore() (string, error) {
	return s.Command("restore", "--config", s.ConfigFile(), "--state-dir", s.StateDir, "--runtime-dir", s.RuntimeDir)
}

// Decisions returns the control loop's decisions in the order of time.
func (s *Sluice) Decisions() ([]audit.Entry, error) {
	out, err := s.Command("log", "--state-dir", s.StateDir, "-o", "json")
	if err != nil {
		return nil, err
	}
	var entries []audit.Entry
	for lines := json.NewDecoder(strings.NewReader(out)); ; {
		var e audit.Entry
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return entries, nil
		} else if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
}

// DecisionText returns the output of `sluice log --why`.
func (s *Sluice) DecisionText() (string, error) {
	return s.Command("log", "--state-dir", s.StateDir, "--why")
}

// Failsafes returns the IDs of the processes that watch the plugin, or did.
func (s *Sluice) Failsafes() ([]int, error) {
	pids, err := s.rt.tree.PIDs(s.rt.tree.Processes())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(string(text), "\x00")
		return err != nil || !slices.Contains(args, "failsafe") || !slices.Contains(args, s.StateDir)
	}), nil
}

// Signal sends the plugin a signal.
func (s *Sluice) Signal(signal syscall.Signal) error { return s.process.Signal(signal) }

// Command runs the binary's command line and returns its output.
func (s *Sluice) Command(args ...string) (string, error) {
	out, err := exec.Command(s.options.Binary, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("sluice %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// Kill ends the plugin as a crash would.
func (s *Sluice) Kill() error { return s.process.Kill() }

// Stop ends the plugin as systemd would.
func (s *Sluice) Stop() error { return s.process.End(syscall.SIGTERM) }

// Wait waits until the plugin has ended by itself, and returns its exit status.
func (s *Sluice) Wait() (int, error) {
	err := host.Poll(s.options.Name+" to end", func() error {
		if !s.process.Exited() {
			return fmt.Errorf("process %d runs", s.PID())
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return s.process.ExitCode(), nil
}

// PID returns the process ID of the last started plugin.
func (s *Sluice) PID() int { return s.process.PID() }

// Log returns what the plugin has logged since its first start.
func (s *Sluice) Log() string { return host.ReadLog(s.logPath()) }

func (s *Sluice) logPath() string { return filepath.Join(s.dir, "log") }
