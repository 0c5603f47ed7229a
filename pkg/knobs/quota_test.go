package knobs

import (
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
