package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/bench/cgroups"
	"github.com/sluice-dev/sluice/test/protocol"
)

// BenchmarkLoop measures CPU time and memory of the process with 500 containers in 250 pods, of
// which a fifth is batch work (BestEffort pods), in cgroups of this host: without the control
// loop, with it in preview, which is the default, and with it on. The CPU time is that of ten
// seconds.
func BenchmarkLoop(b *testing.B) { loops(b, empty) }

// BenchmarkBusyLoop is BenchmarkLoop with a process in each container that never rests, so that 500
// processes want a CPU, and each has a run delay.
func BenchmarkBusyLoop(b *testing.B) { loops(b, restless) }

// empty leaves a container without a process.
func empty(*testing.B, *cgroups.Tree, string) {}

// restless puts a process into a container that uses all CPU time that it gets.
func restless(b *testing.B, tree *cgroups.Tree, dir string) {
	b.Helper()
	endless := exec.CommandContext(b.Context(), "busybox", "yes") // to /dev/null
	if err := endless.Start(); err != nil {
		b.Skipf("SKIPPED, Debian's busybox-static is needed: %v", err)
	}
	b.Cleanup(func() {
		endless.Process.Kill()
		endless.Wait()
	})
	tree.Enter(dir, endless.Process.Pid)
}

// loops measures the loop's modes, with what fill puts into the containers.
func loops(b *testing.B, fill func(b *testing.B, tree *cgroups.Tree, dir string)) {
	for _, mode := range []string{"off", "preview", "on"} {
		b.Run(mode, func(b *testing.B) {
			s := newSide(b, 0, nil, "burstable")
			host := s.busy(b, 250, 2, fill)
			config := filepath.Join(b.TempDir(), "sluice.yaml")
			if err := os.WriteFile(config, fmt.Appendf(nil, "control: {mode: %s}\n", mode), 0o600); err != nil {
				b.Fatal(err)
			}
			s.plugin = s.Sluice(b, sluice, host, config)
			time.Sleep(15 * time.Second) // until each container has been measured completely and decided on
			for b.Loop() {
				use := measure(b, 10*time.Second, s.plugin.PID())[0]
				b.ReportMetric(100*use.CPUs, "cpu-%")
				b.ReportMetric(use.MiB(), "MiB")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// busy lets the side have pods, of which a fifth is batch work, with some containers each in cgroups
// of this host, into which fill puts processes. It returns the host's root.
func (s *side) busy(b *testing.B, pods, each int, fill func(b *testing.B, tree *cgroups.Tree, dir string)) (host string) {
	b.Helper()
	host = s.Host(b, fmt.Sprintf("%d cores", runtime.NumCPU()))
	tree := cgroups.New(b, host)
	bind(b, "/proc", filepath.Join(host, "proc"))
	for i := range pods {
		pod := protocol.Pod{Name: fmt.Sprintf("loop-%d", i)}
		requests := protocol.Requests{CPU: 500, Limit: 1000, Memory: 64 << 20}
		if i%5 == 0 {
			pod.QoS, pod.Annotations, requests = "besteffort", map[string]string{"class.sluice.dev": "BE"}, protocol.Requests{}
		}
		sandbox, err := s.RunPod(pod)
		if err != nil {
			b.Fatal(err)
		}
		for j := range each {
			c, err := s.Run(sandbox, fmt.Sprintf("c%d", j), requests)
			if err != nil {
				b.Fatal(err)
			}
			tree.Make(c.Linux.CgroupsPath)
			fill(b, tree, c.Linux.CgroupsPath)
		}
	}
	return host
}

// bind makes a folder show another one until the benchmark ends.
func bind(b *testing.B, what, where string) {
	b.Helper()
	if err := os.MkdirAll(where, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := unix.Mount(what, where, "", unix.MS_BIND, ""); err != nil {
		b.Skipf("SKIPPED, the right to mount is needed: %v", err)
	}
	b.Cleanup(func() {
		if err := unix.Unmount(where, unix.MNT_DETACH); err != nil {
			b.Error(err)
		}
	})
}
