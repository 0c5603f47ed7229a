package cgroupfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// quotaSpec is the CFS quota, in µs per period of 1000 to 1000000 µs. The kernel answers EINVAL
// to a quota below 1000 µs and, on v1, to a ratio of quota to period above the parent's; v2
// accepts any ratio and applies the lowest.
var quotaSpec = Spec{
	Controller: "cpu", V1: []string{quotaFile1}, V2: []string{quotaFile2},
	Default: knobs.CPUQuota{Quota: -1, Period: knobs.DefaultPeriod}, ReadBack: Rounded,
	invalid: "the quota may not fall below the burst in force, nor, on cgroup v1, exceed the parent's ratio or fall below a child's",
	test:    knobs.CPUQuota{Quota: 50 * time.Millisecond, Period: knobs.DefaultPeriod}, read: readQuota, write: writeQuota, same: sameQuota,
}

const (
	quotaFile1  = "cpu.cfs_quota_us"
	periodFile1 = "cpu.cfs_period_us"
	quotaFile2  = "cpu.max"
)

// writeQuota sets the CFS quota and period. An unlimited quota without a period doesn't change
// the period.
func writeQuota(c *cgroup, _ *Spec, to knobs.Change) error {
	want, _ := to.To.(knobs.CPUQuota)
	if !c.in.v2 {
		return c.keepBurst(burstFiles1, func() error { return c.writeQuota1(want) })
	}
	text := "max"
	if !want.Unlimited() {
		text = micros(want.Quota)
	}
	if want.Period > 0 {
		text += " " + micros(want.Period)
	}
	return c.keepBurst(burstFiles2, func() error { return c.write(quotaFile2, text) })
}

// keepBurst restores the burst if writing the quota changed it: v2 divides it by 1000 before
// 6.10 (cpu_max_write in kernel/sched/core.c passes µs for ns), and some 4.19 vendor kernels
// set it to 0.
func (c *cgroup) keepBurst(files []string, write func() error) error {
	before, err := c.readCached(files...)
	if err != nil || before == "0" {
		return write() // there is no burst to restore
	}
	if err := write(); err != nil {
		return err
	}
	after, err := c.readCached(files...)
	if err != nil || after == before {
		return err
	}
	return c.writeFirst(files, before)
}

// writeQuota1 sets v1's two files. With a new period, writing either file alone changes the
// ratio, which may temporarily exceed the parent's or fall below a child's (EINVAL). An
// unlimited quota in between never does. If a write fails, writeQuota1 restores the old values.
func (c *cgroup) writeQuota1(want knobs.CPUQuota) error {
	quota := "-1"
	if !want.Unlimited() {
		quota = micros(want.Quota)
	}
	old, err := c.readQuota()
	if err != nil {
		return err
	}
	if want.Period == old.Period || want.Unlimited() && want.Period == 0 {
		return c.write(quotaFile1, quota)
	}
	if err := c.write(quotaFile1, "-1"); err != nil {
		return err
	}
	err = c.write(periodFile1, micros(want.Period))
	if err == nil && !want.Unlimited() {
		err = c.write(quotaFile1, quota)
	}
	if err == nil {
		return nil
	}
	back := c.write(periodFile1, micros(old.Period))
	if !old.Unlimited() {
		back = errors.Join(back, c.write(quotaFile1, micros(old.Quota)))
	}
	return errors.Join(err, back)
}

func readQuota(c *cgroup, _ *Spec) (knobs.Value, error) {
	q, err := c.readQuota()
	if err != nil {
		return nil, err
	}
	return q, nil
}

func sameQuota(want, have knobs.Value, _ bool) bool {
	a, _ := want.(knobs.CPUQuota)
	b, _ := have.(knobs.CPUQuota)
	if a.Unlimited() && a.Period == 0 {
		return b.Unlimited()
	}
	return a.Unlimited() == b.Unlimited() && a.Period.Microseconds() == b.Period.Microseconds() &&
		(a.Unlimited() || a.Quota.Microseconds() == b.Quota.Microseconds())
}

func (c *cgroup) readQuota() (knobs.CPUQuota, error) {
	if c.in.v2 {
		text, err := c.readCached(quotaFile2)
		if err != nil {
			return knobs.CPUQuota{}, err
		}
		return parseQuota(text)
	}
	quota, err := c.readCached(quotaFile1)
	if err != nil {
		return knobs.CPUQuota{}, err
	}
	period, err := c.readCached(periodFile1)
	if err != nil {
		return knobs.CPUQuota{}, err
	}
	return parseQuota(quota + " " + period)
}

// parseQuota reads "<quota> <period>" in µs, as in cpu.max. "max" and, on v1, -1 mean
// unlimited.
func parseQuota(text string) (knobs.CPUQuota, error) {
	quota, period, _ := strings.Cut(text, " ")
	p, err := strconv.ParseUint(period, 10, 32)
	if err != nil || p == 0 {
		return knobs.CPUQuota{}, fmt.Errorf("CPU quota %.60q: the period is not a number of microseconds", text)
	}
	q := knobs.CPUQuota{Quota: -1, Period: time.Duration(p) * time.Microsecond}
	if quota == "max" || quota == "-1" {
		return q, nil
	}
	// knobs.MaxBandwidth has 44 bits in µs, so the product can't overflow.
	n, err := strconv.ParseUint(quota, 10, 44)
	if err != nil {
		return knobs.CPUQuota{}, fmt.Errorf("CPU quota %.60q: the quota is neither max, -1 nor a number of microseconds", text)
	}
	q.Quota = time.Duration(n) * time.Microsecond
	return q, nil
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
