package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
)

// A reload before the runtime has sent its containers gives back nothing of what they have.
func TestReloadBeforeSynchronize(t *testing.T) {
	onFlavours(t, knobSetup{config: everyKnob}, func(t *testing.T, h *knobNode) {
		h.run(everyPod()...)
		h.pass()
		with := h.state()
		h.stop()
		h.start(everyKnob)
		mustReload(t, h.agent, everyKnob+"driftInterval: 2s\n")
		if diff := differences(with, h.state()); diff != "" {
			t.Errorf("given back:\n%s", diff)
		}
		h.agent.Connected(nil, status.Runtime{}, "")
		h.synchronize()
		h.pass()
		if diff := differences(with, h.state()); diff != "" {
			t.Errorf("after Synchronize:\n%s", diff)
		}
	})
}

// A reload before the runtime has sent its containers replaces neither what the control loop has
// set nor the failsafe's plan.
func TestLoopReloadBeforeSynchronize(t *testing.T) {
	onBothLoops(t, knobSetup{config: byQuota}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 6000), batch("job/c"))
		h.uses["web/c"], h.uses["job/c"] = 4.2, 0.5
		h.steps(3 * time.Second)
		quota := h.quotaOf(bestBox)
		if quota < 0 {
			t.Fatal("batch work has no quota")
		}
		h.stop()
		h.start(byQuota)
		kept := h.life.kept
		mustReload(t, h.agent, byQuota+"driftInterval: 2s\n")
		h.expectQuota(bestBox, quota)
		if h.life.kept != kept {
			t.Error("the failsafe has another plan")
		}
		h.agent.Connected(nil, status.Runtime{}, "")
		h.synchronize()
		h.expectQuota(bestBox, quota)
	})
}

// While parts of the fleet's policy change, the status keeps the problem of the node's own file.
func TestPartsKeepTheFilesProblem(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		if _, err := reload(n.agent, "mode: of\n"); err == nil {
			t.Fatal("accepted")
		}
		synctest.Wait()
		before := n.status().Config
		parts := []status.ConfigPart{{Name: "night"}}
		if _, err := n.agent.Reconfigure(Reload{Config: config.Default(), Parts: parts}); err != nil {
			t.Fatal(err)
		}
		now := n.status().Config
		if before.Problem == "" || now.Problem != before.Problem || now.Reloads != before.Reloads || now.Hash != before.Hash || len(now.Parts) != 1 {
			t.Errorf("before %+v, now %+v", before, now)
		}
	})
}
