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

// A pin of whole cores that was placed while hyperthreading was off moves to whole cores when it is on, and
// stays where it is while there are none.
func TestWholeCoresAgain(t *testing.T) {
	t.Parallel()
	m := machine(t, "4 cores 2 threads") // cores 0,4 and 1,5 and so on
	off := without(m, cpuset.Range(4, 7))
	for name, c := range map[string]struct {
		taken, want, left cpuset.Set // CPUs of another pin that took siblings, and what the pin has and leaves
	}{
		"on its own cores":      {cpuset.Set{}, cpuset.Of(0, 4), cpuset.Of(1)},
		"on the second":         {cpuset.Of(4), cpuset.Of(1, 5), cpuset.Of(0)},
		"on others":             {cpuset.Of(4, 5), cpuset.Of(2, 6), cpuset.Of(0, 1)},
		"while no core is free": {cpuset.Of(4, 5, 6, 7), cpuset.Of(0, 1), cpuset.Set{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(Default(), off)
			whole := pinned(workload.LSE, 2)
			if as := place(t, l, "whole", whole); as.CPUs != cpuset.Of(0, 1) {
				t.Fatalf("without hyperthreading it is on %s", as.CPUs)
			}
			l.SetMachine(m)
			if n := c.taken.Size(); n > 0 {
				taken := pinned(workload.LSR, n)
				taken.CPUSet = c.taken
				place(t, l, "taken", taken)
			}
			h, _ := l.Holder("whole")
			if h.Short == "" || len(l.ShortPins()) != 1 {
				t.Fatalf("it is said to have whole cores: %+v", *h)
			}
			mended := l.Mend("whole", cpuset.Set{})
			h, _ = l.Holder("whole")
			if h.CPUs != c.want || h.Leaving != c.left || mended != (h.Short == "") || mended == c.left.IsEmpty() {
				t.Errorf("mended: %v, on CPUs %s, leaves %s (%q), want %s", mended, h.CPUs, h.Leaving, h.Short, c.want)
			}
			l.EndMove("whole")
			n, err := l.Reconfigured(Default(), map[string]RevisedRequest{"whole": {Request: whole}, "taken": {Request: pinned(workload.LSR, max(1, c.taken.Size()))}})
			if err != nil {
				t.Fatal(err)
			}
			if h, _ := n.Holder("whole"); h.CPUs != c.want {
				t.Errorf("another configuration moves it from %s to %s", c.want, h.CPUs)
			}
			l.SetMachine(off)
			if h, _ := l.Holder("whole"); !mended && (h.Short != "" || h.CPUs != c.want) {
				t.Errorf("without hyperthreading again it is on %s, %q", h.CPUs, h.Short)
			}
		})
	}
}
