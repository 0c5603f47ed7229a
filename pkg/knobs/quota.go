package knobs

import (
	"cmp"
	"math"
	"math/bits"
	"strconv"
	"time"
)

// CPUQuota is CFS bandwidth: the cgroup may run for Quota in each Period. A negative Quota is
// unlimited; the zero value is no quota at all.
type CPUQuota struct {
	Quota, Period time.Duration
}

const (
	// MaxBandwidth is the largest sum of a quota and its burst: max_cfs_runtime in
	// kernel/sched/core.c.
	MaxBandwidth = (1<<44 - 1) * time.Microsecond
	// MinQuota is the kernel's least quota and least period (min_cfs_quota_period).
	MinQuota = time.Millisecond
	// DefaultPeriod is the period of a new cgroup, and the kubelet's.
	DefaultPeriod = 100 * time.Millisecond
)

// UnlimitedQuota returns the quota that throttles nothing and leaves the period unchanged.
func UnlimitedQuota() CPUQuota { return CPUQuota{Quota: -1} }

// MicroQuota returns the quota for microseconds as in the OCI runtime specification, where a
// negative quota is unlimited and 0 is none.
func MicroQuota(quota int64, period uint64) CPUQuota {
	if quota < 0 {
		return UnlimitedQuota()
	}
	if quota == 0 || period == 0 {
		return CPUQuota{}
	}
	return CPUQuota{Quota: time.Duration(quota) * time.Microsecond, Period: time.Duration(period) * time.Microsecond}
}

// Unlimited reports whether the quota throttles nothing.
func (q CPUQuota) Unlimited() bool { return q.Quota < 0 }

// Finite reports whether the quota throttles: it is neither unlimited nor the zero value.
func (q CPUQuota) Finite() bool { return q.Quota > 0 && q.Period > 0 }

// CPUs returns the number of CPUs that a finite quota amounts to.
func (q CPUQuota) CPUs() float64 { return float64(q.Quota) / float64(q.Period) }

// Milli returns the quota in thousandths of a CPU, or 0 if it is not finite.
func (q CPUQuota) Milli() int64 {
	if !q.Finite() {
		return 0
	}
	return q.per(1000)
}

// In returns the CPU time that a finite quota allows in a period of another length.
func (q CPUQuota) In(period time.Duration) time.Duration { return time.Duration(q.per(int64(period))) }

// per returns a finite quota in n-ths of a CPU, rounded down, or the largest number if the
// result is larger.
func (q CPUQuota) per(n int64) int64 {
	hi, lo := bits.Mul64(uint64(q.Quota), uint64(n))
	if hi >= uint64(q.Period) {
		return math.MaxInt64
	}
	part, _ := bits.Div64(hi, lo, uint64(q.Period))
	return int64(min(part, math.MaxInt64))
}

// Compare returns a negative number if q allows less CPU time than r, a positive one if it
// allows more, and 0 if both allow the same. An unlimited quota is above all others.
func (q CPUQuota) Compare(r CPUQuota) int {
	switch {
	case q.Unlimited() && r.Unlimited():
		return 0
	case q.Unlimited():
		return 1
	case r.Unlimited():
		return -1
	}
	// The products have more than 64 bits where quotas or periods are long.
	qHigh, qLow := bits.Mul64(uint64(q.Quota), uint64(r.Period))
	rHigh, rLow := bits.Mul64(uint64(r.Quota), uint64(q.Period))
	return cmp.Or(cmp.Compare(qHigh, rHigh), cmp.Compare(qLow, rLow))
}

func (q CPUQuota) String() string {
	if q.Unlimited() {
		return "unlimited"
	}
	return strconv.FormatFloat(q.CPUs(), 'g', 6, 64) + " CPUs"
}
