package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestStatusTellsWhoMayStart: the status says that new batch work is refused exactly where
// it is, with the same reason.
func TestStatusTellsWhoMayStart(t *testing.T) {
	for name, c := range map[string]struct {
		set func(a *Agent)
		why string // "": it may start
	}{
		"open":         {func(*Agent) {}, ""},
		"switched off": {func(a *Agent) { a.loop.switched = control.Switch{To: control.SwitchOff} }, "batch is switched off"},
		"switched off until earlier": {func(a *Agent) {
			a.loop.switched = control.Switch{To: control.SwitchOff, Until: a.Now().Add(-time.Second)}
		}, ""},
		"closed": {func(a *Agent) { a.loop.view.Batch = control.BatchState{Closed: true, Why: "the window"} }, "the window"},
		"closed in preview": {func(a *Agent) {
			a.Config.Control.Mode = control.Preview
			a.loop.view.Batch = control.BatchState{Closed: true, Why: "the window"}
		}, ""},
		"a rule": {func(a *Agent) { a.loop.ruleRefuses = "rule disk" }, "rule disk"},
		"after an eviction": {func(a *Agent) {
			a.Config.Control.Eviction.RefuseNew = true
			a.loop.refusal = control.Refusal{Until: a.Now().Add(time.Minute), Why: "memory is short"}
		}, "memory is short"},
		"long after an eviction": {func(a *Agent) {
			a.Config.Control.Eviction.RefuseNew = true
			a.loop.refusal = control.Refusal{Until: a.Now(), Why: "memory is short"}
		}, ""},
		"after an eviction, not refusing": {func(a *Agent) {
			a.Config.Control.Eviction.RefuseNew = false
			a.loop.refusal = control.Refusal{Until: a.Now().Add(time.Minute), Why: "memory is short"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, setup{config: func(c *config.Config) { c.Control.Mode = control.On }}, func(t *testing.T, n *testNode) {
				n.agent.do("test", func() error {
					c.set(n.agent)
					err := n.agent.mayStart(&node.Container{Pod: &workload.Pod{UID: "new"}}, &workload.Request{Class: workload.BE})
					s := n.agent.refusalStatus()
					if (err != nil) != (c.why != "") || (s != nil && s.NewBatch) != (c.why != "") {
						t.Errorf("it may start: %v; the status: %+v", err, s)
					} else if err != nil && (!strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), s.Why)) {
						t.Errorf("it may start: %v; the status: %s", err, s.Why)
					}
					if err := n.agent.mayStart(&node.Container{Pod: &workload.Pod{UID: "new"}}, &workload.Request{Class: workload.LS}); err != nil {
						t.Errorf("a service: %v", err)
					}
					return nil
				})
			})
		})
	}
}
