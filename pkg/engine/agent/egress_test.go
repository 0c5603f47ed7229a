package agent

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/egress"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// fakeShaper measures a link of 1 Gbit/s on which services send 300 Mbit/s, and pods that send nothing.
type fakeShaper struct {
	link    *egress.Link
	targets []egress.Target
	limits  map[string]observe.BitRate
	limited int // calls of Limit
}

func (f *fakeShaper) Follow(_ context.Context, link *egress.Link, targets []egress.Target) {
	f.link, f.targets = link, targets
}

func (f *fakeShaper) Limit(limits map[string]observe.BitRate) {
	f.limits, f.limited = limits, f.limited+1
}

func (f *fakeShaper) Latest() observe.Egress {
	if f.link == nil {
		return observe.Egress{}
	}
	now := observe.Egress{At: time.Now(), Speed: 1e9, Sent: 3e8, Pods: map[string]observe.PodEgress{}}
	for _, t := range f.targets {
		now.Pods[t.UID] = observe.PodEgress{At: now.At, Limit: f.limits[t.UID]}
	}
	return now
}

// TestEgress follows and limits what pods of batch work send: from the first step after their start, not in mode
// preview, and not at all once the mode is off.
func TestEgress(t *testing.T) {
	onLoops(t, knobSetup{config: "control: {mode: on, egress: {mode: on}}\n"}, func(t *testing.T, h *loopNode) {
		f := &fakeShaper{}
		h.agent.loop.Shaper = f
		h.run(service("web/c", 2000))
		h.steps(2 * time.Second)
		if f.link == nil || len(f.targets) != 0 || h.audit.has("egress", "limit") != 0 {
			t.Errorf("without batch work: link %v, targets %v, decided %d times", f.link, f.targets, h.audit.has("egress", "limit"))
		}
		h.run(granted("batch/c"))
		uid := h.agent.Order[1].Pod.UID
		h.steps(100 * time.Millisecond)
		if len(f.targets) != 1 || f.targets[0].UID != uid {
			t.Errorf("0.1 s after the start, targets %v", f.targets)
		}
		h.steps(time.Second)
		if f.limits[uid] < 545e6 || f.limits[uid] > 550e6 || h.audit.has("egress", "limit") != 1 {
			t.Errorf("limits %v; decided %d times", f.limits, h.audit.has("egress", "limit"))
		}
		for _, mode := range []string{"preview", "off"} {
			if err := h.reload("control: {mode: on, egress: {mode: " + mode + "}}\n"); err != nil {
				t.Fatal(err)
			}
			h.steps(2 * time.Second)
			if len(f.limits) != 0 && mode == "preview" || (len(f.targets) == 1) != (mode == "preview") || (f.link != nil) != (mode == "preview") {
				t.Errorf("in mode %s, limits %v, targets %v, link %v", mode, f.limits, f.targets, f.link)
			}
		}
	})
}
