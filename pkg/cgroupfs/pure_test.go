package cgroupfs

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// pretend is a driver with nothing mounted but the version of cpu and io.
func pretend(v2 bool) *Driver {
	h := &hierarchy{v2: v2}
	return &Driver{cpu: h, io: h, memory: h, cpuset: h, netCls: h}
}

func TestWeightOf(t *testing.T) {
	t.Parallel()
	for shares, want := range map[plan.Shares]int64{2: 1, 0: 1, 512: 20, 1024: 39, 10240: 391, 262144: 10000, 999999: 10000} {
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
		want := plan.Shares(rapid.Int64Range(-5, 300000).Draw(t, "shares"))
		if have := SharesOf(WeightOf(want)); !pretend(true).Same(plan.Weight, want, have) {
			t.Fatalf("%v written on v2 read back as %v", want, have)
		}
		if !pretend(false).Same(plan.Weight, want, clamp(want)) {
			t.Fatalf("%v written on v1 read back as %v", want, clamp(want))
		}
	})
}

func TestSame(t *testing.T) {
	t.Parallel()
	quota := func(quota, period time.Duration) plan.Value { return plan.CPUQuota{Quota: quota, Period: period} }
	const ms = time.Millisecond
	tests := []struct {
		knob       plan.Knob
		want, have plan.Value
		v1, v2     bool
	}{
		{plan.Weight, plan.Shares(1024), plan.Shares(1010), false, true}, // both weight 39
		{plan.Weight, plan.Shares(1024), plan.Shares(2), false, false},
		{plan.Weight, plan.Shares(2), plan.Shares(0), false, false}, // idle
		{plan.Weight, plan.Shares(2), plan.Shares(3), false, true},
		{plan.Weight, plan.Shares(2), plan.Number(2), false, false},
		{plan.Weight, plan.Shares(2), nil, false, false},
		{plan.Quota, quota(50*ms, 100*ms), quota(50*ms, 100*ms), true, true},
		{plan.Quota, quota(50*ms+1, 100*ms), quota(50*ms, 100*ms), true, true},
		{plan.Quota, quota(25*ms, 50*ms), quota(50*ms, 100*ms), false, false},
		{plan.Quota, quota(-1, 0), quota(-1, 50*ms), true, true},
		{plan.Quota, quota(-1, 100*ms), quota(-1, 50*ms), false, false},
		{plan.Quota, quota(-1, 0), quota(50*ms, 100*ms), false, false},
		{plan.Burst, plan.CPUBurst(ms + 10), plan.CPUBurst(ms), true, true},
		{plan.MemoryHigh, plan.Bytes(100_000_000), plan.Bytes(99_999_744), true, true},
		{plan.MemoryHigh, plan.Bytes(100_000_000), plan.Bytes(99_999_743), false, false},
		{plan.MemoryHigh, plan.Bytes(-5), plan.Max, true, true},
		{plan.MemoryHigh, plan.Max, plan.Bytes(1 << 40), false, false},
		{plan.WmarkMinAdj, plan.Number(-25), plan.Number(-10), true, true},
		{plan.WmarkMinAdj, plan.Number(-25), plan.Number(0), false, false},
		{plan.WmarkMinAdj, plan.Number(-25), plan.Number(50), false, false},
		{plan.WmarkMinAdj, plan.Number(-10), plan.Number(-25), false, false},
		{plan.WmarkMinAdj, plan.Number(20), plan.Number(50), true, true},
		{plan.WmarkMinAdj, plan.Number(0), plan.Number(50), false, false},
		{plan.BVT, plan.Number(-1), plan.Number(2), false, false},
		{plan.CPUs, plan.CPUSet{}, plan.CPUSet(cpuset.Of(1)), false, false},
		{plan.IOMax, plan.PerDevice("8:16 wiops=5\n8:0 rbps=max wbps=7"), plan.PerDevice("8:0 wbps=7\n8:16 wiops=5"), true, true},
		{plan.IOMax, plan.PerDevice("8:16 wiops=4294967295"), plan.PerDevice(""), true, true},
		{plan.IOMax, plan.PerDevice("8:16 wiops=5"), plan.PerDevice(""), false, false},
		{plan.IOMax, plan.PerDevice("nonsense"), plan.PerDevice(""), false, false},
		{plan.IOWeight, plan.PerDevice("default 100"), plan.PerDevice(""), true, true},
		{plan.IOWeight, plan.PerDevice("default 5000"), plan.PerDevice("default 1000"), true, true},
		{plan.IOWeight, plan.PerDevice("default 50"), plan.PerDevice("default 51"), false, false},
	}
	for _, test := range tests {
		for v2, want := range map[bool]bool{false: test.v1, true: test.v2} {
			if got := pretend(v2).Same(test.knob, test.want, test.have); got != want {
				t.Errorf("%s %s: %v and %v are the same: %v, want %v", version(v2), test.knob, test.want, test.have, got, want)
			}
		}
	}
}

// The descriptions are complete.
func TestSpecs(t *testing.T) {
	t.Parallel()
	for knob := range plan.Knobs {
		s := Describe(knob)
		if s.Controller == "" || s.V1 == nil && s.V2 == nil || s.test == nil || s.read == nil || s.write == nil || s.Default == nil || s.ReadBack == "" {
			t.Errorf("%s is described as %+v", knob, s)
		}
		if (s.ReadBack == Exact) == (s.same != nil) && knob != plan.Burst && knob > plan.Mems {
			t.Errorf("%s is %s but its way to compare says otherwise", knob, s.ReadBack)
		}
		if n, ok := s.Default.(plan.Number); ok && (int64(n) < s.Min || int64(n) > s.Max) {
			t.Errorf("the default of %s is out of its range", knob)
		}
		if err := s.check(knob, s.test); err != nil {
			t.Error(err)
		}
	}
	d := pretend(true)
	if _, err := d.Read("/", plan.Knobs); !errors.Is(err, ErrUnsupported) {
		t.Errorf("an unknown knob: %v", err)
	}
}

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]plan.Bytes{"0": 0, "4096": 4096, "max": plan.Max, "9223372036854771712": plan.Max, "9223372036854710272": plan.Max} {
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
		if err != nil || formatIOMax(again) != once || !sameIOMax(plan.PerDevice(text), once, true) {
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
		if ok && b < plan.Max || ok && b >= 0 && strconv.FormatInt(int64(b), 10) != strings.TrimLeft(text, "+0") && b != 0 {
			t.Errorf("%q is %v", text, b)
		}
		if n := amount([]byte(text)); n < plan.Max {
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
