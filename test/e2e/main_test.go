// Package e2e runs Sluice on a real containerd, and on a real CRI-O if there is one, with real
// containers. Its tests run one after the other. Tests that the machine can't run are skipped, and
// the last lines of the output say how many and why.
package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
)

// skipped counts skipped tests by reason. Tests run one after the other.
var skipped = map[string]int{}

func TestMain(m *testing.M) {
	code := m.Run()
	for why, n := range skipped {
		fmt.Printf("e2e: %d tests SKIPPED: %s\n", n, why)
	}
	if len(skipped) == 0 {
		fmt.Println("e2e: no test skipped")
	}
	os.Exit(code)
}

// inGuest reports whether the tests run in a guest of test/vm, which is emulated, has cgroup v2
// alone, and uses the systemd driver if systemd runs it.
func inGuest() bool { return os.Getenv("SLUICE_VM") != "" }

// patience is how long to wait for a condition.
func patience() time.Duration {
	if inGuest() {
		return 3 * time.Minute
	}
	return time.Minute
}

// runtimes lists the runtimes for tests that need all of them, by the names in
// runtime.Options.Containerd.
var runtimes = []string{"2", "1.7", runtime.CRIO}

// newest lists the newest version of each runtime, for tests that don't depend on the differences
// between containerd's versions.
var newest = []string{"2", runtime.CRIO}

// nameOf returns a runtime's name for people.
func nameOf(version string) string {
	if version == runtime.CRIO {
		return "CRI-O"
	}
	return "containerd " + version
}

// skip skips a test that this machine can't run.
func skip(t *testing.T, why error) {
	t.Helper()
	skipped[why.Error()]++
	t.Skip("SKIPPED: ", why)
}

// start runs a runtime for the test and shows its log if the test fails.
func start(t *testing.T, options runtime.Options) *runtime.Runtime {
	t.Helper()
	options.HighWeight = true
	options.Crun = os.Getenv("SLUICE_CRUN") == "true"
	if inGuest() {
		options.Systemd = os.Getenv("SLUICE_SYSTEMD") == "true"
		options.RegistrationTimeout = max(options.RegistrationTimeout, time.Minute)
		options.RequestTimeout = max(options.RequestTimeout, time.Minute)
	}
	if err := runtime.Unavailable(options); err != nil {
		if inGuest() {
			t.Fatal(err) // a guest contains everything that the tests need
		}
		skip(t, err)
	}
	rt, err := runtime.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the runtime complains:\n%s", complaints(rt.Log()))
		}
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// complaints returns the lines of a log above the level of information.
func complaints(log string) string {
	var found strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "level=info") {
			found.WriteString(line)
		}
	}
	return found.String()
}

// startSluice runs the plugin and shows its log if the test fails.
func startSluice(t *testing.T, rt *runtime.Runtime, options runtime.SluiceOptions) *runtime.Sluice {
	t.Helper()
	s, err := rt.StartSluice(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sluice's log:\n%s", s.Log())
			_ = s.Kill() // the next test starts its own
		}
	})
	return s
}

// run runs a pod and starts its containers. It is removed when the test ends, also after a
// failure.
func run(t *testing.T, rt *runtime.Runtime, spec runtime.PodSpec) *runtime.Pod {
	t.Helper()
	pod, err := rt.Run(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_ = pod.Remove()
		}
	})
	return pod
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await waits for a condition.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	awaitFor(t, patience(), what, holds)
}

// awaitFor waits for a condition, at most for that long.
func awaitFor(t *testing.T, most time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(most); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}
