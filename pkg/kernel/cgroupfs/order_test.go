package cgroupfs_test

import (
	"errors"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Changes in the wrong order fail as on a real kernel, and in the right order they succeed.
func TestOrder(t *testing.T) {
	t.Parallel()
	quota := func(quota time.Duration) knobs.CPUQuota { return knobs.CPUQuota{Quota: quota, Period: 100 * ms} }
	type change struct {
		dir  string
		knob knobs.Knob
		to   knobs.Value
	}
	tests := []struct {
		name    string
		flavour fakekernel.Flavour
		first   []change
		wrong   []change // the first of them fails on its own
		right   []change
	}{
		{"lower the quota below the burst", fakekernel.MainlineV1(),
			[]change{{ctr, knobs.Quota, quota(50 * ms)}, {ctr, knobs.Burst, knobs.CPUBurst(40 * ms)}},
			[]change{{ctr, knobs.Quota, quota(30 * ms)}},
			[]change{{ctr, knobs.Burst, knobs.CPUBurst(0)}, {ctr, knobs.Quota, quota(30 * ms)}, {ctr, knobs.Burst, knobs.CPUBurst(30 * ms)}}},
		{"raise burst and quota", fakekernel.MainlineV2(),
			[]change{{ctr, knobs.Quota, quota(50 * ms)}},
			[]change{{ctr, knobs.Burst, knobs.CPUBurst(60 * ms)}},
			[]change{{ctr, knobs.Quota, quota(70 * ms)}, {ctr, knobs.Burst, knobs.CPUBurst(60 * ms)}}},
		{"from no quota to one below a stale burst", fakekernel.MainlineV2(),
			[]change{{ctr, knobs.Burst, knobs.CPUBurst(60 * ms)}},
			[]change{{ctr, knobs.Quota, quota(50 * ms)}},
			[]change{{ctr, knobs.Burst, knobs.CPUBurst(0)}, {ctr, knobs.Quota, quota(50 * ms)}}},
		{"raise a v1 child before its parent", fakekernel.MainlineV1(),
			[]change{{pod, knobs.Quota, quota(50 * ms)}, {ctr, knobs.Quota, quota(50 * ms)}},
			[]change{{ctr, knobs.Quota, quota(80 * ms)}},
			[]change{{pod, knobs.Quota, quota(80 * ms)}, {ctr, knobs.Quota, quota(80 * ms)}}},
		{"lower a v1 parent before its child", fakekernel.MainlineV1(),
			[]change{{pod, knobs.Quota, quota(50 * ms)}, {ctr, knobs.Quota, quota(50 * ms)}},
			[]change{{pod, knobs.Quota, quota(40 * ms)}},
			[]change{{ctr, knobs.Quota, quota(40 * ms)}, {pod, knobs.Quota, quota(40 * ms)}}},
		{"weight while idle", fakekernel.MainlineV1(),
			[]change{{ctr, knobs.Idle, knobs.Number(1)}},
			[]change{{ctr, knobs.Weight, knobs.Shares(512)}},
			[]change{{ctr, knobs.Idle, knobs.Number(0)}, {ctr, knobs.Weight, knobs.Shares(512)}}},
		{"weight while idle, v2", fakekernel.MainlineV2(),
			[]change{{ctr, knobs.Idle, knobs.Number(1)}},
			[]change{{ctr, knobs.Weight, knobs.Shares(512)}},
			[]change{{ctr, knobs.Idle, knobs.Number(0)}, {ctr, knobs.Weight, knobs.Shares(512)}}},
		{"an online child of an offline pod", fakekernel.OpenEuler(),
			[]change{{pod, knobs.CPUQoS, knobs.Number(-1)}},
			[]change{{ctr, knobs.CPUQoS, knobs.Number(1)}},
			nil},
		{"a child's priority above its pod's", fakekernel.TencentOS(),
			[]change{{pod, knobs.CgroupPriority, knobs.Number(7)}},
			[]change{{ctr, knobs.CgroupPriority, knobs.Number(0)}, {pod, knobs.CgroupPriority, knobs.Number(0)}},
			[]change{{pod, knobs.CgroupPriority, knobs.Number(0)}, {ctr, knobs.CgroupPriority, knobs.Number(0)}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := boot(t, test.flavour)
			for _, c := range test.first {
				m.apply(set(c.dir, c.knob, c.to))
			}
			if test.flavour.RUE {
				m.apply(set(ctr, knobs.CgroupPriority, knobs.Number(7)))
			}
			c := test.wrong[0]
			before := m.Dump()
			err := m.Apply([]knobs.Change{set(c.dir, c.knob, c.to)})
			if !errors.Is(err, cgroupfs.ErrConstraint) || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("in the wrong order: %v, want EINVAL", err)
			}
			if !maps.Equal(m.Dump(), before) {
				t.Error("the refused change left a trace")
			}
			for _, c := range test.right {
				m.apply(set(c.dir, c.knob, c.to))
			}
			for _, c := range test.right {
				if v := m.read(c.dir, c.knob); c == test.right[len(test.right)-1] && !m.Same(c.knob, c.to, v) {
					t.Errorf("%s of %s is %v, want %v", c.knob, c.dir, v, c.to)
				}
			}
		})
	}
}

// Writing the quota keeps the burst, also on kernels that would change it.
func TestQuotaKeepsTheBurst(t *testing.T) {
	t.Parallel()
	for _, f := range fakekernel.Flavours() {
		m := boot(t, f)
		for _, c := range []knobs.Change{
			set(ctr, knobs.Quota, knobs.CPUQuota{Quota: 50 * ms, Period: 100 * ms}), set(ctr, knobs.Burst, knobs.CPUBurst(40*ms)),
			set(ctr, knobs.Quota, knobs.CPUQuota{Quota: 60 * ms, Period: 100 * ms}), set(ctr, knobs.Quota, knobs.CPUQuota{Quota: 60 * ms, Period: 50 * ms}),
			set(ctr, knobs.Quota, knobs.CPUQuota{Quota: -1}),
		} {
			m.apply(c)
		}
		if v := m.read(ctr, knobs.Burst); v != knobs.CPUBurst(40*ms) {
			t.Errorf("%s: the burst is %v after writing the quota, want 40 ms", f.Name, v)
		}
	}
}

// The limit of memory with swap changes together with that of memory.
func TestMemoryAndSwap(t *testing.T) {
	t.Parallel()
	m := boot(t, fakekernel.MainlineV1())
	const limit, swap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	if err := errors.Join(m.WriteFile(ctr, limit, "100M"), m.WriteFile(ctr, swap, "120M")); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		to                knobs.Bytes
		limit, limitAndSw string
	}{
		{200 << 20, "209715200", "230686720"}, {100 << 20, "104857600", "125829120"}, {knobs.Max, "9223372036854771712", "9223372036854771712"}, {50 << 20, "52428800", "9223372036854771712"},
	} {
		m.apply(set(ctr, knobs.MemoryMax, step.to))
		m.shows(ctr, limit, step.limit)
		m.shows(ctr, swap, step.limitAndSw)
	}
	m.Use(ctr, 40<<20, 0)
	err := m.Apply([]knobs.Change{set(ctr, knobs.MemoryMax, knobs.Bytes(10<<20))})
	if !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), "could not reclaim") {
		t.Errorf("a limit below what is used: %v", err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		flavour fakekernel.Flavour
		knob    knobs.Knob
		to      knobs.Value
		want    error
		says    string
	}{
		"another knob's value":  {fakekernel.MainlineV1(), knobs.Weight, knobs.Number(5), nil, "no value of cpu.weight"},
		"nothing":               {fakekernel.MainlineV1(), knobs.Weight, nil, nil, "no value of cpu.weight"},
		"out of range":          {fakekernel.AnolisV1(), knobs.BVT, knobs.Number(3), cgroupfs.ErrConstraint, "-1 to 2"},
		"not on this version":   {fakekernel.MainlineV2(), knobs.NetClass, knobs.Number(3), cgroupfs.ErrUnsupported, "left alone"},
		"not on v2":             {fakekernel.MainlineV2(), knobs.SoftLimit, knobs.Max, cgroupfs.ErrUnsupported, "v2"},
		"not in this kernel":    {fakekernel.MainlineV2(), knobs.BVT, knobs.Number(1), cgroupfs.ErrUnsupported, "left alone"},
		"no such disk":          {fakekernel.MainlineV2(), knobs.IOMax, knobs.PerDevice("99:0 rbps=5"), cgroupfs.ErrNoDevice, "99:0"},
		"no such disk on v1":    {fakekernel.MainlineV1(), knobs.IOMax, knobs.PerDevice("99:0 rbps=5"), cgroupfs.ErrNoDevice, "99:0"},
		"no device":             {fakekernel.MainlineV1(), knobs.IOMax, knobs.PerDevice("sda rbps=5"), nil, "major:minor"},
		"no weight":             {fakekernel.MainlineV1(), knobs.IOWeight, knobs.PerDevice("default 0"), nil, "I/O weight"},
		"a page cache of none":  {fakekernel.AnolisV1(), knobs.PageCache, knobs.Bytes(0), nil, "use max"},
		"a switch that is off":  {fakekernel.OpenEuler(), knobs.MemoryQoS, knobs.Number(-1), syscall.EACCES, "old value stays"},
		"burst above the quota": {fakekernel.MainlineV1(), knobs.Burst, knobs.CPUBurst(60 * ms), cgroupfs.ErrConstraint, "may not exceed the quota"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := boot(t, test.flavour)
			m.apply(set(ctr, knobs.Quota, knobs.CPUQuota{Quota: 50 * ms, Period: 100 * ms}))
			m.Switch(fakekernel.MemoryQoSSwitch, "0")
			err := m.Apply([]knobs.Change{set(ctr, test.knob, test.to)})
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v; want %v and %q in it", err, test.want, test.says)
			}
		})
	}
}
