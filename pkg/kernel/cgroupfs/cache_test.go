package cgroupfs

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Open files of the real kernel are closed with their cgroup, bounded in number, and never those
// of a former cgroup with the same path.
func TestV1KeptOpen(t *testing.T) {
	t.Parallel()
	k := realV1(t)
	all := k.cpu.all
	dir := k.child("ctr", "")
	k.apply(dir, knobs.Weight, knobs.Shares(512))
	if v := k.value(dir, knobs.Weight); v != knobs.Shares(512) {
		t.Errorf("the weight is %v", v)
	}
	open := all.open.Load()
	k.value(dir, knobs.Weight)
	if all.open.Load() != open || open == 0 {
		t.Errorf("%d handles are open, after another look %d", open, all.open.Load())
	}

	k.remove(dir)
	if v, err := k.Read(dir, knobs.Weight); !errors.Is(err, ErrGone) {
		t.Errorf("a removed cgroup reads %v, %v", v, err)
	}
	k.child("ctr", "")
	k.value(dir, knobs.Weight)
	k.remove(dir)
	k.child("ctr", "")
	if v := k.value(dir, knobs.Weight); v != knobs.Shares(1024) {
		t.Errorf("a new cgroup has the old one's weight: %v", v)
	}
	k.remove(dir)
	k.child("ctr", "")
	k.apply(dir, knobs.Weight, knobs.Shares(2048)) // through a folder that has been removed
	if v := k.value(dir, knobs.Weight); v != knobs.Shares(2048) {
		t.Errorf("the weight is %v", v)
	}

	k.Forget(dir)
	k.Forget(k.dir)
	k.Forget("/")
	for all.detached.Load() > 0 { // the goroutine of a write of cpuset.cpus keeps its cgroup open a moment longer
		time.Sleep(time.Millisecond)
	}
	if n := all.open.Load(); n != 0 {
		t.Errorf("%d handles are open after all is forgotten", n)
	}

	all.limit = 7
	for i := range 10 {
		dir := k.child(fmt.Sprintf("ctr%d", i), "")
		for _, knob := range []knobs.Knob{knobs.Weight, knobs.Burst, knobs.Quota, knobs.Idle} {
			k.value(dir, knob)
		}
	}
	if n := all.open.Load(); n == 0 || n > all.limit+2 {
		t.Errorf("%d handles are open, want at most about %d", n, all.limit)
	}
}

// TestV1MissingFile checks that a cgroup that lacks a file stays open, and that the file of a cgroup
// made again at the same path is found.
func TestV1MissingFile(t *testing.T) {
	t.Parallel()
	k := realV1(t)
	dir := k.child("ctr", "")
	k.value(dir, knobs.Weight)
	look := func(file string) error {
		return k.cpu.with(dir, func(c *cgroup) error { return c.scanFile(file, func([]byte) {}) })
	}
	before := k.cpu.cgroups[dir]
	if err := look("cpu.missing"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a file that the kernel lacks: %v", err)
	}
	if k.cpu.cgroups[dir] != before {
		t.Error("a file that the kernel lacks closes its cgroup, with all open files")
	}
	k.remove(dir)
	k.child("ctr", "")
	if err := look("cpu.shares"); err != nil {
		t.Errorf("a file of a new cgroup: %v", err)
	}
	if k.cpu.cgroups[dir] == before {
		t.Error("the cgroup that was removed is still open")
	}
	k.remove(dir)
	k.child("ctr", "")
	if err := k.cpu.with(dir, func(c *cgroup) error { // which was removed between the two reads
		return errors.Join(ErrUnsupported, c.scanFile("cpu.cfs_quota_us", func([]byte) {}))
	}); errors.Is(err, ErrGone) {
		t.Errorf("a file of a new cgroup beside one that the kernel lacks: %v", err)
	}
	k.remove(dir)
	if err := look("cpu.missing"); !errors.Is(err, ErrGone) {
		t.Errorf("a file of a cgroup that was removed: %v", err)
	}
}

func (k *v1) apply(dir string, knob knobs.Knob, to knobs.Value) {
	k.t.Helper()
	if err := k.Apply([]knobs.Change{change(dir, knob, to)}); err != nil {
		k.t.Fatal(err)
	}
}

func (k *v1) value(dir string, knob knobs.Knob) knobs.Value {
	k.t.Helper()
	v, err := k.Read(dir, knob)
	if err != nil {
		k.t.Fatal(err)
	}
	return v
}

// Each knob of this host's v1 kernel can be written, read and restored.
func TestV1Knobs(t *testing.T) {
	t.Parallel()
	probed := realV1(t)
	features, err := probed.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for knob := knobs.Quota; knob < knobs.Knobs; knob++ {
		if !features.Has(knob) {
			continue
		}
		t.Run(knob.String(), func(t *testing.T) {
			t.Parallel()
			k := realV1(t)
			was := k.value(k.dir, knob)
			to := []knobs.Value{specs[knob].test}
			switch knob {
			case knobs.IOMax:
				disk := wholeDisk(t)
				to = []knobs.Value{knobs.PerDevice(disk + " rbps=1048576 wiops=100"), knobs.PerDevice(disk + " riops=7")}
			case knobs.MemoryMax, knobs.SoftLimit:
				to = []knobs.Value{knobs.Bytes(100_000_000), knobs.Bytes(1 << 30), knobs.Bytes(1 << 20)}
			}
			for _, v := range append(to, was) {
				k.apply(k.dir, knob, v)
				if have := k.value(k.dir, knob); !k.Same(knob, v, have) {
					t.Errorf("wrote %v, reads %v", v, have)
				}
			}
			if have := k.value(k.dir, knob); have != was {
				t.Errorf("was %v, is %v", was, have)
			}
		})
	}
}
