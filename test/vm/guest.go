// Package vm runs the tests of test/vm/guest on a kernel of their own: a QEMU guest with cgroup v2
// alone, several sockets and NUMA nodes, SMT, containerd, runc and Sluice. In smaller guests it
// runs some of test/e2e, also on CRI-O if there is one. Under emulation, the tests check placement
// and interfaces, but no speed.
package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// guest is what it takes to boot one.
type guest struct {
	share
	repository string
	tools      string // folder of what make tools builds
	topology   topology
	churn      int // number of creations in the guest's test of that name
	hold       int // MiB held by containers whose pages move or are reclaimed
}

// dir is the folder of the kernel, systemd, what is built for the guests, and each guest's first
// root, disk and console log.
func (g guest) dir() string               { return filepath.Join(g.repository, "bin", "vm") }
func (g guest) kernel() string            { return filepath.Join(g.dir(), "vmlinuz") }
func (g guest) module(name string) string { return filepath.Join(g.dir(), name+".ko") }
func (g guest) disk() string              { return filepath.Join(g.dir(), g.guest+"-disk.img") }
func (g guest) systemdDir() string        { return filepath.Join(g.dir(), "systemd") }
func (g guest) initramfs() string         { return filepath.Join(g.dir(), g.guest+".cpio") }
func (g guest) consoleLog() string        { return filepath.Join(g.dir(), g.guest+"-console.log") }

const qemu = "qemu-system-x86_64"

// diskSize is larger than what a container of the tests may cache.
func (g guest) diskSize() int64 { return int64(max(512, g.hold)) << 20 }

// modules lists the kernel's modules that the guest loads, in the order of their dependencies: a
// disk on PCI, and the I/O scheduler that has weights.
func modules() []string {
	return []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk", "bfq"}
}

// unavailable says why no guest can boot here, or returns nil if one can. It downloads what is
// missing of the kernel, its modules and systemd.
func (g guest) unavailable() error {
	if _, err := exec.LookPath(qemu); err != nil {
		return fmt.Errorf("%s is missing: apt-get install qemu-system-x86", qemu)
	}
	for path := range g.binaries() {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s is missing: run make build tools; SLUICE_TOOLS may name another folder than bin/tools", path)
		}
	}
	files := []string{g.kernel()}
	for _, module := range modules() {
		files = append(files, g.module(module))
	}
	if slices.ContainsFunc(files, func(file string) bool {
		_, err := os.Stat(file)
		return errors.Is(err, fs.ErrNotExist)
	}) {
		if out, err := exec.Command("./fetch-kernel.sh", append([]string{g.dir()}, modules()...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("downloading Debian's linux-image-cloud-amd64 with apt-get and dpkg-deb: %w: %s", err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(g.systemdDir(), "dash")); errors.Is(err, fs.ErrNotExist) {
		if out, err := exec.Command("./fetch-systemd.sh", g.dir()).CombinedOutput(); err != nil {
			return fmt.Errorf("downloading Debian's systemd with apt-get and dpkg-deb: %w: %s", err, out)
		}
	}
	return nil
}

// binaries returns the host's programs for the guest by their paths there, which are those of the
// repository's bin.
func (g guest) binaries() map[string]string {
	files := map[string]string{filepath.Join(g.repository, "bin", "sluice"): "bin/sluice"}
	names := []string{"runc", "probe"}
	if !g.crio {
		names = append(names, "2/containerd", "2/containerd-shim-runc-v2", "2/ctr")
	}
	for _, name := range names {
		files[filepath.Join(g.tools, name)] = "bin/tools/" + name
	}
	return files
}

// systemdFiles returns systemd with what it needs, and the files with which the documentation
// installs Sluice and restores a node, by their paths in the guest.
func (g guest) systemdFiles() (map[string]string, error) {
	entries, err := os.ReadDir(g.systemdDir())
	files := map[string]string{
		"guest.service": "etc/systemd/system/guest.service",
	}
	for _, name := range []string{"configs/sluice.yaml", "configs/kubernetes/restore.yaml", "configs/systemd/sluice.service", "docs/install.md"} {
		files[filepath.Join(g.repository, name)] = name
	}
	for _, entry := range entries {
		name := entry.Name()
		to := "lib/x86_64-linux-gnu/" + name
		switch {
		case name == "systemd":
			to = "lib/systemd/systemd"
		case name == "dash":
			to = "bin/sh"
		case strings.HasPrefix(name, "ld-linux"):
			to = "lib64/" + name
		case !strings.Contains(name, ".so"):
			to = "bin/" + name
		}
		files[filepath.Join(g.systemdDir(), name)] = to
	}
	return files, err
}

// build builds the init and the guest's tests.
func (g guest) build() error {
	for _, args := range [][]string{
		{"build", "-o", g.built("init"), "./init"},
		{"test", "-c", "-o", g.built("guest.test"), "./guest"},
		{"test", "-c", "-o", g.built("e2e.test"), "../e2e"},
		{"test", "-c", "-o", g.built("cgroupfs.test"), "../../pkg/kernel/cgroupfs"},
		{"test", "-c", "-o", g.built("coresched.test"), "../../pkg/kernel/coresched"},
		{"test", "-c", "-o", g.built("mix.test"), "../bench/mix"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// built returns the path of what build builds.
func (g guest) built(name string) string { return filepath.Join(g.dir(), name) }

// prepare makes the guest's first root and its empty disk.
func (g guest) prepare() error {
	files := g.binaries()
	for _, name := range []string{"init", g.binary(), "cgroupfs.test", "coresched.test", "mix.test"} {
		files[g.built(name)] = name
	}
	for _, name := range modules() {
		files[g.module(name)] = "lib/modules/" + name + ".ko"
	}
	if g.systemd {
		more, err := g.systemdFiles()
		if err != nil {
			return err
		}
		maps.Copy(files, more)
	}
	if g.crio {
		more, err := g.crioFiles()
		if err != nil {
			return err
		}
		there := slices.Collect(maps.Values(files)) // systemd brings libraries and a shell
		maps.DeleteFunc(more, func(_, to string) bool { return slices.Contains(there, to) })
		maps.Copy(files, more)
	}
	disk, err := os.Create(g.disk())
	if err != nil {
		return err
	}
	if err := errors.Join(disk.Truncate(g.diskSize()), disk.Close()); err != nil {
		return err
	}
	out, err := os.Create(g.initramfs())
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	return errors.Join(pack(w, files), w.Flush(), out.Close())
}

// pack writes the guest's root: the files, and what programs expect in /etc.
func pack(w io.Writer, files map[string]string) error {
	a := &archive{w: w}
	a.mkdir("root")
	a.mkdir("var/tmp")
	for name, text := range map[string]string{
		"etc/hosts":       "127.0.0.1 localhost\n",
		"etc/resolv.conf": "",
		"etc/hostname":    "vm\n",
		"etc/passwd":      "root:x:0:0:root:/:/bin/sh\n",
		"etc/group":       "root:x:0:\n",
		"etc/machine-id":  "00000000000000000000000000000001\n", // without it, systemd takes this for the first boot
	} {
		a.mkdir(path.Dir(name))
		a.add(name, regular|0o644, []byte(text))
	}
	for from, to := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		a.mkdir(path.Dir(to))
		a.add(to, regular|0o755, content)
	}
	return a.close()
}

// command returns the QEMU command that boots the guest with the arguments for its tests. Its
// standard output is that of the tests; the console's output goes to a file.
func (g guest) command(ctx context.Context, tests ...string) *exec.Cmd {
	folder := ""
	if g.crio {
		folder = "/" + crioFolder
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		// With thread=multi it is no faster, and one guest in four crashes.
		"-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "max,vendor=GenuineIntel,la57=off,cx16=off",
		"-kernel", g.kernel(), "-initrd", g.initramfs(),
		// Words after "--" are arguments of init. An unknown word with "=" is an environment
		// variable of init.
		"-append", fmt.Sprintf("console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr SLUICE_VM=%s SLUICE_CHURN=%d SLUICE_HOLD=%d SLUICE_SYSTEMD=%t SLUICE_TESTS=%s SLUICE_CRIO=%s SLUICE_CRUN=%t SLUICE_MODULES=%s -- %s",
			g.topology, g.churn, g.hold, g.systemd, g.binary(), folder, g.crun, strings.Join(modules(), ","), strings.Join(tests, " ")),
		"-drive", "file=" + g.disk() + ",format=raw,if=virtio",
		"-serial", "file:" + g.consoleLog(), "-serial", "stdio",
	}
	cmd := exec.CommandContext(ctx, qemu, append(args, g.topology.flags()...)...)
	// The guest ends with the test process, even if that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
