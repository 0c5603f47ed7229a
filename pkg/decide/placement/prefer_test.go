package placement

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func pinned(class workload.Class, n int) workload.Request {
	return workload.Request{Class: class, CPUs: n, Milli: workload.MilliCPU(n) * 1000}
}

func mustPlace(t *testing.T, l *Ledger, name string, r workload.Request) Assignment {
	t.Helper()
	as, err := l.Place(who(name), r, cpuset.Set{}, start)
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// TestStaleByReplacement checks that a container that never started gives up its CPUs to the next
// one of its name, which is not in the ledger yet.
func TestStaleByReplacement(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, flat))
	mustPlace(t, l, "a", pinned(workload.LSR, 2))
	next := who("a")
	next.ID = "a-again"
	other := who("b")
	for _, tt := range []struct {
		next Identity
		want int
	}{{next, 1}, {other, 0}, {who("a"), 0}} {
		if got := l.Stale(tt.next, start, time.Minute); len(got) != tt.want {
			t.Errorf("to place %s: stale %v, want %d", tt.next.ID, got, tt.want)
		}
	}
	l.Hold("a", start)
	if got := l.Stale(next, start, time.Minute); len(got) != 0 {
		t.Errorf("started: stale %v", got)
	}
}

// TestPinsGoWhereTheirMemoryIs checks that a pin whose memory is bound to a node gets its CPUs
// from that node.
func TestPinsGoWhereTheirMemoryIs(t *testing.T) {
	t.Parallel()
	m := machine(t, small)
	l := New(Default(), m)
	r := pinned(workload.LSR, 2)
	r.MemoryNodes = workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: cpuset.Of(3)}
	if as := mustPlace(t, l, "a", r); !as.CPUs.SubsetOf(m.Nodes[3].CPUs) {
		t.Errorf("CPUs %s, want some of node 3's %s", as.CPUs, m.Nodes[3].CPUs)
	}
}

// TestSizedPoolsKeepTheirCPUs checks that pools with a size, including the batch pool in exclusive
// mode, keep their CPUs when pins fit into a pool without a size.
func TestSizedPoolsKeepTheirCPUs(t *testing.T) {
	t.Parallel()
	pools := []Pool{{Name: "critical", Size: Size{Count: 2}}, {Name: "online"}, {Name: "batch", Size: Size{Count: 2}}}
	l := New(Config{Mode: Exclusive, Pools: pools}, machine(t, flat))
	before := l.Pools()
	mustPlace(t, l, "a", pinned(workload.LSR, 2))
	for i, after := range l.Pools() {
		if i != 1 && after != before[i] {
			t.Errorf("pool %s moved from %s to %s", after.Name, before[i].CPUs, after.CPUs)
		}
	}
}

// TestBatchOverlapsThePoolsWithoutSize checks that a batch pool with a size avoids the CPUs of
// online pools with a size while there is room elsewhere.
func TestBatchOverlapsThePoolsWithoutSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		batch int
		apart bool
	}{{4, true}, {6, false}} {
		pools := []Pool{{Name: "critical", Size: Size{Count: 4}}, {Name: "online"}, {Name: "batch", Size: Size{Count: tt.batch}}}
		l := New(Config{Pools: pools}, machine(t, flat))
		p := l.Pools()
		if p[2].CPUs.Size() != tt.batch || p[2].CPUs.Overlaps(p[0].CPUs) == tt.apart {
			t.Errorf("batch %d: on %s, critical on %s", tt.batch, p[2].CPUs, p[0].CPUs)
		}
	}
}
