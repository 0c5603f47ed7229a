package cgroupfs_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// A cgroup that is made again with the same path is another one.
func TestReadOfAnother(t *testing.T) {
	t.Parallel()
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		m := boot(t, f)
		m.apply(set(ctr, knobs.Burst, knobs.CPUBurst(40*ms)))
		if v := m.read(ctr, knobs.Burst); v != knobs.CPUBurst(40*ms) {
			t.Fatalf("the burst is %v", v)
		}
		m.Rmdir(ctr)
		if v, err := m.Read(ctr, knobs.Burst); !errors.Is(err, cgroupfs.ErrGone) {
			t.Errorf("%s: a cgroup that is gone reads %v, %v", f.Name, v, err)
		}
		m.Mkdir(ctr)
		m.read(ctr, knobs.Burst)
		m.Rmdir(ctr)
		m.Mkdir(ctr)
		if v := m.read(ctr, knobs.Burst); v != knobs.CPUBurst(0) {
			t.Errorf("%s: a new cgroup has the old one's burst of %v", f.Name, v)
		}
		m.Rmdir(ctr)
		m.Mkdir(ctr)
		m.apply(set(ctr, knobs.Weight, knobs.Shares(512))) // through a folder that has been replaced
		m.Forget(ctr)
		m.Forget("/never/seen")
		if v := m.read(ctr, knobs.Weight); !m.Same(knobs.Weight, knobs.Shares(512), v) {
			t.Errorf("%s: the weight is %v", f.Name, v)
		}
	}
}

// Reads, writes and the removal of cgroups may happen concurrently.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	m := boot(t, fakekernel.MainlineV2())
	var wg sync.WaitGroup
	for _, work := range []func(){
		func() { m.Read(ctr, knobs.Burst) },
		func() { m.Read(ctr, knobs.CPUs) },
		func() { m.Apply([]knobs.Change{set(ctr, knobs.Weight, knobs.Shares(512))}) },
		func() { m.Forget(ctr) },
		func() { m.Rmdir(ctr); m.Mkdir(ctr) },
		func() { m.MemoryStat(ctr) },
	} {
		wg.Go(func() {
			for range 200 {
				work()
			}
		})
	}
	wg.Wait()
	m.Rmdir(ctr)
	m.Mkdir(ctr)
	if v := m.read(ctr, knobs.Burst); v != knobs.CPUBurst(0) {
		t.Errorf("the burst is %v", v)
	}
}

func TestMemoryStat(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flavour fakekernel.Flavour
		want    cgroupfs.MemoryStat
	}{
		{fakekernel.MainlineV1(), cgroupfs.MemoryStat{Current: 100 << 20, Max: knobs.Max, File: 24 << 20, Pressure: -1}},
		{fakekernel.MainlineV2(), cgroupfs.MemoryStat{Current: 100 << 20, Max: knobs.Max, File: 24 << 20, Pressure: 1.5}},
	} {
		m := boot(t, test.flavour)
		m.Use(ctr, 100<<20, 32<<20)
		if got, err := m.MemoryStat(ctr); err != nil || got != test.want {
			t.Errorf("%s: %+v, %v; want %+v", test.flavour.Name, got, err, test.want)
		}
		m.apply(set(ctr, knobs.MemoryMax, knobs.Bytes(200<<20)))
		if got, err := m.MemoryStat(ctr); err != nil || got.Max != 200<<20 {
			t.Errorf("%s: %+v, %v", test.flavour.Name, got, err)
		}
		if _, err := m.MemoryStat("/gone"); !errors.Is(err, cgroupfs.ErrGone) {
			t.Errorf("a cgroup that is gone: %v", err)
		}
	}
}

func TestReclaim(t *testing.T) {
	t.Parallel()
	m := boot(t, fakekernel.MainlineV2())
	m.Use(ctr, 100<<20, 30<<20)
	if err := m.Reclaim(ctr, 20<<20); err != nil {
		t.Error(err)
	}
	if err := m.Reclaim(ctr, 20<<20); !errors.Is(err, cgroupfs.ErrPartial) {
		t.Errorf("more than there is: %v, want ErrPartial", err)
	}
	if err := m.Reclaim("/gone", 20<<20); !errors.Is(err, cgroupfs.ErrGone) {
		t.Errorf("a cgroup that is gone: %v", err)
	}
	if err := m.Reclaim("/", 20<<20); err == nil {
		t.Error("the root was reclaimed from")
	}
	m.shows(ctr, "memory.current", "73400320")
	if err := boot(t, fakekernel.MainlineV1()).Reclaim(ctr, 1); !errors.Is(err, cgroupfs.ErrUnsupported) {
		t.Errorf("on v1: %v", err)
	}
}
