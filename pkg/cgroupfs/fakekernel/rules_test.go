package fakekernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// step writes a file of a cgroup and looks what comes out.
type step struct {
	dir, file, value string
	errno            syscall.Errno // 0: taken
	shows            string        // what the file shows then; "" isn't looked at
	also             string        // "file=text": another file of the cgroup
}

type rule struct {
	name  string
	steps []step
}

// v1Rules hold on mainline v1: the fake and this machine's own kernel are both
// tried with them. The cgroups are p and p/c.
func v1Rules() []rule {
	const (
		quota, period, burst = "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us"
		shares, idle         = "cpu.shares", "cpu.idle"
		limit, swap, soft    = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.soft_limit_in_bytes"
		unlimited            = "9223372036854771712"
		cpus, mems           = "cpuset.cpus", "cpuset.mems"
		invalid              = syscall.EINVAL
	)
	return []rule{
		{"burst up to the quota", []step{
			{"p", quota, "50000", 0, "50000", ""}, {"p", burst, "50000", 0, "50000", ""}, {"p", burst, "50001", invalid, "50000", ""},
		}},
		{"quota below the burst", []step{
			{"p", quota, "50000", 0, "", ""}, {"p", burst, "30000", 0, "", ""}, {"p", quota, "20000", invalid, "50000", burst + "=30000"},
			{"p", burst, "0", 0, "0", ""}, {"p", quota, "20000", 0, "20000", ""}, {"p", burst, "20000", 0, "20000", ""},
		}},
		{"no quota keeps the burst, and none comes back below it", []step{
			{"p", quota, "50000", 0, "", ""}, {"p", burst, "50000", 0, "", ""}, {"p", quota, "-1", 0, "-1", burst + "=50000"},
			{"p", burst, "60000", 0, "60000", ""}, {"p", quota, "40000", invalid, "-1", ""}, {"p", quota, "60000", 0, "60000", ""},
		}},
		{"a period keeps the burst", []step{
			{"p", quota, "50000", 0, "", ""}, {"p", burst, "1000", 0, "", ""}, {"p", period, "50000", 0, "50000", burst + "=1000"},
		}},
		{"a child's ratio", []step{
			{"p", quota, "50000", 0, "", ""}, {"p/c", quota, "50001", invalid, "-1", ""}, {"p/c", quota, "50000", 0, "50000", ""},
			{"p", quota, "40000", invalid, "50000", ""}, {"p/c", period, "50000", invalid, "100000", ""},
			{"p/c", quota, "40000", 0, "", ""}, {"p", quota, "40000", 0, "40000", ""},
		}},
		{"bounds of quota and period", []step{
			{"p", quota, "999", invalid, "-1", ""}, {"p", quota, "0", invalid, "", ""}, {"p", quota, "1000", 0, "1000", ""}, {"p", quota, "-5", 0, "-1", ""},
			{"p", period, "999", invalid, "", ""}, {"p", period, "1000001", invalid, "100000", ""}, {"p", period, "1000", 0, "1000", ""},
			{"p", burst, "-1", invalid, "0", ""}, {"p", burst, "abc", invalid, "", ""}, {"p", burst, "18446744073709551615", invalid, "", ""},
			{"p", quota, "17592186044416", invalid, "-1", ""},
		}},
		{"shares are clamped", []step{
			{"p", shares, "1", 0, "2", ""}, {"p", shares, "0", 0, "2", ""}, {"p", shares, "999999999", 0, "262144", ""}, {"p", shares, "-1", invalid, "262144", ""},
		}},
		{"idle and shares", []step{
			{"p", shares, "2048", 0, "", ""}, {"p", idle, "1", 0, "1", shares + "=3"}, {"p", shares, "2048", invalid, "3", ""}, {"p", shares, "2", invalid, "", ""},
			{"p/c", shares, "512", 0, "512", ""}, {"p", idle, "1", 0, "1", ""},
			{"p", idle, "0", 0, "0", shares + "=1024"}, {"p", shares, "2048", 0, "2048", ""}, {"p", idle, "0", 0, "0", shares + "=2048"},
			{"p", idle, "2", invalid, "0", ""}, {"p", idle, "-1", invalid, "", ""},
		}},
		{"memory limits are whole pages", []step{
			{"p", limit, "100000000", 0, "99999744", ""}, {"p", limit, "100M", 0, "104857600", ""}, {"p", soft, "5000", 0, "4096", ""},
			{"p", limit, "-2", invalid, "104857600", ""}, {"p", limit, "abc", invalid, "", ""}, {"p", limit, "max", invalid, "", ""},
			{"p", limit, "-1", 0, unlimited, ""}, {"p", soft, "-1", 0, unlimited, ""}, {"p", limit, unlimited, 0, unlimited, ""},
		}},
		{"memory and swap", []step{
			{"p", limit, "100M", 0, "", ""}, {"p", swap, "50M", invalid, unlimited, ""}, {"p", swap, "100M", 0, "104857600", ""},
			{"p", limit, "200M", invalid, "104857600", ""}, {"p", limit, "-1", invalid, "", ""},
			{"p", swap, "200M", 0, "", ""}, {"p", limit, "200M", 0, "209715200", ""}, {"p", swap, "-1", 0, unlimited, ""}, {"p", limit, "-1", 0, unlimited, ""},
		}},
		{"cpusets nest", []step{
			{"p/c", cpus, "0", 0, "0", ""}, {"p", cpus, "0", 0, "0", ""}, {"p/c", cpus, "0-1", syscall.EACCES, "0", ""}, {"p", cpus, "0-1", 0, "0-1", ""}, {"p/c", cpus, "1", 0, "1", ""},
			{"p", cpus, "0", syscall.EBUSY, "0-1", ""}, {"p/c", cpus, "0", 0, "0", ""}, {"p", cpus, "0", 0, "0", ""},
			{"p", cpus, "4095", syscall.ERANGE, "0", ""}, {"p", cpus, "0-", invalid, "", ""}, {"p", mems, "1000", invalid, "", ""},
		}},
		{"block I/O limits", []step{
			{"p", "blkio.throttle.read_bps_device", "DISK 1048576", 0, "DISK 1048576", ""}, {"p", "blkio.throttle.read_bps_device", "DISK 0", 0, "EMPTY", ""},
			{"p", "blkio.throttle.write_bps_device", "DISK 18446744073709551615", 0, "EMPTY", ""},
			{"p", "blkio.throttle.read_iops_device", "DISK 5000000000", 0, "DISK 705032704", ""}, {"p", "blkio.throttle.read_iops_device", "DISK 4294967295", 0, "EMPTY", ""},
			{"p", "blkio.throttle.read_iops_device", "99:0 100", syscall.ENODEV, "", ""}, {"p", "blkio.throttle.read_iops_device", "DISK x", invalid, "", ""},
			{"p", "blkio.throttle.read_iops_device", "DISK", invalid, "", ""}, {"p", "blkio.throttle.read_iops_device", "x 5", invalid, "EMPTY", ""},
			{"p", "blkio.throttle.read_iops_device", "", 0, "EMPTY", ""},
		}},
		{"BFQ weights", []step{
			{"p", "blkio.bfq.weight", "500", 0, "500", ""}, {"p", "blkio.bfq.weight", "1001", syscall.ERANGE, "500", ""}, {"p", "blkio.bfq.weight", "0", syscall.ERANGE, "", "blkio.bfq.weight_device=default 500"},
		}},
	}
}

// kernel is the fake or the real one.
type kernel interface {
	WriteFile(dir, file, value string) error
	ReadFile(dir, file string) (string, error)
}

func play(t *testing.T, k kernel, at, disk string, steps []step) {
	t.Helper()
	for _, s := range steps {
		s.value, s.shows = strings.ReplaceAll(s.value, "DISK", disk), strings.ReplaceAll(s.shows, "DISK", disk)
		err := k.WriteFile(at+s.dir, s.file, s.value)
		if s.errno == 0 && err != nil || s.errno != 0 && !errors.Is(err, s.errno) {
			t.Errorf("%s to %s of %s: %v, want %v", s.value, s.file, s.dir, err, s.errno)
		}
		looks := map[string]string{s.file: s.shows}
		if name, text, ok := strings.Cut(s.also, "="); ok {
			looks[name] = text
		}
		for name, want := range looks {
			if want == "" {
				continue
			}
			want = strings.ReplaceAll(want, "EMPTY", "")
			if got, err := k.ReadFile(at+s.dir, name); err != nil || got != want {
				t.Errorf("after %q to %s of %s, %s shows %q, %v; want %q", s.value, s.file, s.dir, name, got, err, want)
			}
		}
	}
}

func TestV1Rules(t *testing.T) {
	t.Parallel()
	for _, r := range v1Rules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			k := New(MainlineV1())
			k.Mkdir("/p/c")
			play(t, k, "/", "8:0", r.steps)
		})
	}
}

// host is this machine's kernel; controllers are mounted below /sys/fs/cgroup.
type host struct{}

func controllerOf(file string) string {
	controller, _, _ := strings.Cut(file, ".")
	return controller
}

func (host) path(dir, file string) string {
	return filepath.Join("/sys/fs/cgroup", controllerOf(file), dir, file)
}

func (h host) WriteFile(dir, file, value string) error {
	f, err := os.OpenFile(h.path(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

func (h host) ReadFile(dir, file string) (string, error) {
	text, err := os.ReadFile(h.path(dir, file))
	return strings.TrimSuffix(string(text), "\n"), err
}

// mkdir makes cgroups like Kernel.Mkdir does, for one rule.
func (h host) mkdir(t *testing.T, controller string, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		at := filepath.Join("/sys/fs/cgroup", controller, dir)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Skipf("SKIPPED, root and a writable v1 mount of %s are needed: %v", controller, err)
		}
		t.Cleanup(func() {
			for deadline := time.Now().Add(30 * time.Second); ; {
				err := os.Remove(at)
				if err == nil {
					return
				}
				if time.Now().After(deadline) {
					t.Errorf("cgroup stays: %v", err)
					return
				}
			}
		})
		if controller != "cpuset" {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, err := h.ReadFile(filepath.Dir(dir), file)
			if err == nil {
				err = h.WriteFile(dir, file, text)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestV1RulesOfTheRealKernel(t *testing.T) {
	t.Parallel()
	disk := ""
	if names, _ := filepath.Glob("/sys/block/*/dev"); len(names) > 0 {
		text, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		disk = strings.TrimSpace(string(text))
	}
	for i, r := range v1Rules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			k := host{}
			at := fmt.Sprintf("/sluice-test-fake-%d-%d/", os.Getpid(), i)
			k.mkdir(t, controllerOf(r.steps[0].file), strings.TrimSuffix(at, "/"), at+"p", at+"p/c")
			for _, s := range r.steps {
				if _, err := os.Stat(k.path(at+s.dir, s.file)); err != nil {
					t.Skipf("SKIPPED, this kernel has no %s: %v", s.file, err)
				}
				if strings.Contains(s.value, "DISK") && disk == "" {
					t.Skip("SKIPPED, no disk is in /sys/block")
				}
			}
			if controllerOf(r.steps[0].file) == "cpuset" {
				if text, err := k.ReadFile(at+"p", "cpuset.cpus"); err != nil || !strings.HasPrefix(text, "0-") {
					t.Skipf("SKIPPED, the machine has no CPUs 0 and 1: %q, %v", text, err)
				}
			}
			play(t, k, at, disk, r.steps)
		})
	}
}

func TestVendorAndV2Rules(t *testing.T) {
	t.Parallel()
	const (
		quota, burst, weight, idle = "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle"
		invalid                    = syscall.EINVAL
	)
	tests := []struct {
		flavour Flavour
		rules   []rule
	}{
		{MainlineV2(), []rule{
			{"burst", []step{
				{"p", quota, "50000 100000", 0, "50000 100000", ""}, {"p", burst, "50000", 0, "50000", ""}, {"p", burst, "60000", invalid, "50000", ""},
				{"p", quota, "60000", 0, "60000 100000", burst + "=50000"}, {"p", quota, "40000 100000", invalid, "60000 100000", ""},
				{"p", quota, "max", 0, "max 100000", burst + "=50000"}, {"p", quota, "40000", invalid, "max 100000", ""},
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
				{"p", "io.max", "8:0 rbps=1048576 wiops=100", 0, "8:0 rbps=1048576 wbps=max riops=max wiops=100", ""}, {"p", "io.max", "8:0 rbps=0", syscall.ERANGE, "", ""},
				{"p", "io.max", "8:1 rbps=5", syscall.ENODEV, "", ""}, {"p", "io.max", "8:0 rbps=x", invalid, "", ""}, {"p", "io.max", "8:0 rbps=max wiops=max", 0, "EMPTY", ""},
			}},
			{"io.weight", []step{
				{"p", "io.weight", "200", 0, "default 200", ""}, {"p", "io.weight", "default 300", 0, "default 300", ""}, {"p", "io.weight", "8:0 50", 0, "default 300\n8:0 50", ""},
				{"p", "io.weight", "8:0 default", 0, "default 300", ""}, {"p", "io.weight", "10001", syscall.ERANGE, "", ""},
			}},
		}},
		{OldMainlineV2(), []rule{
			{"cpu.max divides the burst", []step{
				{"p", quota, "50000 100000", 0, "", ""}, {"p", burst, "20000", 0, "20000", ""}, {"p", quota, "60000 100000", 0, "60000 100000", burst + "=20"},
			}},
			{"BFQ takes default for a device", []step{{"p", "io.bfq.weight", "default 200", invalid, "default 100", ""}, {"p", "io.bfq.weight", "200", 0, "default 200", ""}}},
		}},
		{AnolisV1(), []rule{
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
		{OldAnolisV1(), []rule{
			{"a quota does away with the burst", []step{{"p", "cpu.cfs_quota_us", "50000", 0, "", ""}, {"p", "cpu.cfs_burst_us", "20000", 0, "20000", ""}, {"p", "cpu.cfs_quota_us", "60000", 0, "60000", "cpu.cfs_burst_us=0"}}},
			{"CFQ", []step{{"p", "blkio.weight", "9", syscall.ERANGE, "500", ""}, {"p", "blkio.weight_device", "8:0 100", 0, "8:0 100", ""}}},
		}},
		{NewAnolisV2(), []rule{
			{"identity and priority", []step{{"p", "cpu.identity", "-1", 0, "-1", ""}, {"p", "cpu.identity", "2", invalid, "-1", ""}, {"p", "cpu.priority", "1", 0, "1", ""}, {"p", "cpu.bvt_warp_ns", "1", syscall.ENOENT, "", ""}}},
		}},
		{OpenEuler(), []rule{
			{"no way back", []step{{"p", "cpu.qos_level", "-1", 0, "-1", ""}, {"p", "cpu.qos_level", "0", invalid, "-1", ""}}},
			{"below an offline parent", []step{{"p/c", "cpu.qos_level", "1", 0, "1", ""}, {"p", "cpu.qos_level", "-1", 0, "", ""}, {"p/c", "cpu.qos_level", "0", invalid, "1", ""}}},
			{"memory", []step{{"p", "memory.qos_level", "-1", 0, "-1", ""}, {"p", "memory.qos_level", "1", invalid, "-1", ""}}},
		}},
		{TencentOS(), []rule{
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
				k := New(test.flavour)
				k.Mkdir("/p/c")
				play(t, k, "/", "8:0", r.steps)
			})
		}
	}
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	tests := []struct {
		flavour     Flavour
		gate, file  string
		value       string
		whenItIsOff syscall.Errno
	}{
		{AnolisV1(), IdentitySwitch, "cpu.bvt_warp_ns", "-1", syscall.EPERM},
		{NewAnolisV2(), IdentitySwitch, "cpu.identity", "-1", syscall.EPERM},
		{TencentOS(), CPUQoSSwitch, "cgroup.priority", "7", syscall.EPERM},
		{OpenEuler(), MemoryQoSSwitch, "memory.qos_level", "-1", syscall.EACCES},
	}
	for _, test := range tests {
		k := New(test.flavour)
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

// What memory and processes do.
func TestUse(t *testing.T) {
	t.Parallel()
	k := New(MainlineV1())
	k.Mkdir("/p")
	k.Use("/p", 100<<20, 20<<20)
	if err := k.WriteFile("/p", "memory.limit_in_bytes", "50M"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a limit below what can't be reclaimed: %v, want EBUSY", err)
	}
	if err := k.WriteFile("/p", "memory.limit_in_bytes", "90M"); err != nil {
		t.Error(err)
	}
	if got, _ := k.ReadFile("/p", "memory.usage_in_bytes"); got != fmt.Sprint(90<<20) {
		t.Errorf("90 MiB of limit leave %s", got)
	}
	if err := k.Populate("/p", 1); err != nil {
		t.Error(err)
	}
	if err := k.WriteFile("/p", "cpuset.cpus", "\n"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("emptying a used set: %v, want ENOSPC", err)
	}
	k2 := New(MainlineV2())
	k2.Mkdir("/p")
	k2.Use("/p", 100<<20, 20<<20)
	if err := k2.WriteFile("/p", "memory.reclaim", "10M"); err != nil {
		t.Error(err)
	}
	if err := k2.WriteFile("/p", "memory.reclaim", "20M"); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("reclaiming more than there is: %v, want EAGAIN", err)
	}
}
