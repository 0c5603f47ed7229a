package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const ctr = "/kubepods/pod1/ctr"

// fakeV2 is a v2 tree of plain files with one container. As in the kernel, a write doesn't
// truncate a file. Unlike in the kernel, the rest of the old text stays, so a file that a test
// writes starts empty.
func fakeV2(t *testing.T, files map[string]string) (*Driver, string) {
	t.Helper()
	all := map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n", "sys/fs/cgroup" + ctr + "/cgroup.procs": ""}
	for name, text := range files {
		all["sys/fs/cgroup"+name] = text
	}
	root := tree(t, all)
	d, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, filepath.Join(root, "sys/fs/cgroup")
}

func TestV2Apply(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		knob      knobs.Knob
		to        knobs.Value
		effective string
		file      string
		want      string
		err       error
	}{
		"a set":                   {knobs.CPUs, set("0-3,8"), "0-3,8", "cpuset.cpus", "0-3,8", nil},
		"partly effective":        {knobs.CPUs, set("0-3,8"), "0-1", "cpuset.cpus", "0-3,8", nil},
		"not effective":           {knobs.CPUs, set("0-3"), "0-7", "cpuset.cpus", "0-3", ErrNotEffective},
		"all":                     {knobs.CPUs, set(""), "0-7", "cpuset.cpus", "\n", nil},
		"nodes":                   {knobs.Mems, set("1"), "1", "cpuset.mems", "1", nil},
		"a quota":                 {knobs.Quota, knobs.CPUQuota{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}, "", "cpu.max", "50000 100000", nil},
		"no quota":                {knobs.Quota, knobs.CPUQuota{Quota: -1, Period: 50 * time.Millisecond}, "", "cpu.max", "max 50000", nil},
		"no quota and any period": {knobs.Quota, knobs.CPUQuota{Quota: -1}, "", "cpu.max", "max", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, dir := fakeV2(t, map[string]string{
				ctr + "/" + test.file: "", ctr + "/cpuset.cpus.effective": test.effective, ctr + "/cpuset.mems.effective": test.effective,
			})
			if err := d.Apply([]knobs.Change{change(ctr, test.knob, test.to)}); !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Errorf("got error %v, want %v", err, test.err)
			}
			got, err := os.ReadFile(filepath.Join(dir, ctr, test.file))
			if err != nil || string(got) != test.want {
				t.Errorf("%s got %q, %v; want %q", test.file, got, err, test.want)
			}
		})
	}
}

func TestV2ApplyGoesOn(t *testing.T) {
	t.Parallel()
	d, dir := fakeV2(t, map[string]string{ctr + "/cpu.max": "", ctr + "/cpuset.cpus.effective": "0"})
	err := d.Apply([]knobs.Change{
		change("/kubepods/gone", knobs.CPUs, set("0")),
		change(ctr, knobs.CPUs, set("0")), // there is no such file, because the controller isn't enabled
		change(ctr, knobs.CPUs, knobs.CPUQuota{Quota: -1}),
		change(ctr, knobs.Quota, knobs.CPUQuota{Quota: -1}),
	})
	if !errors.Is(err, ErrGone) || !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v; want ErrGone and ErrUnsupported in it", err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("got %v; want three failures", err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, ctr, "cpu.max")); string(got) != "max" {
		t.Errorf("the last change was not made: %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ctr, "cpuset.cpus")); err == nil {
		t.Error("a file was created")
	}
}

func TestV2Read(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ configured, effective, want string }{
		"as set":           {"0-3", "0-3", "0-3"},
		"a CPU is offline": {"0-3", "0-2", "0-3"},
		"unset":            {"", "0-7", "0-7"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := fakeV2(t, map[string]string{
				ctr + "/cpuset.cpus": test.configured + "\n", ctr + "/cpuset.cpus.effective": test.effective + "\n",
			})
			if v, err := d.Read(ctr, knobs.CPUs); err != nil || v != set(test.want) {
				t.Errorf("reads %v, %v; want %s", v, err, test.want)
			}
		})
	}
}

func TestV2Populated(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		events string
		want   bool
		bad    bool
	}{
		"processes": {"populated 1\nfrozen 0\n", true, false},
		"none":      {"frozen 1\npopulated 0\n", false, false},
		"no line":   {"frozen 1\n", false, true},
		"cut":       {"populated", false, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := fakeV2(t, map[string]string{ctr + "/cgroup.events": test.events})
			if got, err := d.Populated(ctr); got != test.want || (err != nil) != test.bad {
				t.Errorf("got %v, %v; want %v", got, err, test.want)
			}
			if got, err := d.Populated("/gone"); got || err != nil {
				t.Errorf("a cgroup that is gone: %v, %v", got, err)
			}
		})
	}
}

func TestParseQuota(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	tests := []struct {
		text string
		want knobs.CPUQuota
		ok   bool
	}{
		{"max 100000", knobs.CPUQuota{Quota: -1, Period: 100 * ms}, true},
		{"-1 100000", knobs.CPUQuota{Quota: -1, Period: 100 * ms}, true},
		{"50000 100000", knobs.CPUQuota{Quota: 50 * ms, Period: 100 * ms}, true},
		{"17592186044415 1000", knobs.CPUQuota{Quota: 17592186044415 * time.Microsecond, Period: ms}, true},
		{"17592186044416 1000", knobs.CPUQuota{}, false},
		{"-2 100000", knobs.CPUQuota{}, false},
		{"50000 0", knobs.CPUQuota{}, false},
		{"50000", knobs.CPUQuota{}, false},
		{"", knobs.CPUQuota{}, false},
		{"1 2 3", knobs.CPUQuota{}, false},
	}
	for _, test := range tests {
		if got, err := parseQuota(test.text); got != test.want || (err == nil) != test.ok {
			t.Errorf("%q is %+v, %v; want %+v", test.text, got, err, test.want)
		}
	}
}

func FuzzParseQuota(f *testing.F) {
	f.Add("max 100000")
	f.Add("50000 100000")
	f.Fuzz(func(t *testing.T, text string) {
		if q, err := parseQuota(text); err == nil && (q.Period <= 0 || q.Quota < -1) {
			t.Errorf("%q is %+v", text, q)
		}
	})
}

// realV2 is this machine's v2 kernel, with a cgroup of the test and in that a pod whose children
// have the controllers.
func realV2(t *testing.T, controllers string) *v1 {
	t.Helper()
	d, err := Open("/")
	if err != nil {
		t.Skipf("SKIPPED, no real cgroups: %v", err)
	}
	t.Cleanup(func() { d.Close() })
	if d.cpuset == nil || d.cpu == nil || !d.cpuset.v2 || !d.cpu.v2 {
		t.Skipf("SKIPPED, not a v2 machine: %v", d)
	}
	h := d.cpuset
	k := &v1{Driver: d, t: t, dir: "/sluice-test-" + strconv.Itoa(os.Getpid()) + "-" + t.Name()}
	t.Cleanup(func() { k.remove(k.dir) })
	for _, dir := range []string{"/", k.dir, k.dir + "/pod"} {
		if dir != "/" {
			if err := h.tree.Mkdir(relative(dir)); err != nil {
				t.Fatal(err)
			}
		}
		if err := write(h, dir, "cgroup.subtree_control", controllers); err != nil {
			t.Skipf("SKIPPED, the controllers %s can't be enabled: %v", controllers, err)
		}
	}
	return k
}

// Each knob of this machine's v2 kernel can be written, read and restored, in the orders that the
// kernel accepts.
func TestV2KernelKnobs(t *testing.T) {
	k := realV2(t, "+cpu +memory +io")
	dir := k.dir + "/pod/ctr"
	if err := k.cpu.tree.Mkdir(relative(dir)); err != nil {
		t.Fatal(err)
	}
	features, err := k.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for knob := knobs.Quota; knob < knobs.Knobs; knob++ {
		if !features.Has(knob) {
			t.Logf("%s: %s", knob, features.Knobs[knob].Why)
			continue
		}
		was := k.value(dir, knob)
		to := []knobs.Value{specs[knob].test, was}
		if knob == knobs.IOMax {
			to = []knobs.Value{knobs.PerDevice(wholeDisk(t) + " rbps=1048576 wiops=100"), was}
		}
		for _, v := range to {
			k.apply(dir, knob, v)
			if have := k.value(dir, knob); !k.Same(knob, v, have) {
				t.Errorf("%s: wrote %v, reads %v", knob, v, have)
			}
		}
		if have := k.value(dir, knob); have != was {
			t.Errorf("%s: was %v, is %v", knob, was, have)
		}
	}
	for _, knob := range []knobs.Knob{knobs.Quota, knobs.Weight, knobs.MemoryMax, knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.OOMGroup} {
		if !features.Has(knob) {
			t.Errorf("%s is missing: %+v", knob, features.Knobs[knob])
		}
	}
	if !features.Has(knobs.Burst) || !features.Has(knobs.Idle) {
		t.Skip("SKIPPED, this kernel has no burst or no idle")
	}
	const ms = time.Millisecond
	refused := func(knob knobs.Knob, to knobs.Value) {
		t.Helper()
		if err := k.Apply([]knobs.Change{change(dir, knob, to)}); !errors.Is(err, ErrConstraint) {
			t.Errorf("%s to %v: %v, want ErrConstraint", knob, to, err)
		}
	}
	k.apply(dir, knobs.Quota, knobs.CPUQuota{Quota: 50 * ms, Period: 100 * ms})
	if !features.BurstOverQuota {
		refused(knobs.Burst, knobs.CPUBurst(60*ms))
	}
	k.apply(dir, knobs.Burst, knobs.CPUBurst(40*ms))
	k.apply(dir, knobs.Quota, knobs.CPUQuota{Quota: 60 * ms, Period: 100 * ms})
	if v := k.value(dir, knobs.Burst); v != knobs.CPUBurst(40*ms) {
		t.Errorf("the burst is %v after writing the quota, want 40 ms", v)
	}
	k.apply(dir, knobs.Weight, knobs.Shares(512))
	k.apply(dir, knobs.Idle, knobs.Number(1))
	refused(knobs.Weight, knobs.Shares(512))
	k.apply(dir, knobs.Idle, knobs.Number(0))
	if v := k.value(dir, knobs.Weight); v != SharesOf(100) {
		t.Errorf("the weight is %v after idle, want that of weight 100", v)
	}
	if m, err := k.MemoryStat(dir); err != nil || m.Max != knobs.Max {
		t.Errorf("memory is %+v, %v", m, err)
	}
	if err := k.Reclaim(dir, 1<<20); features.Reclaim && !errors.Is(err, ErrPartial) {
		t.Errorf("reclaiming from an empty cgroup: %v, want ErrPartial", err)
	}
	k.remove(dir)
	if v, err := k.Read(dir, knobs.Weight); !errors.Is(err, ErrGone) {
		t.Errorf("a removed cgroup reads %v, %v", v, err)
	}
}

// TestV2Kernel uses the kernel's v2 cpusets, if the machine has them (see test/vm).
func TestV2Kernel(t *testing.T) {
	k := realV2(t, "+cpuset +cpu")
	d, h := k.Driver, k.cpuset
	pod, ctr := k.dir+"/pod", k.dir+"/pod/ctr"
	if err := h.tree.Mkdir(relative(ctr)); err != nil {
		t.Fatal(err)
	}
	all := k.get(k.dir, knobs.CPUs)
	if !cpuset.Of(0, 1).SubsetOf(cpuset.MustParse(all)) {
		t.Skip("SKIPPED, the machine has no CPUs 0 and 1")
	}
	k.put(pod, knobs.CPUs, "0-1")
	k.want(ctr, "0-1") // not set, so it shows the parent's
	if yes, err := d.Populated(pod); yes || err != nil {
		t.Errorf("populated with no process: %v, %v", yes, err)
	}
	_, end := k.process(ctr)
	if yes, err := d.Populated(pod); !yes || err != nil {
		t.Errorf("populated with a process: %v, %v", yes, err)
	}
	k.put(ctr, knobs.CPUs, "1")
	k.want(ctr, "1")
	k.put(ctr, knobs.Mems, "0")
	if got := k.get(ctr, knobs.Mems); got != "0" {
		t.Errorf("memory nodes are %s, want 0", got)
	}
	k.put(ctr, knobs.CPUs, "") // the cgroup has processes: kernels before 7.0 return ENOSPC
	k.want(ctr, "0-1")

	k.put(pod, knobs.CPUs, "0")
	if err := d.Apply([]knobs.Change{change(ctr, knobs.CPUs, set("1"))}); !errors.Is(err, ErrNotEffective) {
		t.Errorf("a set that the parent has nothing of: %v, want ErrNotEffective", err)
	}
	if err := d.Apply([]knobs.Change{change(ctr, knobs.CPUs, set("4095"))}); !errors.Is(err, ErrConstraint) {
		t.Errorf("a CPU that can't exist: %v, want ErrConstraint", err)
	}
	for _, quota := range []knobs.CPUQuota{
		{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}, {Quota: 30 * time.Millisecond, Period: 20 * time.Millisecond}, {Quota: -1},
	} {
		if err := d.Apply([]knobs.Change{change(ctr, knobs.Quota, quota)}); err != nil {
			t.Error(err)
		}
	}
	end()
	k.remove(ctr)
	if err := d.Apply([]knobs.Change{change(ctr, knobs.CPUs, set("0"))}); !errors.Is(err, ErrGone) {
		t.Errorf("a removed cgroup: %v, want ErrGone", err)
	}
	if yes, err := d.Populated(ctr); yes || err != nil {
		t.Errorf("a removed cgroup is populated: %v, %v", yes, err)
	}
}
