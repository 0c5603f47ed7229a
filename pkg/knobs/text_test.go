package knobs

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestValueText(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, test := range []struct {
		knob Knob
		text string
		want Value
		back string // canonical text; "" if it is the same
	}{
		{CPUs, "0-3,8", set("0-3,8"), ""},
		{CPUs, "all", CPUSet{}, ""},
		{Mems, "", CPUSet{}, "all"},
		{Quota, "50000 100000", CPUQuota{50 * ms, 100 * ms}, ""},
		{Quota, "max 100000", CPUQuota{-1, 100 * ms}, ""},
		{Quota, "max", CPUQuota{Quota: -1}, ""},
		{Quota, "50000", nil, ""},
		{Quota, "-1 100000", nil, ""},
		{Quota, "50000 0", nil, ""},
		{Quota, "17592186044416 100000", nil, ""},
		{Burst, "5000000", CPUBurst(5 * time.Second), ""},
		{Burst, "-1", nil, ""},
		{Weight, "1024", Shares(1024), ""},
		{Weight, "max", nil, ""},
		{BTShares, "2", Shares(2), ""},
		{BVT, "-1", Number(-1), ""},
		{WmarkMinAdj, "-25", Number(-25), ""},
		{WmarkMinAdj, "a", nil, ""},
		{MemoryMax, "max", Max, ""},
		{MemoryHigh, "1048576", Bytes(1 << 20), ""},
		{MemoryMin, "-1", nil, ""},
		{PageCache, "9223372036854775808", nil, ""},
		{IOWeight, "", PerDevice(""), ""},
		{IOWeight, "default 100", PerDevice(""), "\x00"},
		{IOWeight, "8:16 200\ndefault 50\n8:0 50\n", PerDevice("default 50\n8:0 50\n8:16 200"), "default 50\n8:0 50\n8:16 200"},
		{IOWeight, "default 0", nil, ""},
		{IOWeight, "sda 10", nil, ""},
		{IOMax, "8:16 rbps=max wbps=2 riops=max wiops=max\n8:0 wiops=3 rbps=1\n9:0 rbps=max", PerDevice("8:0 rbps=1 wiops=3\n8:16 wbps=2"), "8:0 rbps=1 wiops=3\n8:16 wbps=2"},
		{IOMax, "8:0 rbps=0", nil, ""},
		{IOMax, "8:0 bps=1", nil, ""},
		{IOMax, "8 rbps=1", nil, ""},
		{IOMax, "10:0 rbps=1\n9:0 rbps=1", PerDevice("9:0 rbps=1\n10:0 rbps=1"), "9:0 rbps=1\n10:0 rbps=1"},
	} {
		got, err := ParseValue(test.knob, test.text)
		if got != test.want || (err == nil) != (test.want != nil) {
			t.Errorf("%s %q is %v (%v), want %v", test.knob, test.text, got, err, test.want)
			continue
		}
		want := test.text
		switch test.back {
		case "":
		case "\x00":
			want = ""
		default:
			want = test.back
		}
		if err == nil && FormatValue(got) != want {
			t.Errorf("%s %q is written %q, want %q", test.knob, test.text, FormatValue(got), want)
		}
	}
}

func TestKnobNames(t *testing.T) {
	t.Parallel()
	for k := range Knobs {
		var back Knob
		text, err := k.MarshalText()
		if err != nil || back.UnmarshalText(text) != nil || back != k {
			t.Errorf("knob %d is %q (%v), and back %d", k, text, err, back)
		}
	}
	if err := new(Knob).UnmarshalText([]byte("cpu.turbo")); err == nil {
		t.Error("cpu.turbo is a knob")
	}
	if _, known := KnobByName(""); known {
		t.Error("nothing is a knob")
	}
}

// Formatting and parsing returns every value that a knob may have.
func TestValuesSurviveText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := Knob(rapid.IntRange(0, int(Knobs)-1).Draw(t, "knob"))
		value := drawValue(t, k)
		back, err := ParseValue(k, FormatValue(value))
		if err != nil || back != value {
			t.Fatalf("%s %v is written %q and read %v (%v)", k, value, FormatValue(value), back, err)
		}
	})
}

func drawValue(t *rapid.T, k Knob) Value {
	micros := rapid.Int64Range(0, 1<<44-1).Draw(t, "µs")
	device := func() Device {
		return Device{rapid.Uint32Range(0, 4095).Draw(t, "major"), rapid.Uint32Range(0, 1<<20-1).Draw(t, "minor")}
	}
	switch table[k].kind {
	case cpuSet:
		var s CPUSet
		for _, cpu := range rapid.SliceOf(rapid.IntRange(0, 1023)).Draw(t, "CPUs") {
			s.add(cpu)
		}
		return s
	case cpuQuota:
		q := CPUQuota{Quota: -1, Period: time.Duration(rapid.Int64Range(0, 1<<32-1).Draw(t, "period")) * time.Microsecond}
		if q.Period > 0 && rapid.Bool().Draw(t, "limited") {
			q.Quota = time.Duration(micros) * time.Microsecond
		}
		return q
	case cpuBurst:
		return CPUBurst(time.Duration(micros) * time.Microsecond)
	case shares:
		return Shares(micros)
	case amount:
		return Bytes(rapid.Int64Min(-1).Draw(t, "bytes"))
	case number, percent:
		return Number(rapid.Int64().Draw(t, "number"))
	case policy:
		return IOPolicy(rapid.StringMatching("[a-z-]+").Draw(t, "policy"))
	case weights:
		w := Weights{Default: rapid.IntRange(1, 10000).Draw(t, "default"), Devices: map[Device]int{}}
		for range rapid.IntRange(0, 4).Draw(t, "devices") {
			w.Devices[device()] = rapid.IntRange(1, 10000).Draw(t, "weight")
		}
		return w.PerDevice()
	case throttles:
		all := Throttles{}
		for range rapid.IntRange(0, 4).Draw(t, "devices") {
			limit := rapid.Int64Min(0)
			all[device()] = Throttle{limit.Draw(t, "rbps"), limit.Draw(t, "wbps"), limit.Draw(t, "riops"), limit.Draw(t, "wiops")}
		}
		return all.PerDevice()
	}
	t.Fatalf("there are no values to try for %s", k)
	return nil
}

func (s *CPUSet) add(cpu int) {
	members := cpuset.Set(*s)
	members.Add(cpu)
	*s = CPUSet(members)
}

func FuzzParseValue(f *testing.F) {
	for _, seed := range []struct {
		knob Knob
		text string
	}{
		{CPUs, "0-3,8"}, {Quota, "max 100000"}, {Quota, "1 1"}, {Burst, "7"}, {MemoryMax, "max"}, {BVT, "-1"},
		{IOWeight, "default 50\n8:0 200"}, {IOMax, "8:0 rbps=1 wiops=max"},
	} {
		f.Add(uint8(seed.knob), seed.text)
	}
	f.Fuzz(func(t *testing.T, knob uint8, text string) {
		k := Knob(knob) % Knobs
		value, err := ParseValue(k, text)
		if err != nil {
			if value != nil {
				t.Fatalf("%s %q is both %v and wrong: %v", k, text, value, err)
			}
			return
		}
		written := FormatValue(value)
		if again, err := ParseValue(k, written); err != nil || again != value {
			t.Fatalf("%s %q is %v, written %q, read %v (%v)", k, text, value, written, again, err)
		}
	})
}

func TestSuspect(t *testing.T) {
	t.Parallel()
	ctr, pod, class := Object{Level: ContainerLevel}, Object{Level: PodLevel}, Object{Level: ClassLevel}
	for name, test := range map[string]struct {
		drift Drift
		want  string // beginning of the error
	}{
		"a runtime update": {Drift{Object: ctr, Knob: Weight, Found: Shares(512), Recorded: Shares(512)},
			"the runtime (an update): "},
		"a daemon-reload": {Drift{Object: ctr, Knob: Weight, Found: Shares(512), Recorded: Shares(512), Systemd: true},
			"the runtime (an update, or a systemd daemon-reload): "},
		"the record speaks before koordlet": {Drift{Object: ctr, Knob: Quota, Found: limit(500), Recorded: limit(500), Koordlet: true},
			"the runtime"},
		"static CPU manager": {Drift{Object: ctr, Knob: CPUs, Found: set("0-3"), Recorded: set("4"), StaticCPU: true},
			"the kubelet: its static CPU manager"},
		"koordlet":                   {Drift{Object: ctr, Knob: BVT, Found: Number(2), Koordlet: true}, "koordlet: "},
		"katalyst":                   {Drift{Object: pod, Knob: Weight, Found: Shares(2), Katalyst: true}, "katalyst-agent: "},
		"both":                       {Drift{Object: pod, Knob: Weight, Found: Shares(2), Katalyst: true, Koordlet: true}, "koordlet or katalyst-agent: "},
		"a QoS class":                {Drift{Object: class, Knob: Weight, Found: Shares(2)}, "the kubelet: it writes this file of its QoS classes"},
		"a resized pod":              {Drift{Object: pod, Knob: Quota, Found: limit(500)}, "the kubelet: it writes this file of a pod"},
		"an unknown record":          {Drift{Object: ctr, Knob: MemoryMax, Found: Max, Default: Max}, "the runtime (an update) or the kubelet: "},
		"not what is recorded":       {Drift{Object: ctr, Knob: Weight, Found: Shares(3), Recorded: Shares(2)}, "somebody else: "},
		"the kernel's default":       {Drift{Object: ctr, Knob: Burst, Found: CPUBurst(0), Default: CPUBurst(0)}, "somebody who made the cgroup anew"},
		"a unit of systemd's":        {Drift{Object: pod, Knob: OOMGroup, Found: Number(0), Default: Number(0), Systemd: true}, "systemd: "},
		"a slice before its kubelet": {Drift{Object: class, Knob: MemoryMin, Found: Bytes(0), Default: Bytes(0), Systemd: true}, "systemd: "},
		"nobody known":               {Drift{Object: pod, Knob: Burst, Found: CPUBurst(7), Default: CPUBurst(0)}, "somebody else: "},
		"a pod has no such record":   {Drift{Object: pod, Knob: Idle, Found: Number(0), Recorded: Number(0)}, "somebody else: "},
	} {
		if got := test.drift.Suspect(); len(got) < len(test.want) || got[:len(test.want)] != test.want {
			t.Errorf("%s: %q, want %q...", name, got, test.want)
		}
	}
}
