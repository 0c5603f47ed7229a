package agent

import "testing"

// TestShrinkIsNoDrift checks the weight of a shrinking pod, which the kubelet writes after the
// last event of the resize that Sluice receives.
func TestShrinkIsNoDrift(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(ask{name: "low/a", qos: "burstable", milli: 900, annotations: map[string]string{"class.sluice.dev": "BE"}})
		before := h.state()
		for milli := 900; milli > 100; milli -= 100 {
			h.resize("low/a", milli, milli-100)
			h.pass()
		}
		h.resize("low/a", 100, 900)
		h.pass()
		if changed := differences(before, h.state()); changed != "" {
			t.Errorf("the resizes left changed:\n%s", changed)
		}
		h.calm(t)
	})
}
