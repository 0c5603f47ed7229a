package cgroupfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// step writes a file of a cgroup and says what must follow.
type step struct {
	dir, file, value string
	errno            syscall.Errno // 0 for a write that succeeds
	shows            string        // text of the file afterwards; "" for any
	also             string        // "file=text" of another file of the cgroup
}

type rule struct {
	name  string
	steps []step
}

// v1Rules are the rules of mainline v1, for the fake and for this machine's kernel. The cgroups
// are p and p/c.
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

// kernel is the fake or the real kernel.
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
			k := fakekernel.New(fakekernel.MainlineV1())
			k.Mkdir("/p/c")
			play(t, k, "/", "8:0", r.steps)
		})
	}
}

// host is this machine's kernel with its hierarchies below /sys/fs/cgroup.
type host struct{ v2 bool }

func controllerOf(file string) string {
	controller, _, _ := strings.Cut(file, ".")
	return controller
}

func (h host) path(dir, file string) string {
	if h.v2 {
		return filepath.Join("/sys/fs/cgroup", dir, file)
	}
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

// mkdir makes cgroups as Kernel.Mkdir does, for one rule.
func (h host) mkdir(t *testing.T, controller string, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		at := filepath.Dir(h.path(dir, controller+"."))
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Skipf("SKIPPED, root and a writable mount of %s are needed: %v", controller, err)
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
		if h.v2 {
			if err := h.WriteFile(dir, "cgroup.subtree_control", "+cpu +cpuset +memory +io"); err != nil {
				t.Skipf("SKIPPED, the controllers can't be enabled: %v", err)
			}
			continue
		}
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
	playReal(t, host{}, v1Rules())
}

func TestV2RulesOfTheRealKernel(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skipf("SKIPPED, not a v2 machine: %v", err)
	}
	playReal(t, host{v2: true}, v2Rules())
}

func playReal(t *testing.T, k host, rules []rule) {
	disk := ""
	if names, _ := filepath.Glob("/sys/block/*/dev"); len(names) > 0 {
		text, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		disk = strings.TrimSpace(string(text))
	}
	for i, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			at := fmt.Sprintf("/sluice-test-fake-%d-%d/", os.Getpid(), i)
			controller := controllerOf(r.steps[0].file)
			k.mkdir(t, controller, strings.TrimSuffix(at, "/"), at+"p", at+"p/c")
			for _, s := range r.steps {
				if _, err := os.Stat(k.path(at+s.dir, s.file)); err != nil {
					t.Skipf("SKIPPED, this kernel has no %s: %v", s.file, err)
				}
				if strings.Contains(s.value, "DISK") && disk == "" {
					t.Skip("SKIPPED, no disk is in /sys/block")
				}
			}
			if controller == "cpuset" && !hasCPUs(k) {
				t.Skip("SKIPPED, the machine has too few CPUs")
			}
			play(t, k, at, disk, r.steps)
		})
	}
}

// hasCPUs reports whether the machine has the CPUs of the rules.
func hasCPUs(k host) bool {
	file, need := "cpuset.cpus", cpuset.Range(0, 1)
	if k.v2 {
		file, need = "cpuset.cpus.effective", cpuset.Range(0, 5)
	}
	text, err := k.ReadFile("/", file)
	if err != nil {
		return false
	}
	all, err := cpuset.Parse(text)
	return err == nil && need.SubsetOf(all)
}
