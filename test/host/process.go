// Package host provides what tests use of their machine and then remove: cgroups in every
// hierarchy, processes in them, and mounts.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Timeout is the maximum time for one call or condition, also on an emulated machine.
const Timeout = 5 * time.Minute

// Process is a child with a log file.
type Process struct {
	cmd  *exec.Cmd
	log  string
	from int           // length of the log when this process started
	done chan struct{} // closed when the process has been waited for
}

// Start runs a program in the tree and appends its output to the log file. The program's folder
// comes first in its PATH, because containerd finds its shim there.
func (t *Tree) Start(log string, env []string, path string, args ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	info, err := out.Stat()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(env, "PATH="+path[:strings.LastIndex(path, "/")+1]+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, log: log, from: int(info.Size()), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	if err := t.Adopt(cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ExitCode returns the exit code, or -1 while the process runs and if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends the process a signal.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Kill ends the process as a crash would.
func (p *Process) Kill() error { return p.End(syscall.SIGKILL) }

// End sends the signal and waits for the end of the process.
func (p *Process) End(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(Timeout):
		return fmt.Errorf("%s (%d) did not end on %s", p.cmd.Path, p.cmd.Process.Pid, signal)
	}
}

// Exited reports whether the process has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Await polls until the condition holds. It gives up if the process ends.
func (p *Process) Await(what string, condition func() error) error {
	err := Poll(what, func() error {
		exited := p.Exited()
		err := condition()
		if err != nil && exited {
			return errExited
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w; its log ends:\n%s", p.cmd.Path, err, tail(p.Output(), 30))
	}
	return err
}

// AwaitLine waits until the process has logged the text.
func (p *Process) AwaitLine(text string) error {
	return p.Await(fmt.Sprintf("log line %q", text), func() error {
		if !strings.Contains(p.Output(), text) {
			return errors.New("not there yet")
		}
		return nil
	})
}

// Output returns what this process wrote, without its predecessors' part of the log.
func (p *Process) Output() string {
	log := ReadLog(p.log)
	return log[min(p.from, len(log)):]
}

var errExited = errors.New("the process has ended")

// Poll waits until the condition holds, for at most Timeout.
func Poll(what string, condition func() error) error {
	deadline := time.Now().Add(Timeout)
	for {
		err := condition()
		if err == nil {
			return nil
		}
		if errors.Is(err, errExited) || time.Now().After(deadline) {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// CallContext returns a context that ends after Timeout.
func CallContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Timeout)
}

// ReadLog returns the text of a log file, or why it can't be read.
func ReadLog(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
