package placement

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Place grants exactly as many CPUs as Pinnable returns and no more, on machines with pins of all
// kinds, services with requests, system CPUs and CPUs of another manager.
func TestPinnable(t *testing.T) {
	t.Parallel()
	machines := []*topology.Machine{machine(t, small), machine(t, flat), machine(t, "1 packages 2 nodes 4 cores 2 threads l3 2 cores")}
	rapid.Check(t, func(t *rapid.T) {
		m := machines[rapid.IntRange(0, len(machines)-1).Draw(t, "machine")]
		config := Default()
		if rapid.Bool().Draw(t, "reserved") {
			config.Reserved, config.System = cpuset.Of(0), cpuset.Of(1)
		}
		l := New(config, m)
		if rapid.Bool().Draw(t, "external") {
			l.SetExternal(cpuset.Of(2, 3))
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "containers") {
			l.Place(who(fmt.Sprint(i)), drawRequest(t), cpuset.Set{}, start) // Place refuses some of them
		}
		got := l.Pinnable(nil)
		var want []int
		for i := range m.Nodes {
			want = append(want, mostOn(l, m.Nodes[i].CPUs))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("promised %v, Place grants %v of\n%s", got, want, describe(l))
		}
		if got, want := l.PinnableTogether(), mostOn(l, m.Online); got != want {
			t.Fatalf("promised %d in all, Place grants %d of\n%s", got, want, describe(l))
		}
	})
}

// mostOn finds the largest number of a node's CPUs that Place grants. It tries each CPU alone, and
// then adds CPUs to those that Place grants.
func mostOn(l *Ledger, node cpuset.Set) int {
	grants := func(cpus cpuset.Set) bool {
		r := workload.Request{Class: workload.LSR, CPUs: cpus.Size(), CPUSet: cpus, Milli: workload.MilliCPU(cpus.Size()) * 1000}
		_, err := l.Clone().Place(who("new"), r, cpuset.Set{}, start)
		return err == nil
	}
	var taken cpuset.Set
	for id := range node.All() {
		if more := cpuset.Union(taken, cpuset.Of(id)); grants(cpuset.Of(id)) && grants(more) {
			taken = more
		}
	}
	return taken.Size()
}

func TestPinnableAllocs(t *testing.T) {
	l := New(Default(), machine(t, small))
	place(t, l, "db", workload.Request{Class: workload.LSR, CPUs: 2, Milli: 2000})
	var into []int
	if n := testing.AllocsPerRun(50, func() { into = l.Pinnable(into[:0]) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
