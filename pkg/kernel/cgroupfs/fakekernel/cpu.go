package fakekernel

import (
	"math"
	"strconv"
	"strings"
	"syscall"
)

const maxRuntime = 1<<44 - 1 // max_cfs_runtime of kernel/sched/core.c in µs

func (f Flavour) cpuFiles(all map[string]file) {
	if f.Idle {
		all["cpu.idle"] = file{
			show:  func(g *group) string { return strconv.FormatInt(g.idle, 10) },
			store: storeIdle,
		}
	}
	if f.V2 {
		all["cpu.weight"] = file{show: showWeight, store: storeWeight}
		all["cpu.max"] = file{
			show: func(g *group) string {
				if g.quota < 0 {
					return "max " + strconv.FormatInt(g.period, 10)
				}
				return strconv.FormatInt(g.quota, 10) + " " + strconv.FormatInt(g.period, 10)
			},
			store: storeMax,
		}
		all["cpu.max.burst"] = burstFile
		return
	}
	all["cpu.shares"] = sharesFile(func(g *group) *int64 { return &g.shares })
	all["cpu.cfs_quota_us"] = file{
		show: func(g *group) string { return strconv.FormatInt(g.quota, 10) },
		store: func(g *group, text string) error {
			n, err := number(text)
			if err != nil {
				return err
			}
			return g.bandwidth(max(n, none), g.period, g.burstAfterQuota())
		},
	}
	all["cpu.cfs_period_us"] = file{
		show: func(g *group) string { return strconv.FormatInt(g.period, 10) },
		store: func(g *group, text string) error {
			n, err := number(text)
			if err != nil {
				return err
			}
			return g.bandwidth(g.quota, n, g.burst)
		},
	}
	all["cpu.cfs_burst_us"] = burstFile
}

var burstFile = file{
	show: func(g *group) string { return strconv.FormatInt(g.burst, 10) },
	store: func(g *group, text string) error {
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil || n > math.MaxUint64/1000 {
			return syscall.EINVAL
		}
		return g.bandwidth(g.quota, g.period, int64(n))
	},
}

// burstAfterQuota returns the burst that a write of the quota leaves.
func (g *group) burstAfterQuota() int64 {
	switch k := g.in.kernel; {
	case k.ZeroBurst:
		return 0
	case k.DivideBurst:
		return g.burst / 1000 // cpu_max_write passes µs for ns
	}
	return g.burst
}

// bandwidth implements tg_set_cfs_bandwidth of kernel/sched/core.c.
func (g *group) bandwidth(quota, period, burst int64) error {
	switch {
	case quota >= 0 && quota < 1000, quota > maxRuntime, period < 1000, period > 1000000:
		return syscall.EINVAL
	case quota >= 0 && burst > quota && !g.in.kernel.BurstOverQuota, quota >= 0 && burst+quota > maxRuntime:
		return syscall.EINVAL
	}
	was := *g
	g.quota, g.period = quota, period
	if !g.in.kernel.V2 && !g.in.root.schedulable(math.Inf(1)) {
		g.quota, g.period = was.quota, was.period
		return syscall.EINVAL
	}
	g.burst = burst
	return nil
}

// schedulable implements the rule of cgroup v1 that no group's ratio of quota to period exceeds
// that of its parent (tg_cfs_schedulable_down).
func (g *group) schedulable(parent float64) bool {
	ratio := parent
	if g.quota >= 0 {
		// The kernel's to_ratio is a fixed-point number with 20 bits.
		ratio = math.Floor(float64(g.quota) / float64(g.period) * (1 << 20))
		if ratio > parent {
			return false
		}
	}
	for _, child := range g.children {
		if !child.schedulable(ratio) {
			return false
		}
	}
	return true
}

// storeMax writes cpu.max: "<quota|max>[ <period>]".
func storeMax(g *group, text string) error {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return syscall.EINVAL
	}
	quota, period := int64(none), g.period
	var err error
	if fields[0] != "max" {
		if quota, err = number(fields[0]); err != nil || quota < 0 {
			return syscall.EINVAL
		}
	}
	if len(fields) > 1 {
		if period, err = number(fields[1]); err != nil {
			return err
		}
	}
	return g.bandwidth(quota, period, g.burstAfterQuota())
}

// setShares implements sched_group_set_shares, which returns EINVAL for an idle group.
func (g *group) setShares(at *int64, n int64) error {
	if at == &g.shares && g.idle == 1 {
		return syscall.EINVAL
	}
	*at = min(max(n, 2), 262144)
	return nil
}

func sharesFile(at func(*group) *int64) file {
	return file{
		show: func(g *group) string { return strconv.FormatInt(*at(g), 10) },
		store: func(g *group, text string) error {
			n, err := strconv.ParseUint(text, 0, 63)
			if err != nil {
				return syscall.EINVAL
			}
			return g.setShares(at(g), int64(n))
		},
	}
}

// storeIdle implements sched_group_set_idle. An idle group has the weight WEIGHT_IDLEPRIO; a group
// that stops being idle gets the default weight.
func storeIdle(g *group, text string) error {
	n, err := number(text)
	if err != nil || n < 0 || n > 1 {
		return syscall.EINVAL
	}
	if n == g.idle {
		return nil
	}
	if g.idle = n; n == 1 {
		g.shares = 3
	} else {
		g.shares = 1024
	}
	return nil
}

func showWeight(g *group) string { return strconv.FormatInt((g.shares*100+512)/1024, 10) }

func storeWeight(g *group, text string) error {
	n, err := strconv.ParseUint(text, 0, 63)
	if err != nil {
		return syscall.EINVAL
	}
	if n < 1 || n > 10000 {
		return syscall.ERANGE
	}
	return g.setShares(&g.shares, (int64(n)*1024+50)/100)
}

// identityFiles adds the files of the vendors' CPU priorities.
func (f Flavour) identityFiles(all map[string]file) {
	off := func(name string) func(*group, int64) error {
		return func(g *group, _ int64) error {
			if !g.in.kernel.on(name) {
				return syscall.EPERM
			}
			return nil
		}
	}
	if f.BVT {
		all["cpu.bvt_warp_ns"] = plain(func(g *group) *int64 { return &g.bvt }, -1, 2, off(IdentitySwitch))
	}
	if f.Identity {
		all["cpu.identity"] = plain(func(g *group) *int64 { return &g.identity }, -1, 1, off(IdentitySwitch))
		all["cpu.priority"] = plain(func(g *group) *int64 { return &g.cpuPriority }, -1, 1, off(IdentitySwitch))
	}
	if f.QoSLevel {
		all["cpu.qos_level"] = plain(func(g *group) *int64 { return &g.qos }, -1, 2, func(g *group, n int64) error {
			switch {
			case n == g.qos:
				return nil
			case g.parent.qos == -1, g.in.kernel.NoWayBack && g.qos == -1:
				return syscall.EINVAL
			}
			return nil
		})
	}
	if f.RUE {
		all["cgroup.priority"] = plain(func(g *group) *int64 { return &g.cgroupPriority }, 0, 7, off(CPUQoSSwitch), func(g *group, n int64) error {
			if n < g.parent.cgroupPriority {
				return syscall.EINVAL
			}
			return nil
		})
		all["cpu.offline"] = plain(func(g *group) *int64 { return &g.offline }, 0, 1)
		all["cpu.bt_shares"] = sharesFile(func(g *group) *int64 { return &g.btShares })
	}
}
