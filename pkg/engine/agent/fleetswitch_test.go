package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/status"
)

// The fleet's switch stops batch work, whatever the node's own says, until its end by the node's
// clock.
func TestFleetSwitch(t *testing.T) {
	t.Parallel()
	n, now := looping(t, func(*config.Config) {})
	fleet := status.Switch{}
	n.loop(func() {
		n.agent.options.FleetSwitch = func() status.Switch { return fleet }
		n.agent.loop.Options = n.agent.loopOptions()
	})
	step := func(s status.Switch) (status.Batch, string) {
		t.Helper()
		*now = now.Add(time.Second)
		n.loop(func() { fleet = s })
		n.agent.Tick(seen(*now))
		l := statusOf(t, n).Loop
		if l.Batch.FleetSwitch == nil || *l.Batch.FleetSwitch != s {
			t.Errorf("the status has %+v, want %+v", l.Batch.FleetSwitch, s)
		}
		if l.Refusal == nil {
			return l.Batch, ""
		}
		return l.Batch, l.Refusal.Why
	}
	if b, why := step(status.Switch{}); b.State != status.BatchOpen || why != "" {
		t.Errorf("auto: %+v, %s", b, why)
	}
	ends := now.Add(3 * time.Second)
	if err := batchswitch.Write(n.agent.options.StateDir, batchswitch.Setting{To: control.SwitchOn}); err != nil {
		t.Fatal(err)
	}
	b, why := step(status.Switch{State: control.SwitchOff, EndsAt: ends})
	if b.State != status.BatchClosed || !b.NextChangeAt.Equal(ends) || !strings.Contains(b.Why, "by the fleet's switch") || !strings.Contains(why, "the ConfigMap sluice-switch ends it") {
		t.Errorf("the fleet is off: %+v, %s", b, why)
	}
	step(*b.FleetSwitch)
	if b, why = step(*b.FleetSwitch); b.State != status.BatchOpen || why != "" {
		t.Errorf("after the end: %+v, %s", b, why)
	}
	if err := batchswitch.Write(n.agent.options.StateDir, batchswitch.Setting{To: control.SwitchOff}); err != nil {
		t.Fatal(err)
	}
	if b, why = step(status.Switch{State: control.SwitchOn}); b.State != status.BatchClosed || !strings.Contains(why, "sluice batch on ends it") {
		t.Errorf("the node is off and the fleet is on: %+v, %s", b, why)
	}
}
