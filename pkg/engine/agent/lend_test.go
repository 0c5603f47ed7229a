package agent

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

const lending = "control: {mode: on, batch: {by: quota, lendLSR: true}}\n"

// TestLendLSR checks that only batch work runs on the CPUs of an idle LSR pin, never on those of
// an LSE pin, that it leaves them with the first measurement that shows the pin running, and that
// the pin has its CPUs for itself once the plugin is gone.
func TestLendLSR(t *testing.T) {
	onBothLoops(t, knobSetup{config: lending}, func(t *testing.T, h *loopNode) {
		pin := func(name, class string) ask {
			return ask{name: name, milli: 2000, memory: 64, annotations: map[string]string{"class.sluice.dev": class, "smt.sluice.dev": "any"}}
		}
		h.run(pin("lse/c", "LSE"), pin("lsr/c", "LSR"), service("web/c", 1000), batch("job/c"))
		own, others := h.set("lsr/c"), h.set("job/c")
		want := func(what string, cpus cpuset.Set) {
			t.Helper()
			if got := h.set("job/c"); got != cpus {
				t.Errorf("%s: batch work is on %s, want %s", what, got, cpus)
			}
			if h.set("web/c") != others || h.set("lsr/c") != own || h.set("lse/c").Overlaps(h.set("job/c")) {
				t.Errorf("%s: web on %s, LSR on %s, LSE on %s", what, h.set("web/c"), h.set("lsr/c"), h.set("lse/c"))
			}
		}
		h.uses["job/c"], h.uses["web/c"] = 4, 0.5
		h.steps(5 * time.Second)
		want("at first", others)
		h.steps(6 * time.Second)
		lent := cpuset.Union(others, own)
		want("idle", lent)
		h.steps(3 * time.Second)
		h.expectQuota(bestBox, 5.5) // what the service leaves of 6 CPUs
		h.pass()
		want("after a pass", lent)

		h.uses["lsr/c"] = 0.5
		h.steps(100 * time.Millisecond)
		want("the pin runs", others)
		h.uses["lsr/c"] = 0
		h.steps(15 * time.Second)
		want("it waits twice as long", others)
		h.steps(6 * time.Second)
		want("idle again", lent)

		// A pin without measurements does not count as idle.
		h.blind = true
		h.steps(time.Second)
		want("nothing is measured", others)
		h.blind = false
		h.steps(21 * time.Second)
		want("seen again", lent)

		h.life.act(h)
		if h.set("job/c").Overlaps(own) {
			t.Errorf("the failsafe leaves batch work on %s, of which %s are the pin's", h.set("job/c"), own)
		}
		h.steps(time.Second)
		want("back from the failsafe", lent)
		h.restart(lending)
		want("after a restart", others)
		h.steps(12 * time.Second)
		want("idle after it", lent)

		// A service takes the pin's CPUs.
		h.end("lsr/c")
		if h.set("web/c") != h.set("job/c") {
			t.Errorf("web on %s, job on %s", h.set("web/c"), h.set("job/c"))
		}
		if s, _ := h.agent.Status(); s.Counters.Drift > 0 {
			t.Errorf("%d drifts:\n%s", s.Counters.Drift, h.log.text.String())
		}
	})
}

// TestLendsOnlyWhatYields checks that nothing is lent by default, nor while the kernel doesn't
// preempt batch work at once.
func TestLendsOnlyWhatYields(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		asks   []ask
	}{
		"as shipped":          {"control: {mode: on}\n", []ask{batch("job/c")}},
		"in preview":          {"control: {mode: preview, batch: {lendLSR: true}}\n", []ask{batch("job/c")}},
		"a Burstable one":     {lending, []ask{{name: "job/c", qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}}}},
		"LS weight unchanged": {"control: {mode: on, batch: {onlineWeight: 100, lendLSR: true}}\n", []ask{service("web/c", 1000), batch("job/c")}},
	} {
		t.Run(name, func(t *testing.T) {
			onBothLoops(t, knobSetup{config: test.config}, func(t *testing.T, h *loopNode) {
				h.run(append(test.asks, ask{name: "lsr/c", milli: 2000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}})...)
				h.steps(30 * time.Second)
				if h.set("job/c").Overlaps(h.set("lsr/c")) {
					t.Errorf("job is on %s, the pin on %s", h.set("job/c"), h.set("lsr/c"))
				}
			})
		})
	}
}
