// Package vm runs the tests of test/vm/guest on a kernel of their own: a QEMU guest with cgroup v2
// alone, several sockets and NUMA nodes, SMT, containerd, runc and Sluice. In smaller guests it
// runs some of test/e2e, also on CRI-O if there is one. Under emulation, the tests check placement
// and interfaces, but no speed.
package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/test/vm/boot"
)

// guest is what it takes to boot one.
type guest struct {
	share
	repository string
	tools      string // folder of what make tools builds
	topology   boot.Topology
	churn      int // number of creations in the guest's test of that name
	hold       int // MiB held by containers whose pages move or are reclaimed
}

func (g guest) kit() boot.Kit      { return boot.Kit{Repository: g.repository} }
func (g guest) dir() string        { return g.kit().Dir() }
func (g guest) disk() string       { return filepath.Join(g.dir(), g.guest+"-disk.img") }
func (g guest) second() string     { return filepath.Join(g.dir(), g.guest+"-second.img") }
func (g guest) initramfs() string  { return filepath.Join(g.dir(), g.guest+".cpio") }
func (g guest) consoleLog() string { return filepath.Join(g.dir(), g.guest+"-console.log") }

// modules lists the kernel's modules. With overlay, all containers and all copies that runc makes of
// itself have the program's pages in common, and the emulator translates each page once.
func modules() []string { return append(boot.Disk(), "overlay") }

// diskSize is larger than what a container of the tests may cache.
func (g guest) diskSize() int64 { return int64(max(512, g.hold)) << 20 }

// unavailable says why no guest can boot here, or returns nil if one can. It downloads what is
// missing of the kernel, its modules and systemd.
func (g guest) unavailable() error {
	for _, path := range g.binaries() {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s is missing: run make build tools; SLUICE_TOOLS may name another folder than bin/tools", path)
		}
	}
	return g.kit().Fetch()
}

// binaries returns the host's programs for the guest by their paths there, which are those of the
// repository's bin.
func (g guest) binaries() map[string]string {
	files := map[string]string{"bin/sluice": filepath.Join(g.repository, "bin", "sluice")}
	names := []string{"runc", "probe"}
	if !g.crio {
		names = append(names, "2/containerd", "2/containerd-shim-runc-v2", "2/ctr")
	}
	for _, name := range names {
		files["bin/tools/"+name] = filepath.Join(g.tools, name)
	}
	return files
}

// systemdFiles returns systemd with what it needs, and the files with which the documentation
// installs Sluice and restores a node, by their paths in the guest.
func (g guest) systemdFiles() (map[string]string, error) {
	files, err := g.kit().Systemd()
	if err != nil {
		return nil, err
	}
	files["etc/systemd/system/guest.service"] = "guest.service"
	for _, name := range []string{"configs/sluice.yaml", "configs/kubernetes/restore.yaml", "configs/systemd/sluice.service", "docs/install.md"} {
		files[name] = filepath.Join(g.repository, name)
	}
	return files, nil
}

// build builds the init and the guest's tests.
func (g guest) build() error {
	if _, err := g.kit().Build("init", "./test/vm/init", "build"); err != nil {
		return err
	}
	for name, from := range map[string]string{
		"guest.test": "./test/vm/guest", "e2e.test": "./test/e2e", "mix.test": "./test/bench/mix",
		"cgroupfs.test": "./pkg/kernel/cgroupfs", "coresched.test": "./pkg/kernel/coresched",
	} {
		if _, err := g.kit().Build(name, from, "test", "-c"); err != nil {
			return err
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
		files[name] = g.built(name)
	}
	maps.Copy(files, g.kit().Modules(modules()))
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
		maps.Copy(more, files) // systemd brings libraries and a shell, which stay
		files = more
	}
	if err := empty(g.disk(), g.diskSize()); err != nil {
		return err
	}
	if g.busy {
		if err := empty(g.second(), 64<<20); err != nil {
			return err
		}
	}
	return boot.WriteRoot(g.initramfs(), files, nil)
}

// empty makes a disk of that many bytes.
func empty(path string, size int64) error {
	disk, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(disk.Truncate(size), disk.Close())
}

// busyDisk is how many operations a second a guest's second disk makes.
const busyDisk = 400

// command returns the QEMU command that boots the guest with the arguments for its tests. Its
// standard output is that of the tests; the console's output goes to a file.
func (g guest) command(ctx context.Context, tests ...string) *exec.Cmd {
	folder := ""
	if g.crio {
		folder = "/" + crioFolder
	}
	// Words after "--" are arguments of init. An unknown word with "=" is an environment variable of
	// init.
	words := g.kit().QEMU(g.topology, g.initramfs(), g.disk(), g.consoleLog(),
		fmt.Sprintf("SLUICE_VM=%s SLUICE_CHURN=%d SLUICE_HOLD=%d SLUICE_SYSTEMD=%t SLUICE_TESTS=%s SLUICE_CRIO=%s SLUICE_CRUN=%t SLUICE_MODULES=%s -- %s",
			g.topology, g.churn, g.hold, g.systemd, g.binary(), folder, g.crun, strings.Join(modules(), ","), strings.Join(tests, " ")))
	if g.busy {
		words = append(words, "-drive", fmt.Sprintf("file=%s,format=raw,if=virtio,throttling.iops-total=%d", g.second(), busyDisk))
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], "-serial", "stdio")...)
	// The guest ends with the test process, even if that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
