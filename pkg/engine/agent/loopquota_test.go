package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const bursts = "control: {mode: on, batch: {mode: off}}\n"

func bursting(name string, milli int) ask {
	a := service(name, milli)
	a.annotations["cpu-burst.sluice.dev"] = "auto"
	return a
}

// TestBurstOfTheLoop checks that the quota of a throttled container rises together with its pod's,
// falls again when the node is busy, and after a resize is the kubelet's.
func TestBurstOfTheLoop(t *testing.T) {
	onLoops(t, knobSetup{config: bursts}, func(t *testing.T, h *loopNode) {
		static := service("static/c", 1000)
		static.annotations["cpu-burst.sluice.dev"] = "auto"
		h.run(bursting("web/c", 1000), static)
		h.throttled["web/c"], h.throttled["static/c"] = true, true
		h.uses["web/c"] = 1
		h.steps(4 * time.Second)
		for _, pod := range []string{"/kubepods/pod-web", "/kubepods/pod-static"} {
			if got := h.quotaOf(pod + "/c"); got < 1.4 {
				t.Errorf("%s has %v CPUs", pod, got)
			}
			if h.quotaOf(pod) != h.quotaOf(pod+"/c") {
				t.Errorf("%s has %v CPUs, its container %v", pod, h.quotaOf(pod), h.quotaOf(pod+"/c"))
			}
		}
		// A resize at that moment causes no refused write, and the loop starts again from the new
		// quota.
		h.resize("web/c", 1000, 3000)
		h.expectQuota("/kubepods/pod-web", 3)
		h.expectQuota("/kubepods/pod-web/c", 3)
		h.steps(3 * time.Second)
		if got := h.quotaOf("/kubepods/pod-web/c"); got < 3.5 {
			t.Errorf("not raised again: %v CPUs", got)
		}
		h.resize("web/c", 3000, 1000)
		h.steps(3 * time.Second)
		if got := h.quotaOf("/kubepods/pod-web/c"); got < 1.15 || got > 1.5 {
			t.Errorf("not raised again from its limit: %v CPUs", got)
		}
		h.steps(10 * time.Second)
		h.system, h.throttled = 7, map[string]bool{}
		h.steps(2 * time.Minute)
		h.expectQuota("/kubepods/pod-web", 1)
		h.expectQuota("/kubepods/pod-web/c", 1)
		h.expectQuota("/kubepods/pod-static", 1)
		h.system, h.throttled["web/c"] = 0, true
		h.steps(10 * time.Second)
		h.restart(bursts)
		h.pass()
		h.expectQuota("/kubepods/pod-web/c", 1)
		h.steps(10 * time.Second)
		h.end("static/c")
		h.pass()
		h.giveBack(func(h *knobNode) {
			h.run(service("web/c", 1000), service("static/c", 1000))
			h.end("static/c")
		})
	})
}

// TestBurstDuringAResize checks that the loop waits for the kubelet, which shrinks the pod last,
// and for the runtime, and for at most 10 s if the resize never ends.
func TestBurstDuringAResize(t *testing.T) {
	onBothLoops(t, knobSetup{config: bursts}, func(t *testing.T, h *loopNode) {
		h.run(bursting("web/c", 2000))
		h.throttled["web/c"], h.uses["web/c"] = true, 1
		const pod, c = "/kubepods/pod-web", "/kubepods/pod-web/c"
		h.steps(time.Second)
		h.expectQuota(c, 2.4)
		for _, answers := range []bool{true, false} {
			h.announce("web/c", 2000) // a resize of something else, such as memory
			h.steps(3 * time.Second)
			h.expectQuota(c, 2)
			if answers {
				h.runc(h.specs["web/c"])
				h.written("web/c")
			} else {
				h.steps(6 * time.Second)
				h.expectQuota(c, 2)
			}
			h.steps(2 * time.Second)
			if got := h.quotaOf(c); got < 2.39 {
				t.Errorf("not raised after a resize, answered %v: %v CPUs", answers, got)
			}
		}
		h.announce("web/c", 1000)
		h.runc(h.specs["web/c"])
		h.written("web/c")
		h.steps(3 * time.Second)
		h.expectQuota(c, 1)
		h.expectQuota(pod, 2)
		h.kubelet(pod, 1000)
		if err := h.agent.UpdatePod(context.Background(), "sandbox-web", workload.Resources{Shares: 1024, Quota: 100000, Period: 100000}); err != nil {
			t.Fatal(err)
		}
		h.steps(time.Second)
		if got := h.quotaOf(c); got < 1.19 {
			t.Errorf("not raised after the resize: %v CPUs", got)
		}
	})
}

// written ends the runtime's update.
func (h *loopNode) written(name string) {
	h.t.Helper()
	if err := h.agent.PostUpdateContainer(name); err != nil {
		h.t.Errorf("post: %v", err)
	}
}

// TestBurstOfAPod checks that a container counts as throttled if its static burst makes the pod's
// quota run out before its own.
func TestBurstOfAPod(t *testing.T) {
	onBothLoops(t, knobSetup{config: bursts}, func(t *testing.T, h *loopNode) {
		h.run(bursting("web/c", 1000), service("other/c", 1000))
		for _, id := range []string{"web", "other"} {
			h.throttled[colocation.PodTarget+h.podOfName(id+"/c").UID] = true
		}
		h.steps(4 * time.Second)
		if got := h.quotaOf("/kubepods/pod-web/c"); got < 1.4 {
			t.Errorf("the container has %v CPUs", got)
		}
		h.expectQuota("/kubepods/pod-other/c", 1)
	})
}

// TestResizeToWhatTheLoopWrote checks a resize to a quota that happens to be the loop's.
func TestResizeToWhatTheLoopWrote(t *testing.T) {
	onBothLoops(t, knobSetup{config: bursts}, func(_ *testing.T, h *loopNode) {
		h.run(bursting("web/c", 1000))
		h.loop(func() {
			h.agent.podsettings.Want.Containers["web/c"] = loopOf(1.2)
			h.agent.podsettings.Enforce()
		})
		h.expectQuota("/kubepods/pod-web", 1.2)
		h.resize("web/c", 1000, 1200)
		h.expectQuota("/kubepods/pod-web", 1.2)
		h.expectQuota("/kubepods/pod-web/c", 1.2)
		h.pass()
		h.expectQuota("/kubepods/pod-web", 1.2)
	})
}

// TestLowestWish checks that the lowest of several wanted quotas is set.
func TestLowestWish(t *testing.T) {
	onBothLoops(t, knobSetup{config: bursts}, func(_ *testing.T, h *loopNode) {
		h.run(service("web/c", 1000))
		h.loop(func() {
			for _, cpus := range []float64{2, 0.5, 3} {
				h.agent.podsettings.Want.WantQuota("web/c", loopOf(cpus))
			}
			h.agent.podsettings.Want.WantQuota("gone", loopOf(1))
			h.agent.podsettings.Enforce()
		})
		h.expectQuota("/kubepods/pod-web/c", 0.5)
		h.expectQuota("/kubepods/pod-web", 1)
	})
}

// TestRefusedQuotaOfTheLoop checks that a refused quota is tried again by the next pass and logged
// once, and that a container's end between decision and write is no error.
func TestRefusedQuotaOfTheLoop(t *testing.T) {
	onBothLoops(t, knobSetup{config: bursts}, func(t *testing.T, h *loopNode) {
		h.run(bursting("web/c", 1000), bursting("dying/c", 1000))
		h.throttled["web/c"], h.throttled["dying/c"] = true, true
		h.spy.refusing(func(c knobs.Change) error {
			if c.Knob == knobs.Quota && c.Object.Path == "/kubepods/pod-web/c" {
				return errors.New("device or resource busy")
			}
			return nil
		})
		h.Rmdir("/kubepods/pod-dying/c")
		h.steps(1100 * time.Millisecond)
		h.expectQuota("/kubepods/pod-web/c", 1)
		h.spy.refusing(nil)
		h.throttled = map[string]bool{}
		h.sleep(3 * time.Second)
		if got := h.quotaOf("/kubepods/pod-web/c"); got < 1.1 {
			t.Errorf("not tried again: %v CPUs", got)
		}
		h.end("web/c")
		h.pass()
	})
}

// TestLoopBesideANeighbour checks that nothing is written while another agent keeps the loop in
// preview, and that the kernel follows the loop again afterwards.
func TestLoopBesideANeighbour(t *testing.T) {
	dir := hostDir(t, nil)
	s := knobSetup{config: "control: {mode: on, batch: {by: quota, thresholdPercent: 65}}\n"}
	s.options = func(_ *knobNode, o *Options) { o.Host = dirFS(dir) }
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		asks := []ask{bursting("web/c", 1000), batch("job/c")}
		h.run(asks...)
		h.throttled["web/c"] = true
		h.uses["web/c"], h.system = 1, 2
		h.steps(3 * time.Second)
		meet(t, dir, other)
		h.sleep(31 * time.Second)
		before := h.Writes()
		h.throttled = map[string]bool{}
		h.system = 4
		h.steps(5 * time.Second)
		h.pass()
		if h.Writes() != before || h.audit.by["preview"] == 0 {
			t.Errorf("%d writes in preview; %v", h.Writes()-before, h.audit.by)
		}
		leave(t, dir, other)
		h.sleep(31 * time.Second)
		h.steps(2 * time.Minute)
		h.expectQuota("/kubepods/pod-web/c", 1)
		h.expectQuota(bestBox, 0.2)
		h.giveBack(func(h *knobNode) { h.run(asks...) })
	})
}
