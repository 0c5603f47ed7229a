package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// testCulprit runs a service beside nine batch pods and one pod that wants all CPUs, which nothing else bounds.
// That pod alone must get less, so that the service waits less, and the nine others lose nothing. At first it
// is a batch pod, and then a service that permits it.
func testCulprit(t *testing.T, rt *runtime.Runtime) {
	s := loopSluice(t, rt, "control: {mode: on, slo: {mode: off}, batch: {mode: off, floorCPUs: 1}}\nclasses: {BE: {cpu-identity: 0}}")
	pod := func(name, class, does string, request workload.MilliCPU, keys map[string]string) *runtime.Pod {
		spec := classed(name, class, runtime.Resources{CPURequest: request})
		spec.Containers[0].Args = []string{"first", does}
		for key, value := range keys {
			spec.Annotations[key] = value
		}
		return run(t, rt, spec)
	}
	web := pod("web", "LS", "burn", 500, map[string]string{"slo.sluice.dev": "{runDelay: 30%, cpuPressure: 30%}"})
	var others []*runtime.Pod
	for i := range 9 {
		others = append(others, pod(fmt.Sprintf("job-%d", i), "BE", "pulse=2", 100, nil))
	}
	inAWhile := func(pods ...*runtime.Pod) float64 { // CPUs that they use
		used := func() (all time.Duration) {
			for _, p := range pods {
				time, err := p.Container("c").CPUTime()
				must(t, err)
				all += time
			}
			return all
		}
		before, began := used(), time.Now()
		time.Sleep(10 * time.Second)
		return (used() - before).Seconds() / time.Since(began).Seconds()
	}
	alone := inAWhile(others...)

	culprit := func(name, class string, request workload.MilliCPU, keys map[string]string) *runtime.Pod {
		hog, began := pod(name, class, "burn=4", request, keys), time.Now()
		decided := func(action string) {
			t.Helper()
			await(t, name+": "+action, func() bool {
				all, err := s.Decisions()
				must(t, err)
				for i := range all {
					d := &all[i]
					if d.Controller != "culprit" || d.Time.Before(began) {
						continue
					}
					if !(audit.Filter{Object: "kube-system/" + name}).Names(d.Object) {
						t.Fatalf("%s of %s: %s", d.Action, d.Object, d.Why)
					}
					if d.Action == action {
						t.Logf("%s: %s after %v: %s to %s: %s", name, action, time.Since(began).Round(time.Second/10), d.From, d.To, d.Why)
						return true
					}
				}
				return false
			})
		}
		decided("squeeze")
		decided("confirm")
		after := inAWhile(others...)
		t.Logf("%s: the nine others use %.3f CPUs, and used %.3f without it", name, after, alone)
		if after < alone*0.8 {
			t.Errorf("%s: the nine others use %.3f CPUs, and used %.3f without it", name, after, alone)
		}
		return hog
	}
	must(t, culprit("hog", "BE", 3000, nil).Remove())
	greedy := culprit("greedy", "LS", 600, map[string]string{"allow.sluice.dev": "demote"})
	if has := inAWhile(greedy); has < 0.55 {
		t.Errorf("greedy has %.3f CPUs, and requests 0.6", has)
	}
	_ = web
	sound(t, s)
}
