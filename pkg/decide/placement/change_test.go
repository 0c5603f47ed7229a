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
