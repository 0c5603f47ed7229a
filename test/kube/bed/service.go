package bed

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/test/host"
)

// Service is a program of the bed, which a test may end and start again.
type Service struct {
	name    string
	tree    *host.Tree
	log     string
	command []string     // the program and its arguments
	env     []string     // in addition to the test's own
	ready   func() error // nil once the program serves
	process *host.Process
}

// Start starts the program, after it was ended, and waits until it serves.
func (s *Service) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Stop ends the program as its service manager does (SIGTERM), and waits for its end.
func (s *Service) Stop(t testing.TB) {
	t.Helper()
	if err := s.process.End(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the program as a crash would (SIGKILL), and waits for its end.
func (s *Service) Kill(t testing.TB) {
	t.Helper()
	if err := s.process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Restart stops the program and starts it again.
func (s *Service) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.Start(t)
}

// Freeze stops the program from running (SIGSTOP), with its connections open; Thaw lets it
// go on.
func (s *Service) Freeze(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Thaw lets a frozen program go on.
func (s *Service) Thaw(t testing.TB) { s.signal(t, syscall.SIGCONT) }

// PID is the number of the process.
func (s *Service) PID() int { return s.process.PID() }

// Log is what the program has logged since its first start.
func (s *Service) Log() string { return host.ReadLog(s.log) }

func (s *Service) signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := s.process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func (s *Service) start() error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.process.Await(s.name+" to serve", s.ready)
}

func (s *Service) launch() error {
	var err error
	s.process, err = s.tree.Start(s.log, append(os.Environ(), s.env...), s.command[0], s.command[1:]...)
	return err
}

// service describes a program of the bed without starting it.
func (c *Cluster) service(name string, ready func() error, command ...string) *Service {
	return &Service{name: name, tree: c.tree, log: filepath.Join(c.Logs, name+".log"), command: command, ready: ready}
}
