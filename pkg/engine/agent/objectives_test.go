package agent

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/objectives"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
)

// fakeLatencies answers for all pods that are followed.
type fakeLatencies struct {
	targets []objectives.Target
	latest  observe.Latency
}

func (f *fakeLatencies) Follow(_ context.Context, targets []objectives.Target) { f.targets = targets }

func (f *fakeLatencies) Latest() map[string]observe.Latency {
	all := map[string]observe.Latency{}
	for _, t := range f.targets {
		all[t.UID] = f.latest
	}
	return all
}

const objectiveOn = `control: {mode: on, batch: {by: quota, thresholdPercent: 90}, slo: {mode: on}}
memory: {}
authorize: [{features: [slo], namespaces: ["*"]}]
`

// TestObjective checks that a service which answers too late is read at its address, that batch work then
// gets less CPU, and that nobody is read any more once the service is gone or the controller is off.
func TestObjective(t *testing.T) {
	onLoops(t, knobSetup{config: objectiveOn}, func(t *testing.T, h *loopNode) {
		f := &fakeLatencies{}
		h.agent.loop.Latencies, h.agent.loop.OnHostNetwork = f, true
		h.agent.loop.Failures = func() []status.Failure { return nil } // there is a sampler
		web := service("web/c", 2000)
		web.annotations["slo.sluice.dev"] = "{latency: {metric: seconds, bound: 20ms, port: 8080}}"
		h.run(web, granted("batch/c"))
		h.uses["web/c"], h.uses["batch/c"] = 0.5, 2
		pod := h.agent.Order[0].Pod
		for _, at := range []struct {
			ips           []string
			onHostNetwork bool
			want          string
		}{{nil, false, ""}, {nil, true, "127.0.0.1"}, {[]string{"192.0.2.1", "2001:db8::1"}, false, "192.0.2.1"}} {
			pod.IPs, pod.HostNetwork = at.ips, at.onHostNetwork
			h.steps(time.Second)
			if len(f.targets) != 1 || f.targets[0].UID != pod.UID || f.targets[0].Objective.Port != 8080 || f.targets[0].Address != at.want {
				t.Fatalf("%+v: targets %+v", at, f.targets)
			}
		}
		for range 60 {
			f.latest = observe.Latency{From: h.agent.loop.View.Now.Add(-5 * time.Second), At: h.agent.loop.View.Now, Seconds: 0.05, Requests: 5000, Slow: 500}
			h.steps(time.Second)
		}
		st, err := h.agent.Status()
		if err != nil {
			t.Fatal(err)
		}
		loop := st.Loop
		if loop.Batch.BoundsPercent != 5 || h.audit.has("slo", "squeeze") == 0 {
			t.Errorf("batch work keeps %d %%: %+v", loop.Batch.BoundsPercent, h.audit.all)
		}
		at := slices.IndexFunc(loop.Disturbed, func(d control.Disturbance) bool { return d.Objective != nil })
		if at < 0 || loop.Disturbed[at].Objective.Seconds != 0.05 || loop.Disturbed[at].Objective.BrokenAt.IsZero() {
			t.Errorf("%+v", loop.Disturbed)
		}
		if err := h.reload("control: {mode: on, batch: {by: quota, thresholdPercent: 90}, slo: {mode: off}}\nmemory: {}\n"); err != nil {
			t.Fatal(err)
		}
		h.steps(2 * time.Second)
		if len(f.targets) != 0 {
			t.Errorf("targets %+v", f.targets)
		}
	})
}

// TestObjectiveCulprit checks that where one of several batch pods makes a service answer too late, it alone
// gets less CPU, although the service hardly waits.
func TestObjectiveCulprit(t *testing.T) {
	onLoops(t, knobSetup{config: objectiveOn}, func(t *testing.T, h *loopNode) {
		f := &fakeLatencies{}
		h.agent.loop.Latencies = f
		h.agent.loop.Failures = func() []status.Failure { return nil } // there is a sampler
		web, dir := service("web/c", 4000), "/kubepods/besteffort/pod-hog"
		web.annotations["slo.sluice.dev"] = "{latency: {metric: seconds, bound: 20ms, port: 8080}}"
		h.run(web, batch("hog/c"), batch("a/c"), batch("b/c"))
		h.uses["web/c"], h.uses["a/c"], h.uses["b/c"] = 1, 0.1, 0.1
		h.waits = map[string]float64{}
		seconds := func(count int, wants float64) {
			for second := range count {
				h.uses["hog/c"] = wants
				if quota := h.quotaOf(dir); quota >= 0 {
					h.uses["hog/c"] = min(wants, quota)
				}
				took := 0.005
				if h.waits["web/c"] = 0.001; h.uses["hog/c"] > 1.6 {
					h.waits["web/c"], took = 0.05, 0.05
				}
				if now := h.agent.loop.View.Now; second%5 == 0 {
					f.latest = observe.Latency{From: now.Add(-5 * time.Second), At: now, Seconds: took, Requests: 5000, Slow: max(0, took-0.02) * 1e4}
				}
				h.steps(time.Second)
			}
		}
		seconds(20, 0.2)
		seconds(40, 3)
		if h.audit.has("culprit", "squeeze") != 1 || h.audit.has("culprit", "confirm") != 1 || h.audit.has("slo", "squeeze") > 0 {
			t.Errorf("decisions %+v", h.audit.all)
		}
		h.expectQuota(dir, 1.5)
	})
}
