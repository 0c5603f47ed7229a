package controlloop

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

func TestStuckPods(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	container := func(uid string) *node.Container {
		return &node.Container{Ref: "ns/" + uid + "/main", PodRef: "ns/" + uid, Pod: &workload.Pod{UID: uid}}
	}
	no := errors.New("there is no room")
	be, lsr, ls := &workload.Request{Class: workload.BE}, &workload.Request{Class: workload.LSR}, &workload.Request{Class: workload.LS}
	lsr.Evict.Never = true
	var s stuckPods
	s.admitted(container("be"), be, no, began)
	s.admitted(container("be"), be, errors.New("there is still no room"), began.Add(20*time.Second))
	s.admitted(container("pin"), lsr, no, began.Add(time.Second))
	s.admitted(container("ls"), ls, no, began) // it fails on any node
	s.admitted(container("starts"), be, no, began)
	s.admitted(container("starts"), be, nil, began)

	got := s.list(began.Add(time.Minute))
	if len(got) != 2 || got[0].Ref != "ns/be" || got[1].Ref != "ns/pin" {
		t.Fatalf("stuck are %+v", got)
	}
	if p := got[0]; p.Since != began || p.Last != began.Add(20*time.Second) || p.Why != "there is still no room" || p.Pinned || p.Never {
		t.Errorf("%+v", p)
	}
	if p := got[1]; !p.Pinned || !p.Never {
		t.Errorf("%+v", p)
	}
	if got := s.list(began.Add(130 * time.Second)); len(got) != 1 || got[0].UID != "be" {
		t.Errorf("two minutes after its last refusal, stuck are %+v", got)
	}
	if got := s.list(began.Add(-time.Hour)); len(got) != 0 {
		t.Errorf("after the clock went back: %+v", got)
	}
	for i := range evictorder.MaxPods + 10 {
		s.admitted(container(fmt.Sprint(i)), be, no, began)
	}
	if n := len(s.of); n != evictorder.MaxPods {
		t.Errorf("%d pods are kept", n)
	}
}
