package cgroupfs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
)

// v2Rules are the rules of mainline v2, old and new.
func v2Rules() []rule {
	const (
		quota, burst, weight, idle = "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle"
		invalid                    = syscall.EINVAL
	)
	return []rule{
		{"burst", []step{
			{"p", quota, "50000 100000", 0, "50000 100000", ""}, {"p", burst, "50000", 0, "50000", ""}, {"p", burst, "60000", invalid, "50000", ""},
		}},
		{"a child's ratio may be higher", []step{{"p", quota, "10000 100000", 0, "", ""}, {"p/c", quota, "90000 100000", 0, "90000 100000", ""}}},
		{"bounds", []step{
			{"p", quota, "999 100000", invalid, "max 100000", ""}, {"p", quota, "1000 999", invalid, "", ""}, {"p", quota, "1000 1000001", invalid, "", ""}, {"p", quota, "-1", invalid, "", ""},
			{"p", weight, "0", syscall.ERANGE, "100", ""}, {"p", weight, "10001", syscall.ERANGE, "100", ""}, {"p", weight, "1", 0, "1", ""}, {"p", weight, "10000", 0, "10000", ""},
		}},
		{"idle and weight", []step{
			{"p", weight, "59", 0, "59", ""}, {"p", idle, "1", 0, "1", weight + "=0"}, {"p", weight, "59", invalid, "0", ""}, {"p", idle, "0", 0, "0", weight + "=100"},
		}},
		{"cpusets beyond the parent", []step{
			{"p", "cpuset.cpus", "0-1", 0, "0-1", ""}, {"p/c", "cpuset.cpus", "1-2", 0, "1-2", "cpuset.cpus.effective=1"},
			{"p/c", "cpuset.cpus", "5", 0, "5", "cpuset.cpus.effective=0-1"}, {"p/c", "cpuset.cpus", "4000", syscall.ERANGE, "5", ""}, {"p/c", "cpuset.cpus", "\n", 0, "EMPTY", "cpuset.cpus.effective=0-1"},
		}},
		{"memory", []step{
			{"p", "memory.high", "5000", 0, "4096", ""}, {"p", "memory.high", "max", 0, "max", ""}, {"p", "memory.high", "-1", invalid, "max", ""},
			{"p", "memory.max", "1G", 0, "1073741824", ""}, {"p", "memory.oom.group", "2", invalid, "0", ""}, {"p", "memory.min", "max", 0, "max", ""},
		}},
		{"io.max takes one device, and max", []step{
			{"p", "io.max", "DISK rbps=1048576 wiops=100", 0, "DISK rbps=1048576 wbps=max riops=max wiops=100", ""}, {"p", "io.max", "DISK rbps=0", syscall.ERANGE, "", ""},
			{"p", "io.max", "99:1 rbps=5", syscall.ENODEV, "", ""}, {"p", "io.max", "DISK rbps=x", invalid, "", ""}, {"p", "io.max", "DISK rbps=max wiops=max", 0, "EMPTY", ""},
		}},
		{"io.weight", []step{
			{"p", "io.weight", "200", 0, "default 200", ""}, {"p", "io.weight", "default 300", 0, "default 300", ""}, {"p", "io.weight", "10001", invalid, "", ""},
		}},
	}
}

func TestVendorAndV2Rules(t *testing.T) {
	t.Parallel()
	const (
		quota, burst, weight, idle = "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle"
		invalid                    = syscall.EINVAL
	)
	tests := []struct {
		flavour fakekernel.Flavour
		rules   []rule
	}{
		{fakekernel.MainlineV2(), append(v2Rules(), []rule{
			{"io.weight of a device", []step{ // EOPNOTSUPP if io.cost.qos of the device is not enabled
				{"p", "io.weight", "DISK 50", 0, "default 100\nDISK 50", ""}, {"p", "io.weight", "DISK 10001", invalid, "", ""}, {"p", "io.weight", "DISK default", 0, "default 100", ""},
			}},
			{"burst and quota", []step{
				{"p", quota, "50000 100000", 0, "50000 100000", ""}, {"p", burst, "50000", 0, "50000", ""}, {"p", burst, "60000", invalid, "50000", ""},
				{"p", quota, "60000", 0, "60000 100000", burst + "=50000"}, {"p", quota, "40000 100000", invalid, "60000 100000", ""},
				{"p", quota, "max", 0, "max 100000", burst + "=50000"}, {"p", quota, "40000", invalid, "max 100000", ""},
			}},
		}...)},
		{fakekernel.OldMainlineV2(), append(v2Rules(), []rule{
			{"cpu.max divides the burst", []step{
				{"p", quota, "50000 100000", 0, "", ""}, {"p", burst, "20000", 0, "20000", ""}, {"p", quota, "60000 100000", 0, "60000 100000", burst + "=20"},
			}},
			{"BFQ takes default for a device", []step{{"p", "io.bfq.weight", "default 200", invalid, "default 100", ""}, {"p", "io.bfq.weight", "200", 0, "default 200", "io.weight=default 100"}}},
		}...)},
		{fakekernel.AnolisV1(), []rule{
			{"burst over the quota", []step{{"p", "cpu.cfs_quota_us", "50000", 0, "", ""}, {"p", "cpu.cfs_burst_us", "500000", 0, "500000", ""}, {"p", "cpu.cfs_quota_us", "40000", 0, "40000", "cpu.cfs_burst_us=500000"}}},
			{"bvt", []step{{"p", "cpu.bvt_warp_ns", "-1", 0, "-1", ""}, {"p", "cpu.bvt_warp_ns", "2", 0, "2", ""}, {"p", "cpu.bvt_warp_ns", "3", invalid, "2", ""}, {"p", "cpu.bvt_warp_ns", "-2", invalid, "", ""}}},
			{"min adjustment shows the strictest", []step{
				{"p", "memory.wmark_min_adj", "-10", 0, "-10", ""}, {"p/c", "memory.wmark_min_adj", "-25", 0, "-10", ""}, {"p/c", "memory.wmark_min_adj", "50", 0, "50", ""},
				{"p", "memory.wmark_min_adj", "51", invalid, "-10", ""}, {"p", "memory.wmark_min_adj", "-26", invalid, "", ""}, {"p/c", "memory.wmark_min_adj", "0", 0, "0", ""},
			}},
			{"ranges", []step{
				{"p", "memory.wmark_ratio", "101", invalid, "0", ""}, {"p", "memory.wmark_scale_factor", "0", invalid, "50", ""}, {"p", "memory.wmark_scale_factor", "1000", 0, "1000", ""},
				{"p", "memory.priority", "13", invalid, "0", ""}, {"p", "memory.use_priority_oom", "2", invalid, "0", ""}, {"p", "memory.high", "1M", 0, "1048576", ""},
			}},
			{"page cache within the limit", []step{{"p", "memory.limit_in_bytes", "1M", 0, "", ""}, {"p", "memory.pagecache_limit.size", "2M", invalid, "0", ""}, {"p", "memory.pagecache_limit.size", "1M", 0, "1048576", ""}}},
		}},
		{fakekernel.OldAnolisV1(), []rule{
			{"a quota does away with the burst", []step{{"p", "cpu.cfs_quota_us", "50000", 0, "", ""}, {"p", "cpu.cfs_burst_us", "20000", 0, "20000", ""}, {"p", "cpu.cfs_quota_us", "60000", 0, "60000", "cpu.cfs_burst_us=0"}}},
			{"CFQ", []step{{"p", "blkio.weight", "9", syscall.ERANGE, "500", ""}, {"p", "blkio.weight_device", "8:0 100", 0, "8:0 100", ""}}},
		}},
		{fakekernel.NewAnolisV2(), []rule{
			{"identity and priority", []step{{"p", "cpu.identity", "-1", 0, "-1", ""}, {"p", "cpu.identity", "2", invalid, "-1", ""}, {"p", "cpu.priority", "1", 0, "1", ""}, {"p", "cpu.bvt_warp_ns", "1", syscall.ENOENT, "", ""}}},
		}},
		{fakekernel.OpenEuler(), []rule{
			{"no way back", []step{{"p", "cpu.qos_level", "-1", 0, "-1", ""}, {"p", "cpu.qos_level", "0", invalid, "-1", ""}}},
			{"below an offline parent", []step{{"p/c", "cpu.qos_level", "1", 0, "1", ""}, {"p", "cpu.qos_level", "-1", 0, "", ""}, {"p/c", "cpu.qos_level", "0", invalid, "1", ""}}},
			{"memory", []step{{"p", "memory.qos_level", "-1", 0, "-1", ""}, {"p", "memory.qos_level", "1", invalid, "-1", ""}}},
		}},
		{fakekernel.TencentOS(), []rule{
			{"not above the parent", []step{
				{"p", "cgroup.priority", "5", 0, "5", ""}, {"p/c", "cgroup.priority", "4", invalid, "0", ""}, {"p/c", "cgroup.priority", "7", 0, "7", ""}, {"p", "cgroup.priority", "8", invalid, "5", ""},
			}},
			{"offline", []step{{"p", "cpu.offline", "1", 0, "1", ""}, {"p", "cpu.offline", "2", invalid, "1", ""}, {"p", "cpu.bt_shares", "1", 0, "2", ""}}},
			{"page cache", []step{{"p", "memory.pagecache.max_ratio", "101", invalid, "100", ""}, {"p", "memory.pagecache.max_ratio", "50", 0, "50", ""}}},
		}},
	}
	for _, test := range tests {
		for _, r := range test.rules {
			t.Run(test.flavour.Name+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				k := fakekernel.New(test.flavour)
				k.Mkdir("/p/c")
				play(t, k, "/", "8:0", r.steps)
			})
		}
	}
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	tests := []struct {
		flavour     fakekernel.Flavour
		gate, file  string
		value       string
		whenItIsOff syscall.Errno
	}{
		{fakekernel.AnolisV1(), fakekernel.IdentitySwitch, "cpu.bvt_warp_ns", "-1", syscall.EPERM},
		{fakekernel.NewAnolisV2(), fakekernel.IdentitySwitch, "cpu.identity", "-1", syscall.EPERM},
		{fakekernel.TencentOS(), fakekernel.CPUQoSSwitch, "cgroup.priority", "7", syscall.EPERM},
		{fakekernel.OpenEuler(), fakekernel.MemoryQoSSwitch, "memory.qos_level", "-1", syscall.EACCES},
	}
	for _, test := range tests {
		k := fakekernel.New(test.flavour)
		k.Mkdir("/p")
		k.Switch(test.gate, "0")
		if err := k.WriteFile("/p", test.file, test.value); !errors.Is(err, test.whenItIsOff) {
			t.Errorf("%s: %s with %s off: %v, want %v", test.flavour.Name, test.file, test.gate, err, test.whenItIsOff)
		}
		k.Switch(test.gate, "1")
		if err := k.WriteFile("/p", test.file, test.value); err != nil {
			t.Errorf("%s: %s: %v", test.flavour.Name, test.file, err)
		}
	}
}
