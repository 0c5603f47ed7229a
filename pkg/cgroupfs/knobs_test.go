package cgroupfs_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	pod = "/kubepods/pod1"
	ctr = pod + "/ctr"
	ms  = time.Millisecond
)

// machine is a fake kernel with one container, and its driver.
type machine struct {
	*fakekernel.Kernel
	*cgroupfs.Driver
	t *testing.T
}

func boot(t *testing.T, f fakekernel.Flavour) machine {
	t.Helper()
	k := fakekernel.New(f)
	k.Mkdir(ctr)
	d, err := k.Driver()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return machine{k, d, t}
}

func set(dir string, knob plan.Knob, to plan.Value) plan.Change {
	level := plan.ContainerLevel
	if dir == pod {
		level = plan.PodLevel
	}
	return plan.Change{Object: plan.Object{Path: dir, Name: "ns/web/app", Level: level}, Knob: knob, To: to}
}

// apply makes changes that must succeed.
func (m machine) apply(changes ...plan.Change) {
	m.t.Helper()
	if err := m.Apply(changes); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) read(dir string, knob plan.Knob) plan.Value {
	m.t.Helper()
	v, err := m.Read(dir, knob)
	if err != nil {
		m.t.Fatal(err)
	}
	return v
}

// shows checks a file's text.
func (m machine) shows(dir, file, want string) {
	m.t.Helper()
	if got, err := m.ReadFile(dir, file); err != nil || got != want {
		m.t.Errorf("%s of %s shows %q, %v; want %q", file, dir, got, err, want)
	}
}

// values are some of each knob that every kernel with the knob takes.
func values(knob plan.Knob) []plan.Value {
	numbers := func(all ...plan.Number) []plan.Value {
		var out []plan.Value
		for _, n := range all {
			out = append(out, n)
		}
		return out
	}
	switch knob {
	case plan.CPUs:
		return []plan.Value{plan.CPUSet(cpuset.Range(0, 3)), plan.CPUSet(cpuset.Of(1, 7))}
	case plan.Mems:
		return []plan.Value{plan.CPUSet(cpuset.Of(1))}
	case plan.Quota:
		return []plan.Value{plan.CPUQuota{Quota: 50 * ms, Period: 100 * ms}, plan.CPUQuota{Quota: 30 * ms, Period: 20 * ms}, plan.CPUQuota{Quota: -1}}
	case plan.Burst:
		return []plan.Value{plan.CPUBurst(20 * ms), plan.CPUBurst(0)}
	case plan.Weight, plan.BTShares:
		return []plan.Value{plan.Shares(2), plan.Shares(512), plan.Shares(10240), plan.Shares(262144), plan.Shares(1)}
	case plan.BVT:
		return numbers(-1, 0, 1, 2)
	case plan.CPUIdentity, plan.CPUPriority:
		return numbers(-1, 0, 1)
	case plan.CPUQoS:
		return numbers(1, 2, -1)
	case plan.CgroupPriority:
		return numbers(0, 7)
	case plan.MemoryMax, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.SoftLimit, plan.PageCache:
		return []plan.Value{plan.Bytes(64 << 20), plan.Bytes(100_000_000), plan.Bytes(1 << 40), plan.Max}
	case plan.WmarkRatio:
		return numbers(0, 95, 100)
	case plan.WmarkScale:
		return numbers(1, 20, 1000)
	case plan.WmarkMinAdj:
		return numbers(-25, 0, 50)
	case plan.MemPriority:
		return numbers(0, 12)
	case plan.MemoryQoS:
		return numbers(-1, 0)
	case plan.PageCacheMax:
		return numbers(1, 100)
	case plan.IOWeight:
		return []plan.Value{plan.PerDevice("default 50"), plan.PerDevice("default 300\n8:0 200\n8:16 400"), plan.PerDevice("8:16 40"), plan.PerDevice("")}
	case plan.IOMax:
		return []plan.Value{
			plan.PerDevice("8:0 rbps=1048576\n8:16 wiops=100"), plan.PerDevice("8:16 rbps=5 wbps=6 riops=7 wiops=8"),
			plan.PerDevice("8:16 wbps=6"), plan.PerDevice("8:0 riops=4294967295"), plan.PerDevice(""),
		}
	case plan.NetClass:
		return numbers(0x10001, 0)
	}
	return numbers(1, 0)
}

// Each knob of each kernel takes its values, shows them, and can be put back so
// that every file is as it was.
func TestKnobs(t *testing.T) {
	t.Parallel()
	for _, f := range fakekernel.Flavours() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			probed := boot(t, f)
			features, err := probed.Probe()
			if err != nil {
				t.Fatal(err)
			}
			for knob := range plan.Knobs {
				if !features.Has(knob) {
					continue
				}
				t.Run(knob.String(), func(t *testing.T) {
					m := boot(t, f)
					before := m.Dump()
					was := m.read(ctr, knob)
					usual := cgroupfs.Describe(knob).Default
					if f.V2 && knob == plan.Weight {
						usual = cgroupfs.SharesOf(100)
					}
					if knob > plan.Mems && !m.Same(knob, usual, was) {
						t.Errorf("the default is %v, described as %v", was, usual)
					}
					for _, v := range values(knob) {
						m.apply(set(ctr, knob, v))
						if have := m.read(ctr, knob); !m.Same(knob, v, have) {
							t.Errorf("wrote %v, reads %v", v, have)
						}
						now := m.Dump()
						m.apply(set(ctr, knob, m.read(ctr, knob)))
						if !maps.Equal(m.Dump(), now) {
							t.Errorf("writing back what %v reads as changes a file", v)
						}
					}
					if knob == plan.CPUQoS && f.NoWayBack {
						return
					}
					if f.V2 && (knob == plan.CPUs || knob == plan.Mems) {
						was = plan.CPUSet{}
					}
					m.apply(set(ctr, knob, was))
					if after := m.Dump(); !maps.Equal(after, before) {
						for name, text := range after {
							if text != before[name] {
								t.Errorf("%s is %q, was %q", name, text, before[name])
							}
						}
					}
				})
			}
		})
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		flavour fakekernel.Flavour
		off     string // a switch
		has     []plan.Knob
		hasNot  []plan.Knob
		over    bool
		reclaim bool
	}{
		{fakekernel.MainlineV1(), "", []plan.Knob{plan.CPUs, plan.Mems, plan.Quota, plan.Burst, plan.Weight, plan.Idle, plan.MemoryMax, plan.SoftLimit, plan.IOWeight, plan.IOMax, plan.NetClass},
			[]plan.Knob{plan.BVT, plan.CPUQoS, plan.MemoryHigh, plan.OOMGroup, plan.WmarkRatio}, false, false},
		{fakekernel.MainlineV2(), "", []plan.Knob{plan.Burst, plan.Idle, plan.MemoryMin, plan.MemoryHigh, plan.OOMGroup, plan.IOMax, plan.IOWeight}, []plan.Knob{plan.SoftLimit, plan.NetClass, plan.WmarkRatio}, false, true},
		{fakekernel.OldMainlineV2(), "", []plan.Knob{plan.Burst, plan.IOWeight}, nil, false, true},
		{fakekernel.AnolisV1(), "", []plan.Knob{plan.BVT, plan.WmarkRatio, plan.WmarkMinAdj, plan.MemoryHigh, plan.OOMGroup, plan.MemPriority, plan.PageCache}, []plan.Knob{plan.CPUIdentity, plan.Idle}, true, false},
		{fakekernel.AnolisV1(), fakekernel.IdentitySwitch, []plan.Knob{plan.WmarkRatio}, []plan.Knob{plan.BVT}, true, false},
		{fakekernel.AnolisV1(), fakekernel.PageCacheSwitch, []plan.Knob{plan.BVT}, []plan.Knob{plan.PageCache}, true, false},
		{fakekernel.OldAnolisV1(), "", []plan.Knob{plan.BVT, plan.Burst, plan.IOWeight}, nil, true, false},
		{fakekernel.NewAnolisV2(), "", []plan.Knob{plan.CPUIdentity, plan.CPUPriority, plan.Idle, plan.WmarkRatio}, []plan.Knob{plan.BVT}, false, true},
		{fakekernel.OpenEuler(), "", []plan.Knob{plan.CPUQoS, plan.MemoryQoS}, []plan.Knob{plan.Idle}, true, false},
		{fakekernel.OpenEuler(), fakekernel.MemoryQoSSwitch, []plan.Knob{plan.CPUQoS}, []plan.Knob{plan.MemoryQoS}, true, false},
		{fakekernel.TencentOS(), "", []plan.Knob{plan.CgroupPriority, plan.CPUOffline, plan.BTShares, plan.PageCacheMax, plan.OOMGroup}, nil, true, false},
		{fakekernel.TencentOS(), fakekernel.CPUQoSSwitch, []plan.Knob{plan.CPUOffline}, []plan.Knob{plan.CgroupPriority, plan.BTShares}, true, false},
	}
	for _, test := range tests {
		t.Run(test.flavour.Name+" "+test.off, func(t *testing.T) {
			t.Parallel()
			m := boot(t, test.flavour)
			if test.off != "" {
				m.Switch(test.off, "0")
			}
			m.Mkdir("/sluice-probe-4000000000") // its process has ended
			before := m.Dump()
			f, err := m.Probe()
			if err != nil {
				t.Fatal(err)
			}
			for _, knob := range test.has {
				if !f.Has(knob) {
					t.Errorf("%s is %+v, want it supported", knob, f.Knobs[knob])
				}
			}
			for _, knob := range test.hasNot {
				if feature := f.Knobs[knob]; feature.Support != plan.Unsupported || feature.Why == "" {
					t.Errorf("%s is %+v, want it unsupported", knob, feature)
				} else if cgroupfs.Describe(knob).Gate == test.off && test.off != "" && (feature.Cause != plan.SwitchedOff || !strings.Contains(feature.Why, "write 1 to /"+test.off)) {
					t.Errorf("%s says %q, cause %q", knob, feature.Why, feature.Cause)
				}
			}
			if f.BurstOverQuota != test.over || f.Reclaim != test.reclaim {
				t.Errorf("burst over quota %v, reclaim %v", f.BurstOverQuota, f.Reclaim)
			}
			after := m.Dump()
			for name := range after {
				if strings.Contains(name, "sluice-probe") {
					t.Fatalf("the probe left %s", name)
				}
			}
			maps.DeleteFunc(before, func(name, _ string) bool { return strings.Contains(name, "sluice-probe") })
			if !maps.Equal(after, before) {
				t.Error("the probe changed a file of others")
			}
		})
	}
}

// To try group identity is to use it.
func TestProbeOnKernelsThatCrash(t *testing.T) {
	t.Parallel()
	for _, flavour := range []fakekernel.Flavour{fakekernel.OldAnolisV1(), fakekernel.NewAnolisV2()} {
		m := boot(t, flavour)
		m.Switch("proc/sys/kernel/osrelease", "4.19.91-25.3.al7.x86_64")
		f, err := m.Probe()
		if err != nil {
			t.Fatal(err)
		}
		for _, knob := range []plan.Knob{plan.BVT, plan.CPUIdentity, plan.CPUPriority} {
			if feature := f.Knobs[knob]; feature.Support != plan.Unsupported || !strings.Contains(feature.Why, "crashes the host") {
				t.Errorf("%s: %s is %+v", flavour.Name, knob, feature)
			}
		}
		if !f.Has(plan.WmarkRatio) {
			t.Errorf("%s: watermarks are %+v", flavour.Name, f.Knobs[plan.WmarkRatio])
		}
	}
}
