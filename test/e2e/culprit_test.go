package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// testCulprit runs a service beside ten batch pods that nothing else bounds. One wants all CPUs: it
// alone must get less, so that the service waits less, and the nine others lose nothing.
func testCulprit(t *testing.T, rt *runtime.Runtime) {
	s := loopSluice(t, rt, "control: {mode: on, slo: {mode: off}, batch: {mode: off, floorCPUs: 1}}\nclasses: {BE: {cpu-identity: 0}}")
	batch := func(name, does string, request workload.MilliCPU) *runtime.Container {
		spec := classed(name, "BE", runtime.Resources{CPURequest: request})
		spec.Containers[0].Args = []string{"first", does}
		return run(t, rt, spec).Container("c")
	}
	web := classed("web", "LS", runtime.Resources{CPURequest: 500})
	web.Annotations["slo.sluice.dev"] = "{runDelay: 30%, cpuPressure: 30%}"
	web.Containers[0].Args = []string{"first", "burn"}
	run(t, rt, web)
	var others []*runtime.Container
	for i := range 9 {
		others = append(others, batch(fmt.Sprintf("job-%d", i), "pulse=2", 100))
	}
	used := func() (all time.Duration) {
		for _, c := range others {
			time, err := c.CPUTime()
			must(t, err)
			all += time
		}
		return all
	}
	inAWhile := func() float64 {
		before, began := used(), time.Now()
		time.Sleep(6 * time.Second)
		return (used() - before).Seconds() / time.Since(began).Seconds()
	}
	alone := inAWhile()

	batch("hog", "burn=4", 3000)
	began := time.Now()
	decided := func(action string) {
		t.Helper()
		await(t, "hog: "+action, func() bool {
			all, err := s.Decisions()
			must(t, err)
			for i := range all {
				if d := &all[i]; d.Controller == "culprit" && d.Action == action {
					if !(audit.Filter{Object: "kube-system/hog"}).Names(d.Object) {
						t.Fatalf("%s of %s: %s", action, d.Object, d.Why)
					}
					t.Logf("%s after %v: %s to %s: %s", action, time.Since(began).Round(time.Second/10), d.From, d.To, d.Why)
					return true
				}
			}
			return false
		})
	}
	decided("squeeze")
	decided("confirm")
	after := inAWhile()
	t.Logf("the nine others use %.3f CPUs, and used %.3f without the culprit", after, alone)
	// Each of the nine computes for 2 ms by the clock. While it waits for a CPU in these, it uses less CPU time than alone.
	if after < alone*0.7 {
		t.Errorf("the nine others use %.3f CPUs, and used %.3f without the culprit", after, alone)
	}
	sound(t, s)
}
