package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

const allBatch = "defaults: {besteffort: BE}\n" + memoryOn

// limitPods sets the memory limit of all pods.
func (h *loopNode) limitPods(bytes knobs.Bytes) {
	h.t.Helper()
	if err := h.spy.Apply([]knobs.Change{{Object: knobs.Object{Path: "/kubepods"}, Knob: knobs.MemoryMax, To: bytes}}); err != nil {
		h.t.Fatal(err)
	}
}

// limitOn returns the memory limit of a cgroup, or -1 for none.
func (h *loopNode) limitOn(dir string) knobs.Bytes {
	h.t.Helper()
	v, err := h.spy.Read(dir, knobs.MemoryMax)
	if err != nil {
		h.t.Fatal(err)
	}
	return v.(knobs.Bytes)
}

// TestMemoryLimitStays checks that if BestEffort pods are batch work, the cgroup's limit is in
// force even while none runs, follows services, and holds for a pod that returns.
func TestMemoryLimitStays(t *testing.T) {
	onBothLoops(t, knobSetup{config: allBatch}, func(t *testing.T, h *loopNode) {
		h.limitPods(4 << 30)
		h.run(service("web/c", 2000))
		h.holds["web/c"] = 256 << 20
		h.steps(3 * time.Second)
		free := h.limit()
		if free < 2<<30 || free > 4<<30*65/100 {
			t.Fatalf("without a batch pod the limit is %v", free)
		}
		h.holds["web/c"] = 4 << 30 // half of it page cache
		h.steps(time.Minute)
		low := h.limit()
		if low > free/2 {
			t.Errorf("services hold all, and the limit is %v", low)
		}
		h.holds["web/c"] = 256 << 20
		h.steps(1100 * time.Millisecond)
		if got := h.limit(); got < free-450<<20 { // the headroom has grown
			t.Errorf("a second after services gave their memory back the limit is %v, it was %v", got, free)
		}
		h.run(batch("job/c"))
		h.hold("job/c", 512<<20)
		h.steps(2 * time.Second)
		h.end("job/c")
		h.steps(2 * time.Second)
		if got := h.limit(); got < 1<<30 || got > 3<<30 {
			t.Errorf("after the last batch pod the limit is %v", got)
		}
		if n := h.audit.has("memory", "limit"); n != 1 {
			t.Errorf("%d first limits were decided", n)
		}
	})
}

// TestFirstMemoryLimit checks that the first limit respects the limit of all pods, even if that is
// known a moment later than the machine's memory.
func TestFirstMemoryLimit(t *testing.T) {
	onV2Loop(t, memoryOn, func(t *testing.T, h *loopNode) {
		h.limitPods(2 << 30)
		h.run(service("web/c", 2000), batch("job/c"))
		s := h.snapshot()
		for i := range s.Containers {
			if s.Containers[i].ID == colocation.AllPodsTarget {
				s.Containers[i].Memory.At = time.Time{}
			}
		}
		h.agent.Tick(s)
		h.steps(2 * time.Second)
		for _, d := range h.audit.all {
			if d.Controller == "memory" && d.Action != "hold" && strings.Contains(d.To, "GiB") && d.To > "1.3 GiB" {
				t.Errorf("decided: %+v", d)
			}
		}
		if got := h.limit(); got > 2<<30*65/100 || got < 1<<30 {
			t.Errorf("limit %v", got)
		}
	})
}

// TestMemoryToStart checks that before its first instruction a batch container has a limit in
// which it can hold what it was granted, or else is refused.
func TestMemoryToStart(t *testing.T) {
	onBothLoops(t, knobSetup{config: allBatch}, func(t *testing.T, h *loopNode) {
		grants := func(mib int) map[string]string {
			amount := fmt.Sprintf(`{"kubernetes.io/batch-memory":"%dMi"}`, mib)
			return map[string]string{"node.koordinator.sh/extended-resource-spec": fmt.Sprintf(`{"containers":{"c":{"requests":%s,"limits":%s}}}`, amount, amount), "class.sluice.dev": "BE"}
		}
		h.limitPods(4 << 30)
		h.run(service("web/c", 2000))
		h.holds["web/c"] = 3 << 30 // half of it is page cache, so about 900 MiB are left
		h.steps(3 * time.Second)
		if err := h.create(ask{name: "large/c", qos: "besteffort", annotations: grants(2048)}); err == nil || !strings.Contains(err.Error(), "no batch container starts on this node now that needs 2.0 GiB of memory: batch work may hold") {
			t.Errorf("got %v, want a refusal", err)
		}
		if err := h.create(ask{name: "job/c", qos: "besteffort", annotations: grants(600)}); err != nil {
			t.Fatal(err)
		}
		h.holds["web/c"] = 4 << 30
		h.steps(500 * time.Millisecond)
		h.begin("job/c")
		if got := h.limit(); got < 600<<20 {
			t.Errorf("it starts within %v", got)
		}
		h.steps(20 * time.Second)
		if got := h.limit(); got < 600<<20 {
			t.Errorf("before it holds what it was granted the limit is %v", got)
		}
		if err := h.create(batch("another/c")); err == nil {
			t.Error("one more starts where nothing is left")
		}
		h.hold("job/c", 300<<20)
		h.steps(time.Minute)
		if got := h.limit(); got > 500<<20 {
			t.Errorf("a minute later the limit is %v", got)
		}
	})
}

// TestMemoryOfMixedBox checks that beside a pod that isn't batch work each batch pod has a limit
// of its own, with room for everything that the others don't hold, that the status names the other
// pod, and that all limits are restored.
func TestMemoryOfMixedBox(t *testing.T) {
	onBothLoops(t, knobSetup{config: allBatch}, func(t *testing.T, h *loopNode) {
		const a, b = bestBox + "/pod-a", bestBox + "/pod-b"
		asks := []ask{service("web/c", 2000), batch("a/c"), batch("b/c"), {name: "proxy/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS"}}}
		h.limitPods(4 << 30)
		h.run(asks[:3]...)
		h.steps(2 * time.Second)
		if h.limit() < 0 {
			t.Error("no limit on the box")
		}
		h.run(asks[3])
		if got := h.limit(); got >= 0 {
			t.Errorf("the proxy starts within %v", got)
		}
		h.holds["a/c"], h.holds["b/c"], h.holds["web/c"] = 1<<30, 512<<20, 256<<20
		h.steps(3 * time.Second)
		for dir, least := range map[string]knobs.Bytes{a: 3 << 29, b: 5 << 28} {
			if got := h.limitOn(dir); got < least || got > 4<<30*65/100 {
				t.Errorf("%s is limited to %v", dir, got)
			}
		}
		h.loop(func() {
			if got := h.agent.loop.BatchStatus(); len(got.MixedPods) != 1 || got.MixedPods[0] != "ns/proxy" {
				t.Errorf("mixers %v", got.MixedPods)
			}
		})
		h.holds["web/c"] = 3 << 30
		h.steps(time.Minute)
		for dir, held := range map[string]knobs.Bytes{a: 1 << 30, b: 512 << 20} {
			if got := h.limitOn(dir); got < held && h.V2 || got > held+900<<20 {
				t.Errorf("services hold more: %s is limited to %v", dir, got)
			}
		}
		h.end("proxy/c")
		h.steps(2 * time.Second)
		if h.limit() < 0 || h.limitOn(a) >= 0 || h.limitOn(b) >= 0 {
			t.Errorf("without the proxy the box has %v, the pods %v and %v", h.limit(), h.limitOn(a), h.limitOn(b))
		}
	})
}

// TestForbiddenKills checks that kills at a limit that was too low, and kills of services while
// batch work holds memory, are counted and reported, and kills at a limit that was right are not.
func TestForbiddenKills(t *testing.T) {
	ooms := map[string]int64{}
	s := knobSetup{config: allBatch, options: func(_ *knobNode, o *Options) {
		o.Memory.OOMs = func(cgroup string) (int64, error) { return ooms[cgroup], nil }
	}}
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		counted := func(what string, batch, services int) {
			t.Helper()
			st, err := h.agent.Status()
			if err != nil || st.Counters.BatchKills != batch || st.Counters.ServiceKills != services {
				t.Errorf("%s: %+v, %v", what, st.Counters, err)
			}
		}
		h.limitPods(4 << 30)
		h.run(service("web/c", 2000), batch("job/c"))
		h.hold("job/c", 1<<30)
		h.steps(3 * time.Second)
		ooms[bestBox]++
		h.steps(2 * time.Second)
		counted("at the goal", 0, 0)
		h.loop(func() { h.agent.loop.Memory.Inherit(bestBox, 1<<30) })
		ooms[bestBox]++
		h.steps(2 * time.Second)
		counted("far below the goal", 1, 0)
		ooms["/kubepods"]++
		h.steps(2 * time.Second)
		counted("no service was killed", 1, 0)
		ooms["/kubepods"]++
		h.end("web/c")
		h.steps(2 * time.Second)
		counted("a service was killed", 1, 1)
		if h.log.count("The kernel killed") != 2 {
			t.Error(h.log.text.String())
		}
	})
}
