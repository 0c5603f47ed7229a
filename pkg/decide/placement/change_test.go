package placement

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// The sibling of a one-per-core pin is no other pin's, also after it was offline, and also where it was
// offline when the pin was placed.
func TestSiblingsReturn(t *testing.T) {
	t.Parallel()
	m := machine(t, "4 cores 2 threads") // cores 0,4 and 1,5 and so on
	for name, before := range map[string]cpuset.Set{"it was there": {}, "it was offline at first": cpuset.Of(4)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(Default(), without(m, before))
			one := pinned(workload.LSR, 1)
			one.CPUSet, one.SMT = cpuset.Of(0), workload.SMTOnePerCore
			place(t, l, "one", one)
			l.SetMachine(without(m, cpuset.Of(4)))
			l.SetMachine(m)
			if as := place(t, l, "next", pinned(workload.LSR, 2)); as.CPUs.Contains(4) {
				t.Errorf("the next pin has %s, with the sibling of CPU 0", as.CPUs)
			}
			beside := pinned(workload.LSR, 1)
			beside.CPUSet = cpuset.Of(4)
			if as, err := l.Place(who("beside"), beside, cpuset.Set{}, start); err == nil {
				t.Errorf("another pin has %s", as.CPUs)
			}
		})
	}
}

// A container whose listed memory nodes lose their memory has that of the others, or of any node, so that no
// node that is not there is assigned.
func TestListedMemoryDisappears(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listed, gone string
		want         string
	}{
		"all of it":  {"1", "2 packages 2 nodes 4 cores memory 8G node 1 memory 0", ""},
		"one of two": {"1-2", "2 packages 2 nodes 4 cores memory 8G node 1 memory 0", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(Default(), machine(t, "2 packages 2 nodes 4 cores memory 8G"))
			r := workload.Request{Class: workload.LS, MemoryNodes: workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: set(t, c.listed)}}
			place(t, l, "shares", r)
			pin := pinned(workload.LSR, 2)
			pin.MemoryNodes = r.MemoryNodes
			as := place(t, l, "pin", pin)
			gone := without(machine(t, c.gone), as.CPUs)
			l.SetMachine(gone)
			for _, mended := range []bool{false, true} {
				for _, id := range []string{"shares", "pin"} {
					if as, _ := l.Assignment(id); as.Mems != set(t, c.want) {
						t.Errorf("%s has memory of %s, want %q; mended: %v", id, as.Mems, c.want, mended)
					}
				}
				l.Mend("pin", cpuset.Set{})
			}
			twin := New(Default(), gone)
			twin.Adopt(who("pin"), pin, cpuset.Of(0, 1), cpuset.Set{}, start)
			if as, _ := twin.Assignment("pin"); as.Mems != set(t, c.want) {
				t.Errorf("after a restart the pin has memory of %s, want %q", as.Mems, c.want)
			}
		})
	}
}
