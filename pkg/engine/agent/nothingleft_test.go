package agent

import (
	"testing"
	"time"
)

// TestSharedParent checks that a cgroup with several pods in it is not taken for a pod's own.
func TestSharedParent(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(burstPod())
		h.run(ask{name: "other/b", milli: 1000})
		h.end("other/b")
		h.pods["other"].CgroupParent = "/kubepods/pod-web"
		h.run(ask{name: "other/b", milli: 1000})
		if got := h.get("/kubepods/pod-web", burstFile...); got != "0" {
			t.Errorf("burst %s of a cgroup with two pods", got)
		}
		h.pass()
		if got := h.get("/kubepods/pod-web/a", burstFile...); got != "50000" {
			t.Errorf("burst %s of the container", got)
		}
	})
}

// TestNothingLeft checks that the agent keeps nothing of pods that are gone.
func TestNothingLeft(t *testing.T) {
	onFlavours(t, knobSetup{config: everyKnob}, func(t *testing.T, h *knobNode) {
		h.run(everyPod()...)
		h.announce("burst/a", 1500)
		h.restart(everyKnob)
		for _, a := range everyPod() {
			h.end(a.name)
		}
		h.sleep(5 * time.Second)
		h.nothingLeft(t)
	})
}

func (h *knobNode) nothingLeft(t testingT) {
	t.Helper()
	h.loop(func() {
		a := h.agent
		stuck := 0
		if h.NoWayBack {
			stuck = 100 // a pod's cpu.qos_level can't be restored on openEuler 5.10
		}
		if left := a.Reconciler.Size(); left.Cgroups+left.Suspended > 0 || left.Leaving+left.Refusals+len(a.Journal.All()) > stuck {
			t.Errorf("left: %+v, book %v", left, a.Journal.All())
		}
	})
}
