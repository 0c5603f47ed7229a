package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

var _ node.Kernel = (*Kernel)(nil)

func testKernel(t testing.TB) *Kernel {
	t.Helper()
	m, err := synth.Machine("8 cores")
	if err != nil {
		t.Fatal(err)
	}
	return newKernel(m)
}

func set(list string) knobs.CPUSet { return knobs.CPUSet(cpuset.MustParse(list)) }

func TestKernelRules(t *testing.T) {
	t.Parallel()
	quota := knobs.CPUQuota{Quota: 100 * time.Millisecond, Period: 100 * time.Millisecond}
	for _, test := range []struct {
		name   string
		before []knobs.Change
		change knobs.Change
		want   error
	}{
		{"a cgroup that is not there", nil, knobs.Change{Object: knobs.Object{Path: "/b"}, Knob: knobs.CPUs, To: set("1")}, cgroupfs.ErrGone},
		{"a vendor's knob", nil, knobs.Change{Knob: knobs.BVT, To: knobs.Number(2)}, cgroupfs.ErrUnsupported},
		{"a set outside the parent's", nil, knobs.Change{Knob: knobs.CPUs, To: set("8")}, cgroupfs.ErrNotEffective},
		{"the weight while idle", []knobs.Change{{Knob: knobs.Idle, To: knobs.Number(1)}}, knobs.Change{Knob: knobs.Weight, To: knobs.Shares(5)}, cgroupfs.ErrConstraint},
		{"a burst over the quota", []knobs.Change{{Knob: knobs.Quota, To: quota}}, knobs.Change{Knob: knobs.Burst, To: knobs.CPUBurst(time.Second)}, cgroupfs.ErrConstraint},
		{"a quota under the burst", []knobs.Change{{Knob: knobs.Quota, To: quota}, {Knob: knobs.Burst, To: knobs.CPUBurst(quota.Quota)}},
			knobs.Change{Knob: knobs.Quota, To: knobs.CPUQuota{Quota: time.Millisecond, Period: quota.Period}}, cgroupfs.ErrConstraint},
		{"a burst within it", []knobs.Change{{Knob: knobs.Quota, To: quota}}, knobs.Change{Knob: knobs.Burst, To: knobs.CPUBurst(time.Millisecond)}, nil},
	} {
		k := testKernel(t)
		k.mkdir("/p/a")
		for _, c := range append(test.before, test.change) {
			if c.Object.Path == "" {
				c.Object.Path = "/p/a"
			}
			err := k.Apply([]knobs.Change{c})
			if c != test.change && (c.Knob != test.change.Knob || c.To != test.change.To) {
				if err != nil {
					t.Errorf("%s: before it: %v", test.name, err)
				}
				continue
			}
			if !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", test.name, err, test.want)
			}
		}
	}
}

func TestEffectiveSets(t *testing.T) {
	t.Parallel()
	k := testKernel(t)
	k.mkdir("/p/a")
	read := func() knobs.Value {
		v, err := k.Read("/p/a", knobs.CPUs)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := read(); got != set("0-7") {
		t.Errorf("a set that was never written shows %s, want the machine's", got)
	}
	k.set("/p", map[knobs.Knob]knobs.Value{knobs.CPUs: set("0-3")})
	if got := read(); got != set("0-3") {
		t.Errorf("below a set of 0-3 it shows %s", got)
	}
	k.rmdir("/p")
	if _, err := k.Read("/p/a", knobs.CPUs); !errors.Is(err, cgroupfs.ErrGone) {
		t.Errorf("of a cgroup that is gone: %v", err)
	}
}

// Moves counts the CPUs of containers that move together once.
func TestMovesAreCounted(t *testing.T) {
	t.Parallel()
	k := testKernel(t)
	var changes []knobs.Change
	for i, dir := range []string{"/a", "/b", "/c"} {
		k.mkdir(dir)
		k.set(dir, map[knobs.Knob]knobs.Value{knobs.CPUs: set("0-3")})
		if i < 2 {
			k.run(dir, i+1)
		}
		changes = append(changes, knobs.Change{Object: knobs.Object{Path: dir}, Knob: knobs.CPUs, To: set("2-5")})
	}
	if err := k.Apply(changes); err != nil {
		t.Fatal(err)
	}
	if want := (Moves{Containers: 2, CPUs: 2}); k.moves != want {
		t.Errorf("counted %+v, want %+v: nothing runs in the third", k.moves, want)
	}
}
