// Bench runs a benchmark in a QEMU guest: on cgroup v2, and on another kernel than the host's. It is bench-mix, or
// classes, which compares how the kernel ranks batch work, and beside which nothing takes CPU time. Bench passes its
// further arguments to the benchmark; they have the form -name=value. The emulated CPUs run at the same time, as those
// of a real machine do, but are slow, so that requests need more work (-work=6ms). Such a guest crashes sometimes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/test/vm/boot"
)

func main() {
	kernel := flag.String("kernel", "", "file of the kernel (vmlinuz); Debian's if empty")
	program := flag.String("program", "mix", "mix or classes")
	cpus := flag.Int("cpus", 2, "CPUs of the guest, of which no more run at a time than the host has")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bench [-kernel FILE] [-program mix|classes] [-cpus N] [-- -FLAG=VALUE of the program...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kernel, *program, *cpus, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run boots the guest from the repository's root, after make build tools, and waits for its end.
func run(ctx context.Context, kernel, program string, cpus int, args []string) error {
	if cpus < 1 {
		return fmt.Errorf("-cpus: %d is less than 1", cpus)
	}
	kit := boot.Kit{Repository: ".", Kernel: kernel, Parallel: true}
	if err := kit.Fetch(); err != nil {
		return err
	}
	built := map[string]string{"init": "./test/vm/init"}
	files := map[string]string{}
	switch program {
	case "classes":
		built["classes"] = "./test/vm/classes"
	case "mix":
		built["mix"] = "./test/bench/mix"
		files["bin/sluice"] = "bin/sluice"
		for _, name := range []string{"runc", "probe", "2/containerd", "2/containerd-shim-runc-v2", "2/ctr"} {
			files["bin/tools/"+name] = filepath.Join("bin/tools", name)
		}
	default:
		return fmt.Errorf("-program: %q is neither mix nor classes", program)
	}
	for name, from := range built {
		file, err := kit.Build(name, from, "build")
		if err != nil {
			return err
		}
		files[name] = file
	}
	root, console := filepath.Join(kit.Dir(), "bench.cpio"), filepath.Join(kit.Dir(), "bench-console.log")
	if err := boot.WriteRoot(root, files, nil); err != nil {
		return err
	}
	disk := filepath.Join(kit.Dir(), "bench-disk.img") // QEMU wants one, and the guest has no driver for it
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	machine := boot.Topology{Sockets: 1, Dies: 1, Cores: cpus, Threads: 1, Memory: 4096}
	words := kit.QEMU(machine, root, disk, console, "SLUICE_TESTS="+program+" -- "+strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], "-serial", "stdio")...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w; the guest's console is in %s", err, console)
	}
	return nil
}
