package colocation

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestOneTrialAtATime checks that no culprit is tried while a noisy pod is, nor the other way round, where a service waits
// whatever is done.
func TestOneTrialAtATime(t *testing.T) {
	t.Parallel()
	_, s, _ := busyNode(t)
	s.Rules, s.Noisy.Mode = nil, control.On
	greedy, loud := running("greedy/a", "burstable", workload.LS), running("loud/a", "burstable", workload.LS)
	greedy.Request.Allow = workload.Some(workload.Demote)
	loud.Request.Milli = 1000
	v := &NodeView{}
	v.SetInventory(inventory(running("web/a", "burstable", workload.LS), greedy, loud))
	in := &Inputs{Config: s.Config, Authority: s.Authority}
	c, err := NewControllers(s, Learned{})
	if err != nil {
		t.Fatal(err)
	}
	want := NewCPUDesired()
	squeezes, separations := 0, 0
	for second := range 400 {
		now := start.Add(time.Duration(second) * time.Second)
		containers := []observe.Container{uses("web/a", 1000, 1<<30), uses("greedy/a", 100, 1<<30), uses("loud/a", 1000, 1<<30)}
		if separations > 0 { // from the first trial on
			containers[1] = uses("greedy/a", 5000, 1<<30)
		}
		for i := range containers {
			containers[i].CPU.At, containers[i].RunDelay.At = now, now
		}
		containers[2].RunDelay.Waiting = 20
		if second >= 40 {
			containers[0].RunDelay.Waiting = 1
		}
		v.Observe(&observe.Snapshot{Now: now, Containers: containers}, 0)
		separating := c.Separation.Trying()
		squeezed := len(want.Culprits) > 0
		d := c.Step(v, in, want)
		if begins := len(want.Culprits) > 0 && !squeezed; begins {
			if squeezes++; separating {
				t.Fatalf("after %d s a culprit is tried while a noisy pod is: %+v", second, d.Decisions)
			}
		}
		trying := c.Culprit.Trying()
		c.Noisy.Step(&v.View)
		pods, acts, _ := c.StepSeparation(v, in, d.Disturbed, true, func(string) (int, error) { return 1, nil })
		if !acts {
			t.Fatal("it does not act")
		}
		in.Separated = nil
		for _, pod := range pods {
			in.Separated = append(in.Separated, placement.Separation{Pod: pod})
		}
		if begins := c.Separation.Trying() && !separating; begins {
			if separations++; trying {
				t.Fatalf("after %d s a noisy pod is tried while a culprit is", second)
			}
		}
	}
	if squeezes == 0 || separations == 0 {
		t.Errorf("%d culprits and %d noisy pods were tried", squeezes, separations)
	}
	for mode, cpusets := range map[control.Mode]bool{control.On: false, control.Preview: true, control.Off: true} {
		in.Noisy.Mode = mode
		if _, acts, decided := c.StepSeparation(v, in, nil, cpusets, nil); acts || decided.Mode == control.On {
			t.Errorf("mode %s, cpusets can be written: %v: it acts", mode, cpusets)
		}
	}
}

// TestDisjointPools checks which pools have CPUs in common where batch work overlaps the others.
func TestDisjointPools(t *testing.T) {
	t.Parallel()
	inv := inventory(running("web/a", "burstable", workload.LS))
	inv.Pools = []placement.PoolCPUs{{Name: "critical", CPUs: cpus(0, 2)}, {Name: "api", CPUs: cpus(2, 8)}, {Name: "online", CPUs: cpus(2, 8)}, {Name: "batch", CPUs: cpus(0, 8)}}
	v := &NodeView{}
	v.SetInventory(inv)
	for i, want := range []uint64{0b0110, 0b0001, 0b0001, 0} {
		if got := v.Pools[i].Disjoint; got != want {
			t.Errorf("pool %s: %04b, want %04b", inv.Pools[i].Name, got, want)
		}
	}
}
