package cgroupfs

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// pretend returns a driver without hierarchies, which only knows the cgroup version of cpu and io.
func pretend(v2 bool) *Driver {
	h := &hierarchy{v2: v2}
	return &Driver{cpu: h, io: h, memory: h, cpuset: h, netCls: h}
}

func TestWeightOf(t *testing.T) {
	t.Parallel()
	for shares, want := range map[knobs.Shares]int64{2: 1, 0: 1, 512: 20, 1024: 39, 10240: 391, 262144: 10000, 999999: 10000} {
		if got := WeightOf(shares); got != want {
			t.Errorf("%v are weight %d, want %d", shares, got, want)
		}
	}
	for weight := int64(1); weight <= 10000; weight++ {
		if got := WeightOf(SharesOf(weight)); got != weight {
			t.Fatalf("weight %d comes back as %d", weight, got)
		}
	}
	if SharesOf(0) != 0 {
		t.Error("the weight of an idle cgroup is taken for one")
	}
}

func TestSameWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := knobs.Shares(rapid.Int64Range(-5, 300000).Draw(t, "shares"))
		if have := SharesOf(WeightOf(want)); !pretend(true).Same(knobs.Weight, want, have) {
			t.Fatalf("%v written on v2 read back as %v", want, have)
		}
		if !pretend(false).Same(knobs.Weight, want, clamp(want)) {
			t.Fatalf("%v written on v1 read back as %v", want, clamp(want))
		}
	})
}

func TestSame(t *testing.T) {
	t.Parallel()
	quota := func(quota, period time.Duration) knobs.Value { return knobs.CPUQuota{Quota: quota, Period: period} }
	const ms = time.Millisecond
	tests := []struct {
		knob       knobs.Knob
		want, have knobs.Value
		v1, v2     bool
	}{
		{knobs.Weight, knobs.Shares(1024), knobs.Shares(1010), false, true}, // both are weight 39
		{knobs.Weight, knobs.Shares(1024), knobs.Shares(2), false, false},
		{knobs.Weight, knobs.Shares(2), knobs.Shares(0), false, false}, // idle groups
		{knobs.Weight, knobs.Shares(2), knobs.Shares(3), false, true},
		{knobs.Weight, knobs.Shares(2), knobs.Number(2), false, false},
		{knobs.Weight, knobs.Shares(2), nil, false, false},
		{knobs.Quota, quota(50*ms, 100*ms), quota(50*ms, 100*ms), true, true},
		{knobs.Quota, quota(50*ms+1, 100*ms), quota(50*ms, 100*ms), true, true},
		{knobs.Quota, quota(25*ms, 50*ms), quota(50*ms, 100*ms), false, false},
		{knobs.Quota, quota(-1, 0), quota(-1, 50*ms), true, true},
		{knobs.Quota, quota(-1, 100*ms), quota(-1, 50*ms), false, false},
		{knobs.Quota, quota(-1, 0), quota(50*ms, 100*ms), false, false},
		{knobs.Burst, knobs.CPUBurst(ms + 10), knobs.CPUBurst(ms), true, true},
		{knobs.MemoryHigh, knobs.Bytes(100_000_000), knobs.Bytes(99_999_744), true, true},
		{knobs.MemoryHigh, knobs.Bytes(100_000_000), knobs.Bytes(99_999_743), false, false},
		{knobs.MemoryHigh, knobs.Bytes(-5), knobs.Max, true, true},
		{knobs.MemoryHigh, knobs.Max, knobs.Bytes(1 << 40), false, false},
		{knobs.WmarkMinAdj, knobs.Number(-25), knobs.Number(-10), true, true},
		{knobs.WmarkMinAdj, knobs.Number(-25), knobs.Number(0), false, false},
		{knobs.WmarkMinAdj, knobs.Number(-25), knobs.Number(50), false, false},
		{knobs.WmarkMinAdj, knobs.Number(-10), knobs.Number(-25), false, false},
		{knobs.WmarkMinAdj, knobs.Number(20), knobs.Number(50), true, true},
		{knobs.WmarkMinAdj, knobs.Number(0), knobs.Number(50), false, false},
		{knobs.BVT, knobs.Number(-1), knobs.Number(2), false, false},
		{knobs.CPUs, knobs.CPUSet{}, knobs.CPUSet(cpuset.Of(1)), false, false},
		{knobs.IOMax, knobs.PerDevice("8:16 wiops=5\n8:0 rbps=max wbps=7"), knobs.PerDevice("8:0 wbps=7\n8:16 wiops=5"), true, true},
		{knobs.IOMax, knobs.PerDevice("8:16 wiops=4294967295"), knobs.PerDevice(""), true, true},
		{knobs.IOMax, knobs.PerDevice("8:16 wiops=5"), knobs.PerDevice(""), false, false},
		{knobs.IOMax, knobs.PerDevice("nonsense"), knobs.PerDevice(""), false, false},
		{knobs.IOWeight, knobs.PerDevice("default 100"), knobs.PerDevice(""), true, true},
		{knobs.IOWeight, knobs.PerDevice("default 5000"), knobs.PerDevice("default 1000"), true, true},
		{knobs.IOWeight, knobs.PerDevice("default 50"), knobs.PerDevice("default 51"), false, false},
	}
	for _, test := range tests {
		for v2, want := range map[bool]bool{false: test.v1, true: test.v2} {
			if got := pretend(v2).Same(test.knob, test.want, test.have); got != want {
				t.Errorf("%s %s: %v and %v are the same: %v, want %v", version(v2), test.knob, test.want, test.have, got, want)
			}
		}
	}
}

// The table of the knobs' files is complete.
func TestSpecs(t *testing.T) {
	t.Parallel()
	for knob := range knobs.Knobs {
		s := Describe(knob)
		if s.Controller == "" || s.V1 == nil && s.V2 == nil || s.test == nil || s.read == nil || s.write == nil || s.Default == nil || s.ReadBack == "" {
			t.Errorf("%s is described as %+v", knob, s)
		}
		if (s.ReadBack == Exact) == (s.same != nil) && knob != knobs.Burst && knob > knobs.Mems {
			t.Errorf("%s is %s but its way to compare says otherwise", knob, s.ReadBack)
		}
		if n, ok := s.Default.(knobs.Number); ok && (int64(n) < s.Min || int64(n) > s.Max) {
			t.Errorf("the default of %s is out of its range", knob)
		}
		for _, v := range []knobs.Value{s.test, s.Default} {
			if !knob.Takes(v) {
				t.Errorf("%s has the value %v in its description, and does not take it", knob, v)
			}
		}
		if err := s.check(knob, s.test); err != nil {
			t.Error(err)
		}
		if knob.RuntimeField() == knobs.UnifiedField && (len(s.V2) != 1 || s.V2[0] != knob.String()) {
			t.Errorf("runtimes take %s by the name of its file on v2, which is %q", knob, s.V2)
		}
	}
	d := pretend(true)
	if _, err := d.Read("/", knobs.Knobs); !errors.Is(err, ErrUnsupported) {
		t.Errorf("an unknown knob: %v", err)
	}
}

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]knobs.Bytes{"0": 0, "4096": 4096, "max": knobs.Max, "9223372036854771712": knobs.Max, "9223372036854710272": knobs.Max} {
		if got, ok := parseBytes(text); !ok || got != want {
			t.Errorf("%q is %v, %v", text, got, ok)
		}
		if got := amount([]byte(text + "\n")); got != want {
			t.Errorf("the amount of %q is %v", text, got)
		}
	}
	for _, text := range []string{"", "-1", "x", "9223372036854775808", "1 "} {
		if got, ok := parseBytes(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func FuzzIOMax(f *testing.F) {
	f.Add("8:0 rbps=1048576 wbps=max riops=max wiops=100\n8:16 wiops=5")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseIOMax(text)
		if err != nil {
			return
		}
		once := formatIOMax(all)
		again, err := parseIOMax(string(once))
		if err != nil || formatIOMax(again) != once || !sameIOMax(knobs.PerDevice(text), once, true) {
			t.Errorf("%q is %q, then %q, %v", text, once, formatIOMax(again), err)
		}
	})
}

func FuzzIOWeight(f *testing.F) {
	f.Add("default 50\n8:0 200")
	f.Add("100")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseIOWeight(text)
		if err != nil {
			return
		}
		again, err := parseIOWeight(string(w.format()))
		if err != nil || again.format() != w.format() {
			t.Errorf("%q is %q, then %q, %v", text, w.format(), again.format(), err)
		}
	})
}

func FuzzBytes(f *testing.F) {
	f.Add("9223372036854771712")
	f.Add("max")
	f.Fuzz(func(t *testing.T, text string) {
		b, ok := parseBytes(text)
		if ok && b < knobs.Max || ok && b >= 0 && strconv.FormatInt(int64(b), 10) != strings.TrimLeft(text, "+0") && b != 0 {
			t.Errorf("%q is %v", text, b)
		}
		if n := amount([]byte(text)); n < knobs.Max {
			t.Errorf("the amount of %q is %v", text, n)
		}
	})
}

func FuzzMemoryText(f *testing.F) {
	f.Add("anon 12\nfile 34\n", "file")
	f.Add("some avg10=1.50 avg60=0.70 avg300=0.10 total=12345\n", "some")
	f.Fuzz(func(t *testing.T, text, name string) {
		field([]byte(text), name)
		if p := someAvg10([]byte(text)); p != -1 && !(p >= 0 && p <= 100) {
			t.Errorf("the pressure of %q is %v", text, p)
		}
	})
}

func TestField(t *testing.T) {
	t.Parallel()
	text := []byte("anon 12\nfile_mapped 5\nfile 34\nlast 7")
	for name, want := range map[string]string{"anon": "12", "file": "34", "last": "7", "none": "", "file_": ""} {
		if got := string(field(text, name)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
