package cgroupfs_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	pod = "/kubepods/pod1"
	ctr = pod + "/ctr"
	ms  = time.Millisecond
)

// machine is a fake kernel with one container and its driver.
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

func set(dir string, knob knobs.Knob, to knobs.Value) knobs.Change {
	level := knobs.ContainerLevel
	if dir == pod {
		level = knobs.PodLevel
	}
	return knobs.Change{Object: knobs.Object{Path: dir, Name: "ns/web/app", Level: level}, Knob: knob, To: to}
}

// apply makes changes that must succeed.
func (m machine) apply(changes ...knobs.Change) {
	m.t.Helper()
	if err := m.Apply(changes); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) read(dir string, knob knobs.Knob) knobs.Value {
	m.t.Helper()
	v, err := m.Read(dir, knob)
	if err != nil {
		m.t.Fatal(err)
	}
	return v
}

// shows checks the text of a file.
func (m machine) shows(dir, file, want string) {
	m.t.Helper()
	if got, err := m.ReadFile(dir, file); err != nil || got != want {
		m.t.Errorf("%s of %s shows %q, %v; want %q", file, dir, got, err, want)
	}
}

// values returns some values that every kernel with the knob accepts.
func values(knob knobs.Knob) []knobs.Value {
	numbers := func(all ...knobs.Number) []knobs.Value {
		var out []knobs.Value
		for _, n := range all {
			out = append(out, n)
		}
		return out
	}
	switch knob {
	case knobs.CPUs:
		return []knobs.Value{knobs.CPUSet(cpuset.Range(0, 3)), knobs.CPUSet(cpuset.Of(1, 7))}
	case knobs.Mems:
		return []knobs.Value{knobs.CPUSet(cpuset.Of(1))}
	case knobs.Quota:
		return []knobs.Value{knobs.CPUQuota{Quota: 50 * ms, Period: 100 * ms}, knobs.CPUQuota{Quota: 30 * ms, Period: 20 * ms}, knobs.CPUQuota{Quota: -1}}
	case knobs.Burst:
		return []knobs.Value{knobs.CPUBurst(20 * ms), knobs.CPUBurst(0)}
	case knobs.Weight, knobs.BTShares:
		return []knobs.Value{knobs.Shares(2), knobs.Shares(512), knobs.Shares(10240), knobs.Shares(262144), knobs.Shares(1)}
	case knobs.BVT:
		return numbers(-1, 0, 1, 2)
	case knobs.CPUIdentity, knobs.CPUPriority:
		return numbers(-1, 0, 1)
	case knobs.CPUQoS:
		return numbers(1, 2, -1)
	case knobs.CgroupPriority:
		return numbers(0, 7)
	case knobs.MemoryMax, knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.SoftLimit, knobs.PageCache, knobs.SwapMax:
		return []knobs.Value{knobs.Bytes(64 << 20), knobs.Bytes(100_000_000), knobs.Bytes(1 << 40), knobs.Max}
	case knobs.Swappiness:
		return numbers(0, 60, 100)
	case knobs.WmarkRatio:
		return numbers(0, 95, 100)
	case knobs.WmarkScale:
		return numbers(1, 20, 1000)
	case knobs.WmarkMinAdj:
		return numbers(-25, 0, 50)
	case knobs.MemPriority:
		return numbers(0, 12)
	case knobs.MemoryQoS:
		return numbers(-1, 0)
	case knobs.PageCacheMax:
		return numbers(1, 100)
	case knobs.IOWeight, knobs.BFQWeight:
		return []knobs.Value{knobs.PerDevice("default 50"), knobs.PerDevice("default 300\n8:0 200\n8:16 400"), knobs.PerDevice("8:16 40"), knobs.PerDevice("")}
	case knobs.IOMax:
		return []knobs.Value{
			knobs.PerDevice("8:0 rbps=1048576\n8:16 wiops=100"), knobs.PerDevice("8:16 rbps=5 wbps=6 riops=7 wiops=8"),
			knobs.PerDevice("8:16 wbps=6"), knobs.PerDevice("8:0 riops=4294967295"), knobs.PerDevice(""),
		}
	case knobs.IOClass:
		return []knobs.Value{knobs.IdleIO, knobs.IOPolicy("restrict-to-be"), knobs.IOPolicy("none-to-rt"), knobs.SameIO}
	case knobs.NetClass:
		return numbers(0x10001, 0)
	}
	return numbers(1, 0)
}

// Each kernel accepts and shows the values of each of its knobs, and each knob can be restored so
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
			for knob := range knobs.Knobs {
				if !features.Has(knob) {
					continue
				}
				t.Run(knob.String(), func(t *testing.T) {
					m := boot(t, f)
					before := m.Dump()
					was := m.read(ctr, knob)
					usual := cgroupfs.Describe(knob).Default
					if f.V2 && knob == knobs.Weight {
						usual = cgroupfs.SharesOf(100)
					}
					if knob > knobs.Mems && !m.Same(knob, usual, was) {
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
					if knob == knobs.CPUQoS && f.NoWayBack {
						return
					}
					if f.V2 && (knob == knobs.CPUs || knob == knobs.Mems) {
						was = knobs.CPUSet{}
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
		off     string // a vendor's switch
		has     []knobs.Knob
		hasNot  []knobs.Knob
		over    bool
		reclaim bool
	}{
		{fakekernel.MainlineV1(), "", []knobs.Knob{knobs.CPUs, knobs.Mems, knobs.Quota, knobs.Burst, knobs.Weight, knobs.Idle, knobs.MemoryMax, knobs.SoftLimit, knobs.Swappiness, knobs.IOWeight, knobs.IOMax, knobs.IOClass, knobs.NetClass},
			[]knobs.Knob{knobs.BVT, knobs.CPUQoS, knobs.MemoryHigh, knobs.SwapMax, knobs.OOMGroup, knobs.WmarkRatio}, false, false},
		{fakekernel.MainlineV2(), "", []knobs.Knob{knobs.Burst, knobs.Idle, knobs.MemoryMin, knobs.MemoryHigh, knobs.OOMGroup, knobs.SwapMax, knobs.IOMax, knobs.IOWeight, knobs.IOClass}, []knobs.Knob{knobs.SoftLimit, knobs.Swappiness, knobs.NetClass, knobs.WmarkRatio}, false, true},
		{fakekernel.Flavour{Name: "v2 without swap", V2: true, NoSwap: true}, "", []knobs.Knob{knobs.MemoryMax}, []knobs.Knob{knobs.SwapMax, knobs.Swappiness}, false, false},
		{fakekernel.OldMainlineV2(), "", []knobs.Knob{knobs.Burst, knobs.IOWeight}, nil, false, true},
		{fakekernel.AnolisV1(), "", []knobs.Knob{knobs.BVT, knobs.WmarkRatio, knobs.WmarkMinAdj, knobs.MemoryHigh, knobs.OOMGroup, knobs.MemPriority, knobs.PageCache}, []knobs.Knob{knobs.CPUIdentity, knobs.Idle}, true, false},
		{fakekernel.AnolisV1(), fakekernel.IdentitySwitch, []knobs.Knob{knobs.WmarkRatio}, []knobs.Knob{knobs.BVT}, true, false},
		{fakekernel.AnolisV1(), fakekernel.PageCacheSwitch, []knobs.Knob{knobs.BVT}, []knobs.Knob{knobs.PageCache}, true, false},
		{fakekernel.OldAnolisV1(), "", []knobs.Knob{knobs.BVT, knobs.Burst, knobs.IOWeight}, nil, true, false},
		{fakekernel.NewAnolisV2(), "", []knobs.Knob{knobs.CPUIdentity, knobs.CPUPriority, knobs.Idle, knobs.WmarkRatio}, []knobs.Knob{knobs.BVT}, false, true},
		{fakekernel.OpenEuler(), "", []knobs.Knob{knobs.CPUQoS, knobs.MemoryQoS}, []knobs.Knob{knobs.Idle}, true, false},
		{fakekernel.OpenEuler(), fakekernel.MemoryQoSSwitch, []knobs.Knob{knobs.CPUQoS}, []knobs.Knob{knobs.MemoryQoS}, true, false},
		{fakekernel.TencentOS(), "", []knobs.Knob{knobs.CgroupPriority, knobs.CPUOffline, knobs.BTShares, knobs.PageCacheMax, knobs.OOMGroup}, nil, true, false},
		{fakekernel.TencentOS(), fakekernel.CPUQoSSwitch, []knobs.Knob{knobs.CPUOffline}, []knobs.Knob{knobs.CgroupPriority, knobs.BTShares}, true, false},
	}
	for _, test := range tests {
		t.Run(test.flavour.Name+" "+test.off, func(t *testing.T) {
			t.Parallel()
			m := boot(t, test.flavour)
			if test.off != "" {
				m.Switch(test.off, "0")
			}
			m.Mkdir("/sluice-probe-4000000000") // the process of that probe has ended
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
				if feature := f.Knobs[knob]; feature.State != knobs.Unsupported || feature.Why == "" {
					t.Errorf("%s is %+v, want it unsupported", knob, feature)
				} else if cgroupfs.Describe(knob).Gate == test.off && test.off != "" && (feature.Cause != knobs.SwitchedOff || !strings.Contains(feature.Why, "write 1 to /"+test.off)) {
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

// A kernel that crashes with group identity can't be probed, because a probe would use it.
func TestProbeOnKernelsThatCrash(t *testing.T) {
	t.Parallel()
	for _, flavour := range []fakekernel.Flavour{fakekernel.OldAnolisV1(), fakekernel.NewAnolisV2()} {
		m := boot(t, flavour)
		m.Switch("proc/sys/kernel/osrelease", "4.19.91-25.3.al7.x86_64")
		f, err := m.Probe()
		if err != nil {
			t.Fatal(err)
		}
		for _, knob := range []knobs.Knob{knobs.BVT, knobs.CPUIdentity, knobs.CPUPriority} {
			if feature := f.Knobs[knob]; feature.State != knobs.Unsupported || !strings.Contains(feature.Why, "crashes the host") {
				t.Errorf("%s: %s is %+v", flavour.Name, knob, feature)
			}
		}
		if !f.Has(knobs.WmarkRatio) {
			t.Errorf("%s: watermarks are %+v", flavour.Name, f.Knobs[knobs.WmarkRatio])
		}
	}
}
