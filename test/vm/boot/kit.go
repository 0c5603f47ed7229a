// Package boot provides what every QEMU guest of the tests boots from: Debian's kernel and systemd,
// an archive with the guest's first root, and QEMU's flags. The program test/vm/init is the first
// process in the guest.
package boot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const qemu = "qemu-system-x86_64"

// Kit is the folder with Debian's kernel, its modules and systemd, and with what is built for the
// guests.
type Kit struct {
	Repository string // its root
	Kernel     string // file of another kernel, for which there are no modules; "" for Debian's
	Parallel   bool   // the emulated CPUs run at the same time, on as many of the host's
}

// Dir is the folder.
func (k Kit) Dir() string { return filepath.Join(k.Repository, "bin", "vm") }

func (k Kit) kernel() string            { return cmp.Or(k.Kernel, filepath.Join(k.Dir(), "vmlinuz")) }
func (k Kit) module(name string) string { return filepath.Join(k.Dir(), name+".ko") }
func (k Kit) systemd() string           { return filepath.Join(k.Dir(), "systemd") }

// Disk lists the kernel's modules for a disk on PCI and for the I/O scheduler that has weights, in
// the order of their dependencies.
func Disk() []string {
	return []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk", "bfq"}
}

// Network lists the modules for a network device, for networks of pods and for their root file
// systems, in the order of their dependencies. They need those of Disk.
func Network() []string {
	return []string{"failover", "net_failover", "virtio_net", "llc", "stp", "bridge", "veth", "overlay"}
}

// Fetch downloads what is missing of the kernel, all modules and systemd. Its error says why no guest
// can boot here.
func (k Kit) Fetch() error {
	if _, err := exec.LookPath(qemu); err != nil {
		return fmt.Errorf("%s is missing: apt-get install qemu-system-x86", qemu)
	}
	// A kernel takes no modules of another version, so all of them come with it.
	modules := append(Disk(), Network()...)
	files := []string{k.kernel()}
	for _, name := range modules {
		files = append(files, k.module(name))
	}
	if slices.ContainsFunc(files, missing) {
		if err := k.run("fetch-kernel.sh", modules...); err != nil {
			return fmt.Errorf("downloading Debian's linux-image-cloud-amd64 with apt-get and dpkg-deb: %w", err)
		}
	}
	if missing(filepath.Join(k.systemd(), "dash")) {
		if err := k.run("fetch-systemd.sh"); err != nil {
			return fmt.Errorf("downloading Debian's systemd with apt-get and dpkg-deb: %w", err)
		}
	}
	return nil
}

func missing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// run runs a script of this package with the folder and further arguments.
func (k Kit) run(script string, args ...string) error {
	cmd := exec.Command(filepath.Join(k.Repository, "test", "vm", "boot", script), append([]string{k.Dir()}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Modules returns the modules' files by their paths in the guest.
func (k Kit) Modules(names []string) map[string]string {
	files := map[string]string{}
	for _, name := range names {
		files["lib/modules/"+name+".ko"] = k.module(name)
	}
	return files
}

// Systemd returns the files of systemd, and of a shell and the libraries that came with it, by their
// paths in the guest.
func (k Kit) Systemd() (map[string]string, error) {
	entries, err := os.ReadDir(k.systemd())
	files := map[string]string{}
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
		files[to] = filepath.Join(k.systemd(), name)
	}
	return files, err
}

// Build builds a Go program of the repository without C, in the folder from, with go's arguments. It
// returns the program's path.
func (k Kit) Build(name, from string, args ...string) (string, error) {
	path := filepath.Join(k.Dir(), name)
	cmd := exec.Command("go", append(slices.Clone(args), "-o", path, from)...)
	cmd.Dir, cmd.Env = k.Repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return path, nil
}

// QEMU returns the command that boots a guest from an archive of WriteRoot. The parameters are the
// kernel's beside those that every guest has. The disk is a raw image, and console a file for what
// the kernel and the first process print.
func (k Kit) QEMU(t Topology, archive, disk, console, parameters string) []string {
	accelerator := "tcg,thread=single" // thread=multi is no faster, and one guest in four crashes
	if k.Parallel {
		accelerator = "tcg,thread=multi"
	}
	return append([]string{
		qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35", "-accel", accelerator, "-cpu", "max,vendor=GenuineIntel,la57=off,cx16=off",
		"-kernel", k.kernel(), "-initrd", archive,
		// The kernel tests its timer in a few ticks, which an emulator on a busy machine may miss.
		"-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr no_timer_check " + parameters,
		"-drive", "file=" + disk + ",format=raw,if=virtio",
		"-serial", "file:" + console,
	}, t.flags()...)
}
