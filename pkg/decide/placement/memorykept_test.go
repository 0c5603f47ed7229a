package placement

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// local requests memory from the NUMA nodes of its CPUs.
func local(class workload.Class, cpus int) workload.Request {
	return workload.Request{Class: class, CPUs: cpus, MemoryNodes: workload.MemoryNodes{Policy: workload.MemoryLocal}}
}

// A running container loses no memory node: not when its pool moves, nor when a pin is resized,
// found at the start, mended, or reconfigured. The nodes of a container that has not started
// follow its CPUs.
func TestRunningMemoryIsNotNarrowed(t *testing.T) {
	t.Parallel()
	m, err := synth.Machine("2 nodes 4 cores memory 8G")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Mode: Exclusive, Follow: true, Pools: []Pool{{Name: "online"}, {Name: "batch"}}}
	now := time.Unix(0, 0)
	both := cpuset.Range(0, 1)
	mems := func(l *Ledger, id string) cpuset.Set {
		a, ok := l.Assignment(id)
		if !ok {
			t.Fatalf("%s is not there", id)
		}
		if a.Mems.IsEmpty() {
			return both
		}
		return a.Mems
	}
	l := New(config, m)
	l.SetSizes([]int{2, 6})
	for _, id := range []string{"runs", "waits"} {
		if _, err := l.Place(Identity{ID: id}, local(workload.LS, 0), cpuset.Set{}, now); err != nil {
			t.Fatal(err)
		}
	}
	l.Hold("runs", now)
	small := mems(l, "runs")
	if small.Size() != 1 || mems(l, "waits") != small {
		t.Fatalf("on two CPUs of one node memory is of %s and %s", small, mems(l, "waits"))
	}
	for range 5 {
		l.SetSizes([]int{6, 2})
		if mems(l, "runs") != both || mems(l, "waits") != both {
			t.Errorf("the pool grew: memory of %s and %s", mems(l, "runs"), mems(l, "waits"))
		}
		l.SetSizes([]int{2, 6})
		if mems(l, "runs") != both || mems(l, "waits") != small {
			t.Errorf("the pool shrank: memory of %s and %s", mems(l, "runs"), mems(l, "waits"))
		}
	}

	found := New(config, m)
	found.DivideOnce(func() {
		found.Adopt(Identity{ID: "pin"}, local(workload.LSR, 2), cpuset.Range(0, 1), cpuset.Set{}, now)
		if _, err := found.Place(Identity{ID: "late"}, local(workload.LSR, 2), cpuset.Set{}, now); err != nil {
			t.Error(err)
		}
		for _, id := range []string{"pin", "late"} {
			found.Hold(id, now)
			found.KeepMemory(id, cpuset.Set{})
		}
	})
	for _, id := range []string{"pin", "late"} {
		if got := mems(found, id); got != both {
			t.Errorf("%s ran with memory of all nodes, and has %s", id, got)
		}
	}
	found.Release("late")
	if _, err := found.Resize("pin", local(workload.LSR, 1), cpuset.Set{}); err != nil || mems(found, "pin") != both {
		t.Errorf("after a resize memory of %s, %v", mems(found, "pin"), err)
	}

	found.PlaceShared(Identity{ID: "shares"}, local(workload.LSR, 2), "no room", now)
	found.Hold("shares", now)
	if !found.Mend("shares", cpuset.Set{}) || mems(found, "shares") != both {
		t.Errorf("a running pin that gets CPUs has memory of %s", mems(found, "shares"))
	}
	plain := New(config, m)
	if _, err := plain.Place(Identity{ID: "db"}, workload.Request{Class: workload.LS}, cpuset.Set{}, now); err != nil {
		t.Fatal(err)
	}
	plain.Hold("db", now)
	pinned, err := plain.Reconfigured(config, map[string]RevisedRequest{"db": {Request: workload.Request{Class: workload.LSR, CPUs: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	if a, _ := pinned.Assignment("db"); a.CPUs.Size() != 2 || mems(pinned, "db") != both {
		t.Errorf("by another configuration: %+v", a)
	}
}
