package cgroupfs_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
)

func TestUsageOfAContainer(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/pod1/c1"
	const second = time.Second
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			k := fakekernel.New(f)
			k.Mkdir(dir)
			k.Use(dir, 1000<<12, 400<<12)
			k.Count(dir, fakekernel.Counters{
				CPU: 7e9, Periods: 100, Throttled: 30, ThrottledTime: 2e9, Refaults: 11, DirectScans: 12, OOMKills: 1, Swapped: 24 << 20,
				Read: 4096, Written: 8192, Stalls: [5]int64{1e6, 2e6, 3e6, 4e6, 5e6}, Threads: []int{41, 0, 42},
			})
			d, err := k.Driver()
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()

			var usage observe.CPUCounters
			var quota observe.ThrottlingCounters
			if counted, err := d.CPU(dir, &usage, &quota); err != nil || !counted || usage.Usage != 7*second || quota != (observe.ThrottlingCounters{Periods: 100, Throttled: 30, Time: 2 * second}) {
				t.Errorf("CPU: %v, %v, %+v, %+v", counted, err, usage, quota)
			}
			if counted, err := d.CPU(dir, &usage, nil); err != nil || counted {
				t.Errorf("CPU without the quota: %v, %v", counted, err)
			}
			memory := observe.ContainerMemoryCounters{Refaults: 5}
			want := observe.ContainerMemoryCounters{Current: 1000 << 12, Anon: 600 << 12, ActiveFile: 100 << 12, InactiveFile: 200 << 12, Refaults: 11, OOMKills: 1}
			if f.V2 {
				want.DirectScans = 12
			}
			if err := d.MemoryUse(dir, &memory); err != nil || memory != want {
				t.Errorf("memory: %v, %+v\nwant %+v", err, memory, want)
			}
			swap := observe.SwapCounters{Used: 5, Free: 5}
			if err := d.Swap(dir, &swap); err != nil || swap != (observe.SwapCounters{Used: 24 << 20, Free: math.MaxInt64}) {
				t.Errorf("swap: %v, %+v", err, swap)
			}
			knob, limit, free := knobs.Swappiness, knobs.Value(knobs.Number(0)), int64(0)
			if f.V2 {
				knob, limit, free = knobs.SwapMax, knobs.Bytes(64<<20), 40<<20
			}
			change := knobs.Change{Object: knobs.Object{Path: dir, Level: knobs.ContainerLevel}, Knob: knob, To: limit}
			if err := d.Apply([]knobs.Change{change}); err != nil {
				t.Fatal(err)
			}
			if err := d.Swap(dir, &swap); err != nil || swap.Free != free {
				t.Errorf("swap with a limit: %v, %+v", err, swap)
			}
			var io observe.IOCounters
			if err := d.IOBytes(dir, &io); err != nil || io != (observe.IOCounters{Read: 4096, Written: 8192}) {
				t.Errorf("I/O: %v, %+v", err, io)
			}
			var threads []int
			if err := d.Threads(dir, func(id int) { threads = append(threads, id) }); err != nil || !slices.Equal(threads, []int{41, 42}) {
				t.Errorf("threads: %v, %v", err, threads)
			}
			var stalls observe.PressureTotals
			err = d.Stalls(dir, &stalls)
			if !f.V2 && !errors.Is(err, cgroupfs.ErrUnsupported) {
				t.Errorf("pressure on v1: %v", err)
			}
			if f.V2 && (err != nil || stalls != (observe.PressureTotals{
				CPU: observe.Stall{Total: second, Avg10: 0.015}, Memory: observe.Stall{Total: 2 * second, Avg10: 0.015}, MemoryFull: observe.Stall{Total: 3 * second},
				IO: observe.Stall{Total: 4 * second, Avg10: 0.015}, IOFull: observe.Stall{Total: 5 * second},
			})) {
				t.Errorf("pressure: %v, %+v", err, stalls)
			}

			k.Rmdir(dir)
			for name, err := range map[string]error{
				"CPU": failure(d.CPU(dir, &usage, &quota)), "memory": d.MemoryUse(dir, &memory), "I/O": d.IOBytes(dir, &io), "threads": d.Threads(dir, func(int) {}),
			} {
				if !errors.Is(err, cgroupfs.ErrGone) {
					t.Errorf("%s of a container that ended: %v", name, err)
				}
			}
		})
	}
}

func failure(_ bool, err error) error { return err }
