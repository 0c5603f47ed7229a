package agent

import (
	"testing"
	"time"
)

// tiered is a batch pod of a tier, without a grant.
func tiered(name, tier string) ask {
	a := batch(name)
	a.annotations["tier.sluice.dev"] = tier
	return a
}

// TestPartsOfTiers checks that the quotas by which batch pods of several tiers share outlast a restart,
// that the failsafe leaves none of them behind, and that all are given back.
func TestPartsOfTiers(t *testing.T) {
	const text = byQuota + "authorize: [{features: [tier], namespaces: [\"*\"]}]\n"
	pods := []string{bestBox + "/pod-free", bestBox + "/pod-job", bestBox + "/pod-mid"}
	onLoops(t, knobSetup{config: text}, func(t *testing.T, h *loopNode) {
		asks := []ask{service("web/c", 4000), tiered("free/c", "free"), batch("job/c"), tiered("mid/c", "mid"), granted("big/c")}
		h.run(asks...)
		var idle bool
		h.loop(func() { idle = h.agent.podsettings.QoS.IdleClass() })
		parts := func(when string, want ...float64) {
			t.Helper()
			for i, pod := range pods {
				if got := h.quotaOf(pod); got < want[i]-0.02 || got > want[i]+0.02 {
					t.Errorf("%s: %s has %v CPUs, want %v", when, pod, got, want[i])
				}
			}
		}
		h.uses["web/c"] = 1
		for _, job := range []string{"free/c", "job/c", "mid/c"} {
			h.uses[job] = 2
		}
		h.steps(4 * time.Second)
		has := []float64{-1, -1, -1} // the kernel knows weights
		if idle {
			has = []float64{0.17, 1.69, -1} // of 4.2 CPUs; mid is due more than it can use
		}
		parts("at first", has...)
		before := len(h.spy.refused)
		h.life.act(h)
		parts("after the failsafe", -1, -1, -1)
		h.sleep(5 * time.Second)
		h.steps(5 * time.Second)
		parts("when the loop is back", has...)
		h.blind = true
		writes := h.Writes()
		h.restart(text)
		h.pass()
		parts("after a restart", has...)
		if h.Writes() != writes {
			t.Errorf("%d writes of a restart", h.Writes()-writes)
		}
		h.blind = false
		h.steps(5 * time.Second)
		parts("some steps later", has...)
		if refused := h.spy.refused[before:]; len(refused) > 0 {
			t.Errorf("refused: %v", refused)
		}
		h.giveBack(func(h *knobNode) { h.run(asks...) })
	})
}
