// Package guest holds the tests that run in the guest of test/vm, one after the other, as root, on
// a machine of their own.
package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestMain(m *testing.M) {
	if os.Getenv("SLUICE_VM") == "" {
		fmt.Println("SKIPPED: these tests run in a virtual machine: make vm-test")
		return
	}
	os.Exit(m.Run())
}

// TestCgroupfs runs the tests of pkg/kernel/cgroupfs that need a v2 kernel.
func TestCgroupfs(t *testing.T) {
	out, err := exec.Command("/cgroupfs.test", "-test.run=V2", "-test.v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestV2Kernel") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCoreScheduling runs the tests of pkg/kernel/coresched that need the kernel's support. Their
// output says so if this kernel has none.
func TestCoreScheduling(t *testing.T) {
	out, err := exec.Command("/coresched.test", "-test.run=^(TestRealKernel|TestRefusal)$", "-test.v").CombinedOutput()
	switch text := string(out); {
	case err != nil:
		t.Errorf("%v\n%s", err, text)
	case strings.Contains(text, "--- SKIP: TestRealKernel") && strings.Contains(text, "--- PASS: TestRefusal"):
		t.Skip(text)
	case !strings.Contains(text, "--- PASS: TestRealKernel"):
		t.Error(text)
	}
}

// TestDemo runs the demo, which reads other files with cgroup v2 than with v1.
func TestDemo(t *testing.T) {
	out, err := exec.Command("/mix.test", "-test.run=^TestDemo$", "-test.v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestDemo") {
		t.Errorf("%v\n%s", err, out)
	}
}

// start runs a containerd for the test and shows its log if the test fails.
func start(t *testing.T, options runtime.Options) *runtime.Runtime {
	t.Helper()
	// In an emulated guest, and perhaps on a busy host, steps may take seconds in place of
	// milliseconds.
	options.RegistrationTimeout, options.RequestTimeout = time.Minute, time.Minute
	must(t, runtime.Unavailable(options))
	rt, err := runtime.Start(options)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log ends:\n%s", tail(rt.Log(), 40))
		}
		must(t, rt.Close())
	})
	return rt
}

// nodesOf returns the NUMA nodes of CPUs.
func nodesOf(t *testing.T, cpus cpuset.Set) cpuset.Set {
	t.Helper()
	var nodes cpuset.Set
	for node := range online(t, "node").All() {
		if set(t, nodeFile(node, "cpulist")).Overlaps(cpus) {
			nodes.Add(node)
		}
	}
	return nodes
}

// patience is how long to wait for a condition, also on a busy host.
const patience = 3 * time.Minute

// await waits until the condition returns nil, and fails with its last error.
func await(t *testing.T, condition func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("for %s: %v", patience, err)
		}
	}
}

// online returns which CPUs ("cpu") or NUMA nodes ("node") are online.
func online(t *testing.T, kind string) cpuset.Set {
	t.Helper()
	return set(t, filepath.Join("/sys/devices/system", kind, "online"))
}

func nodeFile(node int, name string) string {
	return fmt.Sprintf("/sys/devices/system/node/node%d/%s", node, name)
}

func set(t *testing.T, path string) cpuset.Set {
	t.Helper()
	set, err := cpuset.Parse(read(t, path))
	must(t, err)
	return set
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return strings.TrimSpace(string(text))
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
