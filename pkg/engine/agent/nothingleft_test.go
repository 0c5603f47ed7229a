package agent

import (
	"testing"
	"time"
)

// TestSharedParent: a cgroup that several pods are in is no pod's own.
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

// TestNothingLeft: when all pods are gone, so is all that was known of them.
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
			stuck = 100 // pods can't get their cpu.qos_level back
		}
		if left := a.Reconciler.Size(); left.Cgroups+left.Suspended > 0 || left.Leaving+left.Refusals+len(a.Journal.All()) > stuck {
			t.Errorf("left: %+v, book %v", left, a.Journal.All())
		}
	})
}
