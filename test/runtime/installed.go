package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/host"
)

// Installed is a node on which Sluice is installed, and on which its service runs as with systemd:
// by the unit's command lines, with this machine's /proc and /sys, and the runtime's NRI socket at
// its default path. It is a root folder of its own, or the machine itself.
type Installed struct {
	Root         string
	StatusSocket string

	rt      *Runtime
	service *host.Process
	notices net.PacketConn
	mu      sync.Mutex
	told    []string // states sent to systemd since the last start
}

// NewInstalled makes a root that only contains a shell for the package's scripts.
func (rt *Runtime) NewInstalled() (*Installed, error) {
	i := &Installed{rt: rt, Root: filepath.Join(rt.Dir, "node")}
	i.StatusSocket = i.path("/run/sluice/status.sock")
	for _, dir := range []string{"proc", "sys", "run/nri", "var/lib/dpkg/updates", "var/lib/dpkg/info"} {
		if err := os.MkdirAll(i.path(dir), 0o755); err != nil {
			return nil, err
		}
	}
	err := errors.Join(
		os.Symlink("/run", i.path("var/run")),
		os.WriteFile(i.path("var/lib/dpkg/status"), nil, 0o600),
		i.copyProgram("/bin/sh"), i.copyProgram("/bin/rm"),
	)
	if err != nil {
		return nil, err
	}
	return i, i.listen()
}

// Here returns the machine itself, for a process with its own mounts over everything that an
// installation and the service write to.
func (rt *Runtime) Here() (*Installed, error) {
	i := &Installed{rt: rt, Root: here, StatusSocket: status.DefaultSocket}
	const folder = "/run/nri"
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount(filepath.Dir(rt.NRISocket), folder, "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("binding the runtime's NRI socket to %s: %w", folder, err)
	}
	return i, i.listen()
}

const here = "/"

func (i *Installed) path(name string) string { return filepath.Join(i.Root, name) }

// copyProgram copies a program with its libraries.
func (i *Installed) copyProgram(program string) error {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", program, err)
	}
	for _, file := range append(strings.Fields(string(out)), program) {
		if !filepath.IsAbs(file) {
			continue
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(i.path(file)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(i.path(file), data, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter mounts what a node has, and then runs a command.
const enter = `set -e
mount --rbind /proc "$0/proc"
mount --rbind /sys "$0/sys"
mount --bind "$1" "$0/run/nri"
shift
exec "$@"`

// entering returns the command line that runs another one with the node's mounts.
func (i *Installed) entering(words ...string) []string {
	if i.Root == here {
		return words
	}
	return append([]string{"/usr/bin/unshare", "--mount", "/bin/sh", "-c", enter, i.Root, filepath.Dir(i.rt.NRISocket)}, words...)
}

// Dpkg installs or removes packages.
func (i *Installed) Dpkg(args ...string) error {
	log := "--log=" + filepath.Join(i.rt.Dir, "dpkg.log") // the default is outside of the root
	words := i.entering(append([]string{"dpkg", "--root=" + i.Root, log, "--force-depends"}, args...)...)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("dpkg %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Command runs an installed program and returns its output.
func (i *Installed) Command(env []string, words ...string) (string, error) {
	all := i.entering(append([]string{"chroot", i.Root}, words...)...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
	}
	return string(out), err
}

// Unit returns the value of a key in the installed unit, split into words. As in systemd, the
// administrator's unit takes precedence over the package's.
func (i *Installed) Unit(key string) ([]string, error) {
	text, err := os.ReadFile(i.path("etc/systemd/system/sluice.service"))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(i.path("usr/lib/systemd/system/sluice.service"))
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			return strings.Fields(value), nil
		}
	}
	return nil, fmt.Errorf("the unit has no %s", key)
}

// Start starts the service and waits until it reports that it is ready.
func (i *Installed) Start() error {
	command, err := i.Unit("ExecStart")
	if err != nil {
		return err
	}
	i.mu.Lock()
	i.told = nil
	i.mu.Unlock()
	words := i.entering(append([]string{"chroot", i.Root}, command...)...)
	env := append(os.Environ(), "NOTIFY_SOCKET=/run/notify", "WATCHDOG_USEC=20000000")
	if i.service, err = i.rt.tree.Start(filepath.Join(i.rt.Dir, "service.log"), env, words[0], words[1:]...); err != nil {
		return err
	}
	return i.service.Await("the service to be ready", func() error {
		if !i.Notified("READY=1") {
			return errors.New("not yet")
		}
		return nil
	})
}

// Stop ends the service as systemd does, which then runs ExecStopPost.
func (i *Installed) Stop() error {
	if err := i.service.End(syscall.SIGTERM); err != nil {
		return err
	}
	command, err := i.Unit("ExecStopPost")
	if err != nil {
		return err
	}
	_, err = i.Command([]string{"SERVICE_RESULT=success"}, command...)
	return err
}

// Running reports whether the service was started and has not ended.
func (i *Installed) Running() bool { return i.service != nil && !i.service.Exited() }

// PID returns the process ID of the last started service.
func (i *Installed) PID() int { return i.service.PID() }

// Log returns what the service has logged since the first start.
func (i *Installed) Log() string { return host.ReadLog(filepath.Join(i.rt.Dir, "service.log")) }

// Notified reports whether the service has sent that state to systemd since its last start.
func (i *Installed) Notified(state string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Contains(i.told, state)
}

// listen receives what the service sends to systemd.
func (i *Installed) listen() (err error) {
	if i.notices, err = net.ListenPacket("unixgram", i.path("run/notify")); err == nil {
		go i.hear()
	}
	return err
}

func (i *Installed) hear() {
	for buffer := make([]byte, 4096); ; {
		n, _, err := i.notices.ReadFrom(buffer)
		if err != nil {
			return
		}
		i.mu.Lock()
		i.told = append(i.told, strings.Split(string(buffer[:n]), "\n")...)
		i.mu.Unlock()
	}
}

// Close closes the socket; the rest is removed with the runtime.
func (i *Installed) Close() error { return i.notices.Close() }

// Ctr runs containerd's command line tool.
func (rt *Runtime) Ctr(args ...string) (string, error) {
	out, err := exec.Command(rt.tools.of(rt.options.Containerd, "ctr"), append([]string{"--address", rt.socket(), "--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}
