package cgroupfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/plan"
)

const (
	quotaFile1  = "cpu.cfs_quota_us"
	periodFile1 = "cpu.cfs_period_us"
	quotaFile2  = "cpu.max"
)

// unlimitedQuota is plan.CPUQuota's Quota for "no limit".
const unlimitedQuota time.Duration = -1

// writeQuota sets the CFS quota and period. An unlimited quota without a period
// leaves the period as it is.
func (c *cgroup) writeQuota(want plan.CPUQuota) error {
	if !c.in.v2 {
		return c.writeQuota1(want)
	}
	text := "max"
	if !want.Unlimited() {
		text = micros(want.Quota)
	}
	if want.Period > 0 {
		text += " " + micros(want.Period)
	}
	return c.write(quotaFile2, text)
}

// writeQuota1 sets v1's two files. With a new period either file alone changes
// the ratio, which may exceed the parent's or fall below a child's on the way
// (EINVAL); an unlimited quota in between never does. A failure puts the old
// values back.
func (c *cgroup) writeQuota1(want plan.CPUQuota) error {
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

func (c *cgroup) readQuota() (plan.CPUQuota, error) {
	if c.in.v2 {
		text, err := c.read(quotaFile2)
		if err != nil {
			return plan.CPUQuota{}, err
		}
		return parseQuota(text)
	}
	quota, err := c.read(quotaFile1)
	if err != nil {
		return plan.CPUQuota{}, err
	}
	period, err := c.read(periodFile1)
	if err != nil {
		return plan.CPUQuota{}, err
	}
	return parseQuota(quota + " " + period)
}

// parseQuota reads "<quota> <period>" in µs, as in cpu.max; "max" and, on v1, -1
// are unlimited.
func parseQuota(text string) (plan.CPUQuota, error) {
	quota, period, _ := strings.Cut(text, " ")
	p, err := strconv.ParseUint(period, 10, 32)
	if err != nil || p == 0 {
		return plan.CPUQuota{}, fmt.Errorf("CPU quota %.60q: the period is not a number of microseconds", text)
	}
	q := plan.CPUQuota{Quota: unlimitedQuota, Period: time.Duration(p) * time.Microsecond}
	if quota == "max" || quota == "-1" {
		return q, nil
	}
	// The kernel's bound, max_cfs_runtime, is 2^44 ns in µs: no overflow here.
	n, err := strconv.ParseUint(quota, 10, 44)
	if err != nil {
		return plan.CPUQuota{}, fmt.Errorf("CPU quota %.60q: the quota is neither max, -1 nor a number of microseconds", text)
	}
	q.Quota = time.Duration(n) * time.Microsecond
	return q, nil
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
