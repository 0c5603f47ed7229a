// Init is the guest's first process. It prepares a bare kernel as a node, runs the guest's tests
// with its own arguments, and powers off. In a guest with systemd it becomes systemd in between,
// which runs it again as a service for the tests, or in its place the unit that SLUICE_UNIT names.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// results is the serial port for the tests' output; the kernel's messages and this program's go to
// the console.
const results = "/dev/ttyS1"

func main() {
	log.SetFlags(0)
	log.SetPrefix("init: ")
	if err := run(); err != nil {
		log.Print(err)
	}
	log.Print(unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

func run() error {
	if os.Getpid() != 1 {
		return serve()
	}
	if err := leaveInitramfs(); err != nil {
		return err
	}
	if err := mountAll(); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +cpuset +memory +io +pids"), 0); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("vm")); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 65536, Max: 65536}); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bringing the loopback up: %w", err)
	}
	if os.Getenv("SLUICE_SYSTEMD") == "true" {
		const systemd = "/lib/systemd/systemd"
		unit := cmp.Or(os.Getenv("SLUICE_UNIT"), "guest.service")
		return fmt.Errorf("becoming systemd: %w", syscall.Exec(systemd, []string{systemd, "--unit=" + unit, "--log-target=console", "--show-status=no"}, nil))
	}
	return test(os.Args)
}

// serve runs the tests in systemd's service, with the environment that the kernel gave its first
// process and that systemd doesn't pass on.
func serve() error {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	args := strings.Fields(string(line))
	for _, arg := range args {
		if name, value, found := strings.Cut(arg, "="); found && strings.HasPrefix(name, "SLUICE_") {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	return test(args)
}

// leaveInitramfs makes the root a mount with a parent. pivot_root(2), which runc uses, refuses the
// kernel's first root, but accepts a bind mount on top of it.
func leaveInitramfs() error {
	if err := unix.Mount("/", "/root", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding the root: %w", err)
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	return os.Chdir("/")
}

func mountAll() error {
	for _, m := range []struct{ kind, dir, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"cgroup2", "/sys/fs/cgroup", "nsdelegate"},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", ""},
		{"tmpfs", "/dev/shm", ""},
		{"tmpfs", "/run", ""},
		{"tmpfs", "/tmp", ""},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.kind, m.dir, err)
		}
	}
	// As with systemd on a real node, mounts of containers are visible everywhere.
	return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "")
}

// loadModules loads the modules in SLUICE_MODULES in their order, and selects the I/O scheduler
// bfq for the disk. Without modules there is no disk.
func loadModules() error {
	names := os.Getenv("SLUICE_MODULES")
	if names == "" {
		return nil
	}
	for name := range strings.SplitSeq(names, ",") {
		file, err := os.Open("/lib/modules/" + name + ".ko")
		if err != nil {
			return err
		}
		err = errors.Join(unix.FinitModule(int(file.Fd()), "", 0), file.Close())
		if err != nil {
			return fmt.Errorf("loading module %s: %w", name, err)
		}
	}
	return os.WriteFile("/sys/block/vda/queue/scheduler", []byte("bfq"), 0)
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// test runs the tests with their part of the arguments, and reaps every orphan until they end.
func test(args []string) (err error) {
	port, err := os.OpenFile(results, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// The last close of a serial port waits until everything has been sent.
	defer func() { err = errors.Join(err, port.Close()) }()
	// A kernel parameter that the kernel itself ignores (nokaslr) is an argument of init, too.
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasPrefix(arg, "-") || arg == "--" })
	args = slices.Insert(args, 0, "/"+os.Getenv("SLUICE_TESTS"))
	// The emulated CPUs take turns on one of the host's. Go programs that spin on 16 of them in
	// search of work would take most of its time. With the native snapshotter each container has a
	// copy of its program, which the emulator translates anew.
	snapshotter := "overlayfs"
	if os.Getenv("SLUICE_MODULES") == "" {
		snapshotter = "native"
	}
	env := append(os.Environ(), "PATH=/bin", "HOME=/", "SLUICE_TOOLS=/bin/tools", "SLUICE_SNAPSHOTTER="+snapshotter, "GOMAXPROCS=2", "GOGC=400")
	pid, err := syscall.ForkExec(args[0], args, &syscall.ProcAttr{Env: env, Files: []uintptr{0, port.Fd(), port.Fd()}})
	if err != nil {
		return fmt.Errorf("starting %s: %w", args[0], err)
	}
	for {
		var status syscall.WaitStatus
		reaped, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", args[0], err)
		}
		if reaped != pid {
			continue
		}
		if status != 0 {
			// test2json on the host recognizes a failed run by this text, also one that failed
			// after its last test.
			_, err = fmt.Fprintf(port, "exit status %d\nFAIL\n", status.ExitStatus())
		}
		return err
	}
}
