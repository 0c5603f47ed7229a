package kube

import (
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/status"
)

// A container with a cut grant causes one event, also when its status comes again and again. One without a pod's name
// causes none.
func TestCutGrants(t *testing.T) {
	events := (&Client{node: "n1"}).Events(logrus.New())
	s := &status.Status{Containers: []status.Container{
		{ID: "1", PodUID: "u1", Ref: "etl/forged/main", GrantCut: "claims CPU 64, and the kubelet's record grants CPU 1"},
		{ID: "2", PodUID: "u2", Ref: "etl/honest/main"},
		{ID: "3", PodUID: "u3", Ref: "nonsense", GrantCut: "claims CPU 64"},
	}}
	var known cutGrants
	for range 3 {
		known = known.tell(s, events)
	}
	if len(events.queue) != 1 || len(known) != 1 {
		t.Fatalf("%d events are queued and %d containers are known, want 1 and 1", len(events.queue), len(known))
	}
	e := <-events.queue
	if e.InvolvedObject.Name != "forged" || e.InvolvedObject.Namespace != "etl" || e.InvolvedObject.UID != "u1" || e.Reason != "GrantCut" || e.Message != s.Containers[0].GrantCut {
		t.Errorf("the event is %+v", e)
	}
	s.Containers = s.Containers[1:]
	if known = known.tell(s, events); len(known) != 0 {
		t.Errorf("a container that is gone is still known: %v", known)
	}
}
