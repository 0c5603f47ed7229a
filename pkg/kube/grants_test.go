package kube

import (
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/status"
)

// An event that was dropped because too many wait comes once there is room.
func TestCutGrantWaits(t *testing.T) {
	t.Parallel()
	log := logrus.New()
	log.SetOutput(t.Output())
	events := (&Client{node: "n1"}).Events(log)
	for range eventQueue {
		events.queue <- nil
	}
	cut := []status.CutGrant{{Container: "etl/forged/main", PodUID: "u1", Why: "w"}}
	known := cutGrants(nil).tell(cut, events)
	if len(known) != 0 {
		t.Fatalf("a dropped event counts as told: %v", known)
	}
	<-events.queue
	if known = known.tell(cut, events); len(known) != 1 || len(events.queue) != eventQueue {
		t.Errorf("with room, %d grants are known and %d events queued", len(known), len(events.queue))
	}
}

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
	cut[1].Container = "etl/forged/sidecar"
	if known = known.tell(cut, events); len(events.queue) != 1 || len(known) != 2 {
		t.Errorf("of a second container %d events are queued, and %d grants are known, want 1 and 2", len(events.queue), len(known))
	}
	if known = known.tell(nil, events); len(known) != 0 {
		t.Errorf("containers that are gone are still known: %v", known)
	}
}
