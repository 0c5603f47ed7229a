package kube

import (
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/status"
)

// A cut grant causes one event, also when its status comes again and again. One without a pod's name causes none.
func TestCutGrants(t *testing.T) {
	events := (&Client{node: "n1"}).Events(logrus.New())
	cut := []status.CutGrant{
		{Container: "etl/forged/main", PodUID: "u1", Why: "claims CPU 64, and the kubelet's record grants CPU 1"},
		{Container: "nonsense", PodUID: "u2", Why: "claims CPU 64"},
	}
	var known cutGrants
	for range 3 {
		known = known.tell(cut, events)
	}
	if len(events.queue) != 1 || len(known) != 1 {
		t.Fatalf("%d events are queued and %d grants are known, want 1 and 1", len(events.queue), len(known))
	}
	e := <-events.queue
	if e.InvolvedObject.Name != "forged" || e.InvolvedObject.Namespace != "etl" || e.InvolvedObject.UID != "u1" || e.Reason != "GrantCut" || e.Message != cut[0].Why {
		t.Errorf("the event is %+v", e)
	}
	if known = known.tell(cut[1:], events); len(known) != 0 {
		t.Errorf("a container that is gone is still known: %v", known)
	}
}
