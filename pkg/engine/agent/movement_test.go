package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// TestOneDecisionForAMovement checks that an oscillating load is reported once per direction of
// the budget in the log, the audit trail, the status and the counts, from its first step on.
func TestOneDecisionForAMovement(t *testing.T) {
	onBothLoops(t, knobSetup{config: "control: {mode: on, memory: {mode: off}}\n"}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 4000), batch("job/c"))
		h.uses["job/c"] = 1
		h.steps(15 * time.Second)
		loop := func() (s status.Loop) {
			h.loop(func() { s.Decisions, s.Counts = h.agent.decisions.Recent(), h.agent.decisions.Counts() })
			return s
		}
		before, logged := h.audit.has("batch", ""), strings.Count(h.log.text.String(), "controller=batch")
		counted := func() (n int) {
			for _, c := range loop().Counts {
				if c.Controller == "batch" {
					n += c.Count
				}
			}
			return n
		}
		begun := counted()
		const swings = 3
		for range swings {
			h.uses["web/c"] = 0.1
			for i := range 40 { // rises for 4 s, in 40 steps
				h.uses["web/c"] += 0.1
				h.steps(100 * time.Millisecond)
				if i == 35 {
					all := loop().Decisions
					if d := all[len(all)-1]; d.Action != "squeeze" || !d.Ongoing || d.Steps < 2 {
						t.Errorf("a movement under way is told as %+v", d)
					}
				}
			}
			h.uses["web/c"] = 0.1
			h.steps(15 * time.Second)
		}
		told := 0
		for _, d := range loop().Decisions {
			if d.Controller == "batch" && d.Ongoing {
				t.Errorf("it rests, and is told as going: %+v", d)
			}
			if d.Controller == "batch" && d.Steps > 1 {
				told++
			}
		}
		if told < 2*swings || counted()-begun != 2*swings {
			t.Errorf("%d movements in the status, %d counted, want %d", told, counted()-begun, 2*swings)
		}
		if n := h.audit.has("batch", "") - before; n != 4*swings {
			t.Errorf("%d lines in the trail, want the first and the last of %d movements", n, 2*swings)
		}
		if n := strings.Count(h.log.text.String(), "controller=batch") - logged; n != 4*swings {
			t.Errorf("%d lines in the log", n)
		}
	})
}

// TestMemoryLimitWalks checks that a limit which falls step by step is reported twice: at its
// first step, and as a whole.
func TestMemoryLimitWalks(t *testing.T) {
	onBothLoops(t, knobSetup{config: "control: {mode: on, batch: {mode: off}}\n"}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 1000), batch("job/c"))
		h.holds["job/c"] = 256 << 20
		h.steps(5 * time.Second)
		for range 10 {
			h.memory.Available -= 300 << 20
			h.steps(time.Second)
		}
		h.steps(15 * time.Second)
		if n := h.audit.has("memory", "lower"); n != 2 {
			t.Errorf("%d lines in the trail", n)
		}
		if d := h.audit.last("memory", "lower"); d.Steps < 5 || d.Ongoing || d.From == d.To {
			t.Errorf("%+v", d)
		}
	})
}

// last returns a controller's last decision with that action.
func (r *trail) last(controller, action string) (last control.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.all {
		if d.Controller == controller && d.Action == action {
			last = d
		}
	}
	return last
}
