package runtime

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

// process is a child with a log file.
type process struct {
	cmd  *exec.Cmd
	log  string
	from int           // length of the log when this process started
	done chan struct{} // closed when the process has been waited for
}

// start runs a program in the tree, its output added to the log file. The
// program's own folder comes first in its PATH: containerd finds its shim there.
func (t *tree) start(log string, env []string, path string, args ...string) (*process, error) {
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
	p := &process{cmd: cmd, log: log, from: int(info.Size()), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	if err := t.adopt(cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

func (p *process) kill() error { return p.end(syscall.SIGKILL) }

func (p *process) end(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(callTimeout):
		return fmt.Errorf("%s (%d) did not end on %s", p.cmd.Path, p.cmd.Process.Pid, signal)
	}
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// await polls until the condition holds; it gives up when the process has ended
// without it.
func (p *process) await(what string, condition func() error) error {
	err := poll(what, func() error {
		exited := p.exited()
		err := condition()
		if err != nil && exited {
			return errExited
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w; its log ends:\n%s", p.cmd.Path, err, tail(p.output(), 30))
	}
	return err
}

// awaitLine waits until the process has logged the text.
func (p *process) awaitLine(text string) error {
	return p.await(fmt.Sprintf("log line %q", text), func() error {
		if !strings.Contains(p.output(), text) {
			return errors.New("not there yet")
		}
		return nil
	})
}

// output is what this process wrote, without its predecessors' part of the log.
func (p *process) output() string {
	log := readLog(p.log)
	return log[min(p.from, len(log)):]
}

var errExited = errors.New("the process has ended")

// poll waits until the condition holds.
func poll(what string, condition func() error) error {
	deadline := time.Now().Add(callTimeout)
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

func callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

func readLog(path string) string {
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
