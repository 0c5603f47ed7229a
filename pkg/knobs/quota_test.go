package knobs

import (
	"math"
	"testing"
	"time"
)

func TestCompareQuotas(t *testing.T) {
	t.Parallel()
	quota := func(quota, period time.Duration) CPUQuota { return CPUQuota{Quota: quota, Period: period} }
	unlimited := CPUQuota{Quota: -1}
	for name, test := range map[string]struct {
		q, r CPUQuota
		want int
	}{
		"less":                           {quota(50*time.Millisecond, 100*time.Millisecond), quota(time.Second, time.Second), -1},
		"the same in another period":     {quota(50*time.Millisecond, 100*time.Millisecond), quota(5*time.Millisecond, 10*time.Millisecond), 0},
		"thirds of a CPU, by 1 µs":       {quota(33333*time.Microsecond, 100*time.Millisecond), quota(333333*time.Microsecond, time.Second), -1},
		"unlimited":                      {unlimited, quota(time.Hour, time.Microsecond), 1},
		"unlimited, with a period":       {unlimited, quota(-1, 100*time.Millisecond), 0},
		"4096 CPUs of long periods":      {quota(4096*time.Second, time.Second), quota(4095*time.Second, time.Second), 1},
		"the most that the kernel takes": {quota(1<<44*time.Microsecond, time.Second), quota(1<<43*time.Microsecond, time.Second), 1},
		"none":                           {CPUQuota{}, unlimited, -1},
	} {
		if got := test.q.Compare(test.r); got != test.want {
			t.Errorf("%s: %s and %s are compared as %d, want %d", name, test.q, test.r, got, test.want)
		}
		if got := test.r.Compare(test.q); got != -test.want {
			t.Errorf("%s, the other way round: %d, want %d", name, got, -test.want)
		}
	}
}

func TestQuotaInCPUs(t *testing.T) {
	t.Parallel()
	for q, want := range map[CPUQuota]struct {
		finite bool
		milli  int64
	}{
		{}:                             {},
		{Quota: -1}:                    {},
		{Quota: -1, Period: time.Hour}: {},
		{Quota: 25 * time.Millisecond, Period: 100 * time.Millisecond}: {true, 250},
		{Quota: 1 << 44 * time.Microsecond, Period: time.Millisecond}:  {true, 1 << 44 * 1000 / 1000},
	} {
		if q.Finite() != want.finite || q.Milli() != want.milli {
			t.Errorf("%+v: finite %t with %d thousandths, want %+v", q, q.Finite(), q.Milli(), want)
		}
		if want.finite && int64(q.CPUs()*1000) != want.milli {
			t.Errorf("%+v is %g CPUs", q, q.CPUs())
		}
	}
}

func TestQuotaInAnotherPeriod(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		quota, period, in, want time.Duration
	}{
		"the same":         {50 * ms, 100 * ms, 100 * ms, 50 * ms},
		"longer":           {50 * ms, 100 * ms, 500 * ms, 250 * ms},
		"rounded down":     {ms, 3 * ms, 100 * ms, 33333333},
		"never below":      {333333 * time.Microsecond, time.Second, time.Second, 333333 * time.Microsecond},
		"more than can be": {MaxBandwidth, ms, time.Hour, math.MaxInt64},
	} {
		if got := (CPUQuota{test.quota, test.period}).In(test.in); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestMicroQuota(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		quota  int64
		period uint64
		want   CPUQuota
	}{
		{50000, 100000, CPUQuota{50 * time.Millisecond, DefaultPeriod}},
		{-1, 100000, UnlimitedQuota()},
		{-1, 0, UnlimitedQuota()},
		{0, 100000, CPUQuota{}},
		{50000, 0, CPUQuota{}},
	} {
		if got := MicroQuota(test.quota, test.period); got != test.want {
			t.Errorf("%d per %d is %v, want %v", test.quota, test.period, got, test.want)
		}
	}
}

func TestRequestShares(t *testing.T) {
	t.Parallel()
	for milli, want := range map[int64]Shares{-1: 2, 0: 2, 1: 2, 2: 2, 3: 3, 100: 102, 1000: 1024, 255999: 262142, 256000: MaxShares, math.MaxInt64: MaxShares} {
		if got := RequestShares(milli); got != want {
			t.Errorf("%d thousandths of a CPU are %s, want %s", milli, got, want)
		}
	}
}

func TestCompareBytes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		b, c Bytes
		want int
	}{
		"less": {1, 2, -1}, "the same": {2, 2, 0}, "less than no limit": {math.MaxInt64, Max, -1}, "no limits": {Max, -2, 0},
	} {
		if got := test.b.Compare(test.c); got != test.want || test.c.Compare(test.b) != -test.want {
			t.Errorf("%s: %d, and %d the other way round", name, got, test.c.Compare(test.b))
		}
	}
}
