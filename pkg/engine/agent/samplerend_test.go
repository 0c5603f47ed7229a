package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
)

// closing is a sampler whose files are closed during a measurement.
type closing struct{ stop context.CancelFunc }

func (c closing) Sample(time.Time, []observe.Target, *observe.Snapshot) (time.Duration, error) {
	c.stop()
	return time.Second, errors.New("reading the pressure of the node: file already closed")
}

func (closing) Failures() []status.Failure { return nil }

// TestEndUnderALook checks that a measurement which the plugin's end interrupts is ignored.
// Otherwise the node's usage would count as unknown, and batch work would be squeezed to its floor
// and remain there.
func TestEndUnderALook(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		ctx, stop := context.WithCancel(t.Context())
		n.agent.options.Sampler = closing{stop}
		var s observe.Snapshot
		n.agent.sampleOnce(ctx, &s, []observe.Target{})
		if n.agent.ticks.seen != nil {
			t.Error("the loop has decided by what it saw")
		}
		if log := n.log.text.String(); strings.Contains(log, "already closed") {
			t.Errorf("the log complains: %s", log)
		}
	})
}
