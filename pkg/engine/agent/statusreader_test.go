package agent

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/nodestatus"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// reader reads the status repeatedly.
type reader struct {
	last *status.Status
	text string // text of last
}

// read checks that a status equals one that is computed without the previous ones, and that the
// previous status has not changed.
func (r *reader) read(t testingT, a *Agent) {
	t.Helper()
	if again := textOf(t, r.last); again != r.text {
		t.Fatalf("a status has changed after it was handed out:\n%s\nit was\n%s", again, r.text)
	}
	var now, anew *nodestatus.Draft
	a.events.Query("test", func() error {
		now = a.reporter.Draft()
		anew = nodestatus.New(a.Node, a.sources()).Draft()
		return nil
	})
	r.last = now.Status()
	r.text = textOf(t, r.last)
	if want := textOf(t, anew.Status()); r.text != want {
		t.Fatalf("the status is\n%s\nand made anew\n%s", r.text, want)
	}
}

func textOf(t testingT, s *status.Status) string {
	t.Helper()
	if s == nil {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The status shows what the kernel refuses and who contests a setting, for as long as it lasts.
func TestStatusOfTrouble(t *testing.T) {
	onFlavour(t, fakekernel.MainlineV2(), knobSetup{}, func(t *testing.T, h *knobNode) {
		var seen reader
		expect := func(problem, contested bool) {
			t.Helper()
			seen.read(t, h.agent)
			if k := h.container("web/a").Settings[0]; (k.Problem != "") != problem || k.Contested != contested {
				t.Errorf("%+v", k)
			}
		}
		spoil := func() { h.put("/kubepods/pod-web/a", h.burst(), "1000") }
		h.run(burstPod())
		expect(false, false)
		h.spy.refusing(func(knobs.Change) error { return errors.New("device or resource busy") })
		spoil()
		h.pass()
		expect(true, false)
		h.spy.refusing(nil)
		h.sleep(time.Minute)
		expect(false, false)
		for range reconcile.RepairsAtOnce {
			spoil()
			h.pass()
		}
		expect(false, true)
		h.sleep(time.Minute)
		expect(false, false)
	})
}
