package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/agent"
	"github.com/sluice-dev/sluice/pkg/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

var _ agent.Kernel = (*Kernel)(nil)

func testKernel(t testing.TB) *Kernel {
	t.Helper()
	m, err := synth.Machine("8 cores")
	if err != nil {
		t.Fatal(err)
	}
	return newKernel(m)
}

func set(list string) plan.CPUSet { return plan.CPUSet(cpuset.MustParse(list)) }

func TestKernelRules(t *testing.T) {
	t.Parallel()
	quota := plan.CPUQuota{Quota: 100 * time.Millisecond, Period: 100 * time.Millisecond}
	for _, test := range []struct {
		name   string
		before []plan.Change
		change plan.Change
		want   error
	}{
		{"a cgroup that is not there", nil, plan.Change{Object: plan.Object{Path: "/b"}, Knob: plan.CPUs, To: set("1")}, cgroupfs.ErrGone},
		{"a vendor's knob", nil, plan.Change{Knob: plan.BVT, To: plan.Number(2)}, cgroupfs.ErrUnsupported},
		{"a set outside the parent's", nil, plan.Change{Knob: plan.CPUs, To: set("8")}, cgroupfs.ErrNotEffective},
		{"the weight while idle", []plan.Change{{Knob: plan.Idle, To: plan.Number(1)}}, plan.Change{Knob: plan.Weight, To: plan.Shares(5)}, cgroupfs.ErrConstraint},
		{"a burst over the quota", []plan.Change{{Knob: plan.Quota, To: quota}}, plan.Change{Knob: plan.Burst, To: plan.CPUBurst(time.Second)}, cgroupfs.ErrConstraint},
		{"a quota under the burst", []plan.Change{{Knob: plan.Quota, To: quota}, {Knob: plan.Burst, To: plan.CPUBurst(quota.Quota)}},
			plan.Change{Knob: plan.Quota, To: plan.CPUQuota{Quota: time.Millisecond, Period: quota.Period}}, cgroupfs.ErrConstraint},
		{"a burst within it", []plan.Change{{Knob: plan.Quota, To: quota}}, plan.Change{Knob: plan.Burst, To: plan.CPUBurst(time.Millisecond)}, nil},
	} {
		k := testKernel(t)
		k.mkdir("/p/a")
		for _, c := range append(test.before, test.change) {
			if c.Object.Path == "" {
				c.Object.Path = "/p/a"
			}
			err := k.Apply([]plan.Change{c})
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
	read := func() plan.Value {
		v, err := k.Read("/p/a", plan.CPUs)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := read(); got != set("0-7") {
		t.Errorf("a set that was never written shows %s, want the machine's", got)
	}
	k.set("/p", map[plan.Knob]plan.Value{plan.CPUs: set("0-3")})
	if got := read(); got != set("0-3") {
		t.Errorf("below a set of 0-3 it shows %s", got)
	}
	k.rmdir("/p")
	if _, err := k.Read("/p/a", plan.CPUs); !errors.Is(err, cgroupfs.ErrGone) {
		t.Errorf("of a cgroup that is gone: %v", err)
	}
}

// Containers that move together move their CPUs once.
func TestMovesAreCounted(t *testing.T) {
	t.Parallel()
	k := testKernel(t)
	var changes []plan.Change
	for i, dir := range []string{"/a", "/b", "/c"} {
		k.mkdir(dir)
		k.set(dir, map[plan.Knob]plan.Value{plan.CPUs: set("0-3")})
		if i < 2 {
			k.run(dir, i+1)
		}
		changes = append(changes, plan.Change{Object: plan.Object{Path: dir}, Knob: plan.CPUs, To: set("2-5")})
	}
	if err := k.Apply(changes); err != nil {
		t.Fatal(err)
	}
	if want := (Moves{Containers: 2, CPUs: 2}); k.moves != want {
		t.Errorf("counted %+v, want %+v: nothing runs in the third", k.moves, want)
	}
}
