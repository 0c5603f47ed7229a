package agent

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

const (
	byQuota  = "control: {mode: on, batch: {by: quota, thresholdPercent: 65}}\nmemory: {}\n"
	bestBox  = "/kubepods/besteffort"
	apart    = "pools: {mode: exclusive, list: [{name: critical, cpus: 2}, {name: online}, {name: batch, cpus: 2}]}\n"
	beGrants = `{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"2000"},"limits":{"kubernetes.io/batch-cpu":"2000"}}}}`
)

func granted(name string) ask {
	return ask{name: name, qos: "besteffort", annotations: map[string]string{"node.koordinator.sh/extended-resource-spec": beGrants, "class.sluice.dev": "BE"}}
}

// TestPreviewOfTheLoop checks that nothing is written on a busy node with all controllers in
// preview.
func TestPreviewOfTheLoop(t *testing.T) {
	onLoops(t, knobSetup{config: "control: {mode: preview, burst: {all: true}}\n" + apart}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 2000), batch("job/c"), ask{name: "low/c", qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}})
		h.pass()
		before, writes := h.state(), h.Writes()
		for _, used := range []float64{0.5, 1.9, 3, 6} {
			h.uses["web/c"], h.uses["job/c"], h.uses["low/c"] = used, 8-used, 1
			h.throttled["web/c"] = used < 1
			h.memory.Available = int64(float64(7<<30) - used*float64(1<<30))
			h.holds["job/c"] = 1 << 30
			h.steps(10 * time.Second)
			h.pass()
		}
		if diff := differences(before, h.state()); diff != "" || h.Writes() != writes {
			t.Errorf("preview wrote %d times:\n%s", h.Writes()-writes, diff)
		}
		if h.audit.by["on"] > 0 || h.audit.has("pools", "") == 0 || h.audit.has("memory", "") == 0 {
			t.Errorf("decisions: %+v", h.audit.all)
		}
	})
}

// TestBox checks that the quota of the besteffort cgroup follows what LS leaves. The cgroup has
// containers with quotas of their own, and others start while it is squeezed.
func TestBox(t *testing.T) {
	onLoops(t, knobSetup{config: byQuota}, func(t *testing.T, h *loopNode) {
		asks := []ask{service("web/c", 6000), batch("job/c"), granted("big/c")}
		h.run(asks...)
		h.uses["web/c"] = 1
		h.steps(4 * time.Second)
		h.expectQuota(bestBox, 4.2) // 65 % of 8 CPUs, less 1
		h.expectQuota(bestBox+"/pod-big/c", 2)
		h.uses["web/c"] = 4.7
		h.steps(100 * time.Millisecond)
		h.expectQuota(bestBox, 0.5)
		if h.V2 {
			h.expectQuota(bestBox+"/pod-big/c", 2)
		} else {
			h.expectQuota(bestBox+"/pod-big/c", 0.5)
			h.expectQuota(bestBox+"/pod-job", -1)
		}
		late := []ask{granted("late/c"), batch("more/c")}
		for _, a := range late { // the quota of the besteffort cgroup falls between their starts
			if err := h.create(a); err != nil {
				t.Fatal(err)
			}
			h.uses["web/c"] += 0.1
			h.steps(200 * time.Millisecond)
			h.begin(a.name)
		}
		h.pass()
		h.uses["web/c"] = 1
		h.steps(20 * time.Second)
		h.expectQuota(bestBox, 4.2)
		h.expectQuota(bestBox+"/pod-big/c", 2)
		h.expectQuota(bestBox+"/pod-late/c", 2)
		h.pass()
		if s, _ := h.agent.Status(); s.Counters.Drift > 0 {
			t.Errorf("%d drifts:\n%s", s.Counters.Drift, h.log.text.String())
		}
		writes := h.Writes()
		h.steps(5 * time.Second)
		if h.Writes() != writes {
			t.Errorf("%d writes of a loop that changes nothing", h.Writes()-writes)
		}
		h.giveBack(func(h *knobNode) { h.run(append(asks, late...)...) })
	})
}

// TestLooksAtBoxes checks that one reading of the besteffort cgroup covers all batch pods in it.
func TestLooksAtBoxes(t *testing.T) {
	onBothLoops(t, knobSetup{config: byQuota}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 2000), batch("job/c"), ask{name: "low/c", qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}})
		fast := map[string]bool{}
		for _, target := range h.agent.Targets() {
			fast[target.ID] = target.Fast
		}
		if len(fast) != 6 || !fast[colocation.BatchCgroupTarget+bestBox] || !fast[colocation.AllPodsTarget] || fast["job/c"] || !fast["low/c"] || fast["web/c"] {
			t.Errorf("targets %v", fast)
		}
		h.uses["job/c"], h.uses["low/c"] = 2, 1
		h.steps(time.Second)
		use := h.agent.loop.View.BatchUse
		if use.Usage != 3000 || !use.At.Equal(time.Now()) {
			t.Errorf("batch uses %+v", use)
		}
		if use := h.agent.loop.View.PodsUse; use.Usage != 3000 || !use.At.Equal(time.Now()) {
			t.Errorf("pods use %+v", use)
		}
		// Without a measurement of the besteffort cgroup, the sum of its containers counts.
		s := h.snapshot()
		s.Containers = s.Containers[1:]
		h.agent.Tick(s)
		if use := h.agent.loop.View.BatchUse; !use.At.IsZero() {
			t.Errorf("batch uses %+v", use)
		}
	})
}

// TestPodsOutsideOfBoxes checks that Burstable pods which are batch work by their label get quotas
// of their own, by weight, and that these are removed in the end.
func TestPodsOutsideOfBoxes(t *testing.T) {
	onLoops(t, knobSetup{config: byQuota}, func(t *testing.T, h *loopNode) {
		low := func(name string, milli int) ask {
			return ask{name: name, qos: "burstable", milli: milli, annotations: map[string]string{"class.sluice.dev": "BE"}}
		}
		h.run(service("web/c", 4000), low("a/c", 1000), low("b/c", 2000))
		h.uses["web/c"], h.uses["a/c"], h.uses["b/c"] = 3.7, 1, 2
		h.steps(2 * time.Second)
		a, b := h.quotaOf("/kubepods/burstable/pod-a"), h.quotaOf("/kubepods/burstable/pod-b")
		if a+b > 1.51 || a+b < 1.4 || b < 1.8*a {
			t.Errorf("quotas %v and %v of 1.5 CPUs", a, b)
		}
		h.run(low("c/c", 1000))
		if c := h.quotaOf("/kubepods/burstable/pod-c"); c < 0 || c > 0.5 {
			t.Errorf("a new pod began with %v CPUs", c)
		}
		h.steps(2 * time.Second)
		h.end("b/c")
		h.steps(2 * time.Second)
		a, c := h.quotaOf("/kubepods/burstable/pod-a"), h.quotaOf("/kubepods/burstable/pod-c")
		if a+c > 1.51 || a+c < 1.3 {
			t.Errorf("quotas %v and %v of 1.5 CPUs", a, c)
		}
		h.expectQuota("/kubepods/burstable/pod-b", 2)
		h.resize("a/c", 1000, 3000)
		h.expectQuota("/kubepods/burstable/pod-a/c", 3)
		h.steps(15 * time.Second)
		h.resize("a/c", 3000, 500)
		h.steps(15 * time.Second)
		h.uses["web/c"] = 0
		h.uses["a/c"] = 0
		h.steps(30 * time.Second)
		h.giveBack(func(h *knobNode) {
			h.run(service("web/c", 4000), low("a/c", 500), low("b/c", 2000), low("c/c", 1000))
			h.end("b/c")
		})
	})
}

// TestMixedBox checks that the besteffort cgroup loses its quota before an LS pod starts in it.
func TestMixedBox(t *testing.T) {
	onLoops(t, knobSetup{config: byQuota}, func(_ *testing.T, h *loopNode) {
		asks := []ask{service("web/c", 6000), batch("job/c")}
		h.run(asks...)
		h.uses["web/c"] = 4.7
		h.steps(2 * time.Second)
		h.expectQuota(bestBox, 0.5)
		ls := ask{name: "ls/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS"}}
		h.run(ls)
		h.expectQuota(bestBox, -1)
		h.expectQuota(bestBox+"/pod-job", 0.5)
		h.steps(2 * time.Second)
		h.expectQuota(bestBox, -1)
		h.end("ls/c")
		h.steps(2 * time.Second)
		h.expectQuota(bestBox, 0.5)
		h.expectQuota(bestBox+"/pod-job", -1)
		h.end("job/c")
		h.steps(2 * time.Second)
		h.expectQuota(bestBox, -1)
		h.run(batch("again/c"))
		h.expectQuota(bestBox, 0.5)
	})
}

// TestFloorOfEachPod checks that each batch pod can run for 10 ms at a time, however many share
// the floor, also in the failsafe's plan.
func TestFloorOfEachPod(t *testing.T) {
	onBothLoops(t, knobSetup{config: byQuota}, func(t *testing.T, h *loopNode) {
		const pods = 40
		h.run(service("web/c", 6000))
		for i := range pods {
			h.run(ask{name: fmt.Sprintf("low%d/c", i), qos: "burstable", milli: 100, annotations: map[string]string{"class.sluice.dev": "BE"}})
		}
		h.uses["web/c"] = 7.9
		h.steps(5 * time.Second)
		check := func(dir string, q knobs.CPUQuota) {
			t.Helper()
			if q.Quota < 10*time.Millisecond || q.Period > 500*time.Millisecond || q.Milli() > 25 {
				t.Errorf("%s has %v", dir, q)
			}
		}
		for i := range pods {
			dir := fmt.Sprintf("/kubepods/burstable/pod-low%d", i)
			v, err := h.spy.Read(dir, knobs.Quota)
			if err != nil {
				t.Fatal(err)
			}
			check(dir, v.(knobs.CPUQuota))
		}
		planned := 0
		for _, c := range h.life.plan {
			if q, ok := c.To.(knobs.CPUQuota); ok && c.Why == colocation.FloorWhy {
				planned++
				check("the failsafe's "+c.Object.Path, q)
			}
		}
		if planned < pods {
			t.Errorf("the failsafe's plan has %d quotas", planned)
		}
	})
}

// TestNeverStarted checks that a batch container that never starts does not hide what the others
// hold and use.
func TestNeverStarted(t *testing.T) {
	const rule = "control: {mode: preview, memory: {mode: on}, rules: [{name: cpu, metric: batch.cpu, watermark: 10, triggerAfter: 3, restoreAfter: 3, action: refuse, mode: on}]}\n"
	onBothLoops(t, knobSetup{config: rule}, func(t *testing.T, h *loopNode) {
		low := func(name string) ask {
			return ask{name: name, qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}}
		}
		h.run(service("web/c", 2000), low("job/c"))
		if err := h.create(low("ghost/c")); err != nil {
			t.Fatal(err)
		}
		h.uses["job/c"], h.holds["job/c"] = 2, 3<<30
		h.memory.Available = 1 << 30
		h.steps(10 * time.Second)
		if h.audit.has("rules", "trigger") == 0 || h.audit.has("memory", "hold") > 0 || h.V2 && h.audit.has("memory", "reclaim") == 0 {
			t.Errorf("decided: %+v", h.audit.all)
		}
	})
}

// TestRestartInSqueeze checks that after a restart the kernel's values stay until the loop has
// decided.
func TestRestartInSqueeze(t *testing.T) {
	onLoops(t, knobSetup{config: byQuota}, func(t *testing.T, h *loopNode) {
		low := ask{name: "low/c", qos: "burstable", milli: 2000, annotations: map[string]string{"class.sluice.dev": "BE"}}
		asks := []ask{service("web/c", 6000), batch("job/c"), granted("big/c"), low}
		h.run(asks...)
		h.uses["web/c"], h.uses["job/c"], h.uses["low/c"] = 4.2, 0.5, 0.5
		h.steps(3 * time.Second)
		dirs := []string{bestBox, bestBox + "/pod-big", bestBox + "/pod-big/c", "/kubepods/burstable/pod-low", "/kubepods/burstable/pod-low/c"}
		before := map[string]float64{}
		for _, dir := range dirs {
			before[dir] = h.quotaOf(dir)
		}
		h.restart(byQuota)
		same := func(when string) {
			t.Helper()
			for _, dir := range dirs {
				if got := h.quotaOf(dir); got != before[dir] {
					t.Errorf("%s: %s has %v CPUs, had %v", when, dir, got, before[dir])
				}
			}
		}
		same("after the restart")
		h.pass()
		same("after a pass")
		h.blind = true
		h.steps(100 * time.Millisecond)
		same("before anything was measured")
		h.blind = false
		h.steps(3 * time.Second)
		if got := h.quotaOf(bestBox); got > 1.1 {
			t.Errorf("the box has %v CPUs", got)
		}
		h.restart("control: {mode: preview}\n")
		h.pass()
		h.expectQuota(bestBox, -1)
		h.expectQuota("/kubepods/burstable/pod-low", 2)
		h.giveBack(func(h *knobNode) { h.run(asks...) })
	})
}

// TestJournalStaysSmall checks that the journal does not grow while the budget changes all the
// time.
func TestJournalStaysSmall(t *testing.T) {
	onV2Loop(t, byQuota, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 6000), batch("job/c"))
		for i := range 1000 {
			h.uses["web/c"] = 1 + float64(i%2)*3
			h.steps(100 * time.Millisecond)
			if i%2 == 1 {
				h.steps(2500 * time.Millisecond)
			}
		}
		data, err := os.ReadFile(h.o.Originals)
		if err != nil || len(data) > 150_000 {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	})
}
