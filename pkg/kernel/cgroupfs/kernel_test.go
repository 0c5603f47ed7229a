package cgroupfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// v1 is this machine's kernel, with a cgroup of the test in each v1 hierarchy.
type v1 struct {
	*Driver
	t   testing.TB
	dir string // "/sluice-test-..."
}

// realV1 skips the test if the kernel, the mounts or missing privileges don't permit it.
func realV1(t testing.TB) *v1 {
	t.Helper()
	d, err := Open("/")
	if err != nil {
		t.Skipf("SKIPPED, no real cgroups: %v", err)
	}
	t.Cleanup(func() { d.Close() })
	if d.cpuset == nil || d.cpu == nil || d.cpuset.v2 || d.cpu.v2 {
		t.Skipf("SKIPPED, not a v1 machine: %v", d)
	}
	k := &v1{Driver: d, t: t, dir: fmt.Sprintf("/sluice-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))}
	switch err := d.cpuset.tree.Mkdir(relative(k.dir)); {
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		t.Skipf("SKIPPED, root and a writable cgroup mount are needed: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { k.remove(k.dir) })
	for _, h := range d.trees {
		if h != d.cpuset && !h.v2 {
			if err := h.tree.Mkdir(relative(k.dir)); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.put(k.dir, knobs.CPUs, "")
	k.put(k.dir, knobs.Mems, "")
	return k
}

// twoCPUs is realV1 for a test that needs the CPUs 0 and 1.
func twoCPUs(t testing.TB) *v1 {
	t.Helper()
	k := realV1(t)
	if !cpuset.Of(0, 1).SubsetOf(cpuset.MustParse(k.get(k.dir, knobs.CPUs))) {
		t.Skip("SKIPPED, the machine has no CPUs 0 and 1")
	}
	k.put(k.dir, knobs.CPUs, "0-1")
	return k
}

// child makes a cgroup with that set of CPUs below the test's own.
func (k *v1) child(name, cpus string) string {
	k.t.Helper()
	dir := k.dir + "/" + name
	for _, h := range []*hierarchy{k.cpuset, k.cpu} {
		if err := h.tree.Mkdir(relative(dir)); err != nil {
			k.t.Fatal(err)
		}
	}
	if cpus != "" {
		k.put(dir, knobs.CPUs, cpus)
		k.put(dir, knobs.Mems, "")
	}
	return dir
}

// remove removes a cgroup and those below it. A process that has just ended may keep one of them
// for a moment.
func (k *v1) remove(dir string) {
	for _, h := range k.trees {
		c, err := h.open(dir)
		if err != nil {
			continue
		}
		children, err := c.children()
		c.release()
		if err != nil {
			k.t.Error(err)
		}
		for _, child := range children {
			k.remove(child)
		}
		for deadline := time.Now().Add(30 * time.Second); ; {
			err := h.tree.Remove(relative(dir))
			if err == nil || errors.Is(err, os.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				k.t.Errorf("cgroup %s stays: %v", dir, err)
				break
			}
		}
	}
}

// wholeDisk returns the number of a disk of this machine.
func wholeDisk(t testing.TB) string {
	t.Helper()
	names, err := filepath.Glob("/sys/block/*/dev")
	if err != nil || len(names) == 0 {
		t.Skipf("SKIPPED, no disk is in /sys/block: %v", err)
	}
	text, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func change(dir string, knob knobs.Knob, to knobs.Value) knobs.Change {
	return knobs.Change{Object: knobs.Object{Path: dir, Name: "ns/pod/ctr", Level: knobs.ContainerLevel}, Knob: knob, To: to}
}

func set(list string) knobs.CPUSet { return knobs.CPUSet(cpuset.MustParse(list)) }

func (k *v1) put(dir string, knob knobs.Knob, list string) {
	k.t.Helper()
	if err := k.Apply([]knobs.Change{change(dir, knob, set(list))}); err != nil {
		k.t.Fatal(err)
	}
}

func (k *v1) get(dir string, knob knobs.Knob) string {
	k.t.Helper()
	v, err := k.Read(dir, knob)
	if err != nil {
		k.t.Fatal(err)
	}
	return v.String()
}

func (k *v1) want(dir, cpus string) {
	k.t.Helper()
	if got := k.get(dir, knobs.CPUs); got != cpus {
		k.t.Errorf("%s has CPUs %s, want %s", dir, got, cpus)
	}
}

// waits is an environment variable that makes this test program wait for the end of its input. So
// it serves as a process for cgroups on machines without any other program.
const waits = "SLUICE_TEST_WAITS"

func TestMain(m *testing.M) {
	if os.Getenv(waits) != "" {
		io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

// process starts a process in a cgroup of the cpuset and cpu hierarchies; end ends it.
func (k *v1) process(dir string) (pid int, end func()) {
	k.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{waits + "=1"}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Skipf("SKIPPED, no process can be started: %v", err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			stdin.Close()
			cmd.Wait()
		}
	}
	k.t.Cleanup(end)
	for _, h := range []*hierarchy{k.cpuset, k.cpu} {
		if err := write(h, dir, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
			k.t.Fatal(err)
		}
	}
	return cmd.Process.Pid, end
}

func write(h *hierarchy, dir, file, value string) error {
	return h.with(dir, func(c *cgroup) error { return c.write(file, value) })
}
