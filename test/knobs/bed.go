// Package knobs tests every knob on a real kernel, with the same tables on cgroup v1, where a test
// of test/e2e provides the bed, and on cgroup v2, in the guest of test/vm.
package knobs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	mib  = 1 << 20
	pass = 900 * time.Millisecond // the default driftInterval

	patience = 3 * time.Minute // for a condition, also on an emulated machine on a busy host
)

// Bed is the runtime and the plugin of the tests.
type Bed struct {
	RT     *runtime.Runtime
	Sluice *runtime.Sluice // nil for tests that start it themselves
}

// pin returns the resources of the smallest LSE container: the CPUs of one core.
func pin(t *testing.T) runtime.Resources {
	t.Helper()
	return runtime.Whole(workload.MilliCPU(1000*threads(t)), 64*mib)
}

// threads returns the number of threads per core.
func threads(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
	must(t, err)
	siblings, err := cpuset.Parse(string(text))
	must(t, err)
	return siblings.Size()
}

// pod returns a pod of one container "c" with the annotations, given as key, value, and so on. It
// may be of class SYSTEM.
func pod(name string, r runtime.Resources, annotations ...string) runtime.PodSpec {
	spec := runtime.PodSpec{
		Name: strings.Map(dashes, name), Namespace: "kube-system", Annotations: map[string]string{},
		Containers: []runtime.ContainerSpec{{Name: "c", Resources: r}},
	}
	for pair := range slices.Chunk(annotations, 2) {
		spec.Annotations[pair[0]] = pair[1]
	}
	return spec
}

// dashes turns a test's name into that of a pod.
func dashes(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
		return r
	case 'A' <= r && r <= 'Z':
		return r - 'A' + 'a'
	}
	return '-'
}

func (b *Bed) run(t *testing.T, spec runtime.PodSpec) *runtime.Pod {
	t.Helper()
	pod, err := b.RT.RunPod(spec)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() { // removes it for the next test
			_ = pod.Remove()
		}
	})
	for _, spec := range spec.Containers {
		c, err := pod.Create(spec)
		must(t, err)
		must(t, c.Start())
	}
	return pod
}

// status returns the plugin's status.
func (b *Bed) status(t *testing.T) *status.Status {
	t.Helper()
	var s *status.Status
	await(t, func() (err error) { // it serves the runtime before the socket
		s, err = b.Sluice.Status()
		return err
	})
	return s
}

// disks returns the numbers of the machine's disks, sorted. Disks have a device, unlike ram, zram
// and loop devices.
func disks(t *testing.T) []string {
	t.Helper()
	devices, err := filepath.Glob("/sys/block/*/device")
	must(t, err)
	var numbers []string
	for _, device := range devices {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(device), "dev"))
		must(t, err)
		numbers = append(numbers, strings.TrimSpace(string(text)))
	}
	slices.Sort(numbers)
	return numbers
}

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

// is reports whether a file has the wanted text; "a|b" stands for either.
func is(got, want string) bool { return slices.Contains(strings.Split(want, "|"), got) }

// says returns an error if the file of a cgroup does not have the wanted text.
func says(file func(string) (string, error), name, want string) error {
	got, err := file(name)
	if err == nil && !is(got, want) {
		err = fmt.Errorf("%s is %q, want %s", name, got, want)
	}
	return err
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
