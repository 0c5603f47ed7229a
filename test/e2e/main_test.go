// Package e2e runs Sluice against a real containerd, and a real CRI-O where there is one,
// with real containers. Its tests run one after the other; where the machine can't carry
// them they are skipped, and the last lines say how many and why.
package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
)

// skipped counts tests by why they were skipped. Tests run one after the other.
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

// inGuest tells whether these tests run in a guest of test/vm: emulated, with cgroup v2
// alone, and with the systemd driver where systemd runs it.
func inGuest() bool { return os.Getenv("SLUICE_VM") != "" }

// patience is how long a condition may take to come true.
func patience() time.Duration {
	if inGuest() {
		return 3 * time.Minute
	}
	return time.Minute
}

// runtimes are the runtimes that a test is for which has all of them, as
// runtime.Options.Containerd names them.
var runtimes = []string{"2", "1.7", runtime.CRIO}

// newest are the newest of each: what differs between containerd's versions is not
// what such a test is about.
var newest = []string{"2", runtime.CRIO}

// nameOf is a runtime for people.
func nameOf(version string) string {
	if version == runtime.CRIO {
		return "CRI-O"
	}
	return "containerd " + version
}

// skip skips a test that this machine can't carry.
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
			t.Fatal(err) // all that a guest needs is in it
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

// complaints are the lines of a log that are more than information.
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
			_ = s.Kill() // the next test runs its own
		}
	})
	return s
}

// run runs a pod with its containers started. If the test fails the next one finds no
// trace of it.
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
	for deadline := time.Now().Add(patience()); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}
