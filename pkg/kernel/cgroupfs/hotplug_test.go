package cgroupfs_test

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestHotplug takes all CPUs of a container offline and gives it others.
func TestHotplug(t *testing.T) {
	t.Parallel()
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		m := boot(t, f)
		m.apply(set(ctr, knobs.CPUs, knobs.CPUSet(cpuset.Of(1))))
		if err := m.Populate(ctr, 2); err != nil {
			t.Fatal(err)
		}
		m.Plug(cpuset.MustParse("0,2-7"))
		if populated, err := m.Populated(ctr); err != nil || !populated {
			t.Errorf("%s: populated: %t, %v; want true", f.Name, populated, err)
		}
		if pids, err := m.Processes(ctr); err != nil || len(pids) != 2 {
			t.Errorf("%s: processes %v, %v; want 2", f.Name, pids, err)
		}
		m.apply(set(ctr, knobs.CPUs, knobs.CPUSet(cpuset.Of(2))))
		want := 2
		if f.V2 {
			want = 0
		}
		if moved, err := m.Rejoin(ctr); err != nil || moved != want {
			t.Errorf("%s: moved %d, %v; want %d", f.Name, moved, err, want)
		}
		if moved, err := m.Rejoin(ctr); err != nil || moved != 0 {
			t.Errorf("%s: moved %d more, %v", f.Name, moved, err)
		}
	}
}
