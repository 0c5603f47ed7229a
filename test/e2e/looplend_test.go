package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// testLend lends the CPU of an idle LSR pin to batch work, which leaves it soon after the pin
// begins to run. The test logs how long that takes, and how long the pin's threads waited for
// their CPU in the first half second, beside the same for steps of load before which nothing was
// lent.
func testLend(t *testing.T, rt *runtime.Runtime) {
	besteffort := hog(t, rt, "batch")
	job := besteffort.Container("c")
	spec := classed("pin", "LSR", runtime.Whole(1000, 64*mib))
	spec.Containers[0].Args = []string{"first", "toggle"}
	s := loopSluice(t, rt, "control: {mode: on, batch: {by: quota, lendLSR: true}}")
	pod := run(t, rt, spec)
	pin := pod.Container("c")
	_, err := pin.First()
	must(t, err)
	own, err := pin.CPUs()
	must(t, err)
	shared := cpuset.Difference(online(t), own)
	isOn(t, job, shared)
	on := func() cpuset.Set {
		cpus, err := job.CPUs()
		must(t, err)
		return cpus
	}
	// step starts the pin's load. It returns when batch work had left the pin's CPU and how long
	// the pin's threads waited.
	step := func() (left, waited time.Duration) {
		before := delay(t, pin)
		began := time.Now()
		load(t, pod)
		for on().Overlaps(own) {
			if time.Since(began) > time.Minute {
				t.Fatal("batch work stays on the pin's CPU")
			}
			time.Sleep(time.Millisecond)
		}
		left = time.Since(began)
		time.Sleep(max(0, 500*time.Millisecond-left))
		waited = delay(t, pin) - before
		unload(t, pod)
		return left, waited
	}
	for round := range 2 {
		await(t, "the idle pin's CPU is lent", func() bool { return on().Overlaps(own) })
		time.Sleep(time.Second) // batch work uses it meanwhile
		left, waited := step()
		t.Logf("round %d, lent: batch work was off the pin's CPU %s after the load began, the pin waited %s of 500 ms", round+1, left.Round(time.Millisecond), waited.Round(10*time.Microsecond))
		isOn(t, job, shared)
		time.Sleep(time.Second)
		_, waited = step()
		t.Logf("round %d, not lent: the pin waited %s of 500 ms", round+1, waited.Round(10*time.Microsecond))
	}
	if lent, back := len(decided(t, s, "batch", "lend")), len(decided(t, s, "batch", "return")); lent < 2 || back < 2 {
		t.Errorf("%d and %d decisions", lent, back)
	}
	sound(t, s)
}

// delay returns how long a container's threads have waited for a CPU.
func delay(t *testing.T, c *runtime.Container) (sum time.Duration) {
	t.Helper()
	pids, err := c.PIDs()
	must(t, err)
	for _, pid := range pids {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		must(t, err)
		for _, task := range tasks {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
			if err != nil {
				continue // the thread has ended
			}
			waited, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
			must(t, err)
			sum += time.Duration(waited)
		}
	}
	return sum
}
