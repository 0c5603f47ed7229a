package agent

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
)

// TestClassIOWeights checks that the cgroup of a QoS class has a lower I/O weight only while all its
// pods are batch work: a service finds the usual weight at its first instruction, also one that starts
// while the plugin is gone.
func TestClassIOWeights(t *testing.T) {
	const text, burstable = "control: {mode: on, batch: {by: quota}}\nclasses: {BE: {io: {weight: 10}}}\n", "/kubepods/burstable"
	onV2Loop(t, text, func(t *testing.T, h *loopNode) {
		expect := func(when, want string) {
			t.Helper()
			if got := h.get(burstable, "io.weight"); got != want {
				t.Errorf("%s: the class has the I/O weight %q, want %q", when, got, want)
			}
		}
		low := ask{name: "low/c", qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}}
		web := ask{name: "web/c", qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "LS"}}
		h.run(low)
		expect("batch work alone", "default 10")
		if err := h.create(web); err != nil {
			t.Fatal(err)
		}
		expect("a service before its start", "default 100")
		h.begin("web/c")
		h.end("web/c")
		expect("the service has ended", "default 10")

		h.steps(2 * time.Second)
		h.sleep(failsafe.Silence)
		h.life.act(h)
		expect("the plugin is gone", "default 100")
		h.steps(5 * time.Second)
		h.pass()
		expect("the plugin is back", "default 10")
		h.calm(t)
		h.giveBack(func(h *knobNode) { h.run(low) })
	})
}
