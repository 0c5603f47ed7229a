package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// testAutomaticBurst checks that the limit of a throttled container and its pod rises, and falls
// again when the container is no longer throttled. A resize meanwhile succeeds and stays.
func testAutomaticBurst(t *testing.T, rt *runtime.Runtime) {
	const asked, resized = 100, 150
	s := loopSluice(t, rt, "control: {mode: on, burst: {calmAfter: 1s}}")
	spec := classed("online", "LS", runtime.Whole(asked, 64*mib))
	spec.Annotations["cpu-burst.sluice.dev"] = "auto"
	spec.Containers[0].Args = []string{"first", "toggle"}
	online := run(t, rt, spec)
	c := online.Container("c")
	_, err := c.First()
	must(t, err)

	limits := func() (container, pod workload.MilliCPU) { return limit(t, c.File), limit(t, online.File) }
	raised := func(over workload.MilliCPU) func() bool {
		return func() bool {
			container, pod := limits()
			if pod >= 0 && container > pod {
				t.Errorf("the container's limit is %s CPUs, above its pod's of %s", container, pod)
			}
			return container > over
		}
	}
	is := func(want workload.MilliCPU) func() bool {
		return func() bool { container, pod := limits(); return container == want && pod == want }
	}
	load(t, online)
	await(t, "the limit is raised", raised(asked*12/10))
	unload(t, online)
	await(t, "the limit is what was asked for", is(asked))
	load(t, online)
	await(t, "the limit is raised again", raised(asked))
	must(t, c.Resize(runtime.Whole(resized, 64*mib)))
	if container, pod := limits(); container < resized || container > resized*3 || pod < container { // it may have been raised again, to at most the configuration's 300 %
		t.Errorf("after a resize to %d milli the container's limit is %d and the pod's %d", resized, container, pod)
	}
	if got := entry(t, s, c).Requested; got != resized {
		t.Errorf("sluice reads a request of %d milli after the resize, want %d", got, resized)
	}
	await(t, "the new limit is raised", raised(resized))
	t.Logf("%d raises and %d reductions were decided", len(decided(t, s, "burst", "raise")), len(decided(t, s, "burst", "lower")))
	sound(t, s)
}

// evictable returns a BE pod outside of kube-system, whose pods are never evicted by default.
func evictable(name string) runtime.PodSpec {
	spec := classed(name, "BE", runtime.Resources{})
	spec.Namespace = "default"
	return spec
}

// testEviction checks that batch work is evicted from a node whose memory is in use, and does not
// start there again.
func testEviction(t *testing.T, rt *runtime.Runtime) {
	online := service(t, rt, "online", runtime.Resources{CPURequest: 100})
	spec := evictable("batch")
	spec.Containers[0].Args = []string{"touch=300", "first", "sleep"}
	batch := run(t, rt, spec) // before the plugin starts, which might evict it during its creation
	_, err := batch.Container("c").First()
	must(t, err)
	s := loopSluice(t, rt, `control:
  mode: on
  memory: {safePercent: 1, evictPercent: 2, evictMarginPercent: 0}
  eviction: {by: cri, refuseNew: true, memoryPause: 1s, socket: `+rt.Socket()+`}`)
	must(t, batch.Container("c").Await(cri.ContainerState_CONTAINER_EXITED))
	if state, err := online.Container("c").State(); err != nil || state != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the service is %s, %v", state, err)
	}
	await(t, "sluice log tells of the eviction", func() bool { return len(decided(t, s, "eviction", "evict")) > 0 })
	e := decided(t, s, "eviction", "evict")[0]
	if e.Object != "default/batch" || e.Mode != control.On || !strings.Contains(e.Why, "of the node's memory is in use, over 2%") {
		t.Errorf("sluice log tells: %+v", e)
	}

	await(t, "a new batch pod is refused", func() bool {
		pod, err := rt.RunPod(evictable("next"))
		must(t, err)
		_, err = pod.Create(runtime.ContainerSpec{Name: "c"})
		must(t, pod.Remove())
		if err != nil {
			says(t, err.Error(), "no batch work starts on this node until ", "pod default/batch ", "memory is in use")
		}
		return err != nil
	})
	run(t, rt, classed("another", "LS", runtime.Resources{}))
	if n := statusOf(t, s).Counters.Panics; n > 0 {
		t.Errorf("%d panics", n)
	}
}

// testRecording records a busy node and replays the recording.
func testRecording(t *testing.T, rt *runtime.Runtime) {
	online := service(t, rt, "online", runtime.Resources{CPURequest: 500})
	hog(t, rt, "batch")
	s := loopSluice(t, rt, squeeze(control.Preview, control.ByQuota))
	load(t, online)
	file := filepath.Join(t.TempDir(), "recording.jsonl")
	_, err := s.Command("record", "-f", file, "--for", "3s", "--interval", "200ms", "--status-socket", s.StatusSocket)
	must(t, err)
	out, err := s.Command("replay", "-f", file, "-o", "json")
	must(t, err)
	var results []sim.Result
	must(t, json.Unmarshal([]byte(out), &results))
	for _, r := range results {
		t.Logf("%s: %.2f CPUs of online work, %.2f of batch", r.Policy, r.OnlineCPUs, r.BatchCPUs)
		if r.OnlineCPUs <= 0 || r.BatchCPUs <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// testSwitch switches batch work off and on by the file that `sluice batch` writes.
func testSwitch(t *testing.T, rt *runtime.Runtime) {
	batch := hog(t, rt, "batch")
	s := loopSluice(t, rt, squeeze(control.On, control.ByQuota))
	await(t, "batch has more than its floor", func() bool { return boxed(t, batch) > batchFloor })
	must(t, batchswitch.Write(s.StateDir, batchswitch.Setting{To: control.SwitchOff}))
	await(t, "batch has its floor", func() bool { return boxed(t, batch) == batchFloor })
	pod, err := rt.RunPod(classed("next", "BE", runtime.Resources{}))
	must(t, err)
	if _, err := pod.Create(runtime.ContainerSpec{Name: "c"}); err == nil {
		t.Error("a batch container was created while batch is off")
	} else {
		says(t, err.Error(), "no batch work starts on this node now: batch is switched off")
	}
	if state, err := batch.Container("c").State(); err != nil || state != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("running batch work is %s, %v", state, err)
	}
	must(t, batchswitch.Write(s.StateDir, batchswitch.Setting{To: control.SwitchOff, Until: time.Now()}))
	await(t, "batch has more than its floor again", func() bool { return boxed(t, batch) > batchFloor })
	c, err := pod.Create(runtime.ContainerSpec{Name: "c"})
	must(t, err)
	must(t, c.Start())
	if closed := decided(t, s, "windows", "close"); len(closed) != 1 || closed[0].Why != "batch is switched off" {
		t.Errorf("sluice log tells of the switch: %+v", closed)
	}
	sound(t, s)
}
