package colocation

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestStepLimitsAService checks that a service that makes another one wait gets a quota where it permits
// that, that batch work does not get what it gives, and that none of it happens where nothing may be written.
func TestStepLimitsAService(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		change func(*Settings, *Inputs, *NodeView)
		want   workload.MilliCPU
	}{
		"on":                 {func(*Settings, *Inputs, *NodeView) {}, 2500},
		"the pod is resized": {func(_ *Settings, in *Inputs, _ *NodeView) { in.Resizing = map[string]bool{"greedy": true} }, 0},
		"v1, a container is created": {func(_ *Settings, in *Inputs, v *NodeView) {
			in.NestedQuotas, v.Members[1].Started, v.Containers[1].Since = true, false, start.Add(CreationTime)
		}, 0},
		"v1":                   {func(_ *Settings, in *Inputs, _ *NodeView) { in.NestedQuotas = true }, 2500},
		"its cgroup is shared": {func(_ *Settings, _ *Inputs, v *NodeView) { v.Members[1].SharedPodCgroup = true }, 0},
		"preview":              {func(s *Settings, _ *Inputs, _ *NodeView) { s.Culprit.Mode = control.Preview }, 0},
		"off":                  {func(s *Settings, _ *Inputs, _ *NodeView) { s.Culprit.Mode = control.Off }, 0},
	} {
		_, s, _ := busyNode(t)
		s.Rules = nil
		greedy := running("greedy/a", "burstable", workload.LS)
		greedy.Request.Allow = workload.Some(workload.Demote)
		v := &NodeView{}
		v.SetInventory(inventory(running("web/a", "burstable", workload.LS), greedy, running("job/a", "besteffort", workload.BE)))
		in := &Inputs{Config: s.Config, Authority: s.Authority}
		one.change(s, in, v)
		c, err := NewControllers(s, Learned{})
		if err != nil {
			t.Fatal(err)
		}
		want := NewCPUDesired()
		for second := range 14 {
			now := start.Add(time.Duration(second) * time.Second)
			containers := []observe.Container{uses("web/a", 1000, 1<<30), uses("greedy/a", 5000, 1<<30), uses("job/a", 500, 1<<30)}
			for i := range containers {
				containers[i].CPU.At, containers[i].RunDelay.At = now, now
			}
			if second >= 10 {
				containers[0].RunDelay.Waiting = 1
			}
			v.Observe(&observe.Snapshot{Now: now, Containers: containers}, 0)
			c.Step(v, in, want)
		}
		quota := workload.MilliCPU(want.Culprits["greedy"].Quota.Milli())
		if limited := quota > 0; quota != one.want || (v.Demoted > 0) != limited || len(want.Culprits) > 1 {
			t.Errorf("%s: quotas %v, want %d; not for batch work %d", name, want.Culprits, one.want, v.Demoted)
		}
	}
}

// TestStepTriesOnce checks that one trial shows how much a service waits by itself since its load has risen, and that
// no other follows.
func TestStepTriesOnce(t *testing.T) {
	t.Parallel()
	_, s, _ := busyNode(t)
	s.Rules = nil
	v := &NodeView{}
	v.SetInventory(inventory(running("web/a", "burstable", workload.LS), running("hog/a", "besteffort", workload.BE),
		running("job/a", "besteffort", workload.BE), running("idle/a", "besteffort", workload.BE)))
	in := &Inputs{Config: s.Config, Authority: s.Authority}
	c, err := NewControllers(s, Learned{})
	if err != nil {
		t.Fatal(err)
	}
	want := NewCPUDesired()
	began, trials := time.Duration(0), 0
	for second := range 1800 {
		now := start.Add(time.Duration(second) * time.Second)
		load, hog := workload.MilliCPU(1000), workload.MilliCPU(5000)
		if second >= 60 {
			load = 3000
		}
		if quota, ok := want.Culprits["hog"]; ok {
			hog = workload.MilliCPU(quota.Quota.Milli())
		}
		containers := []observe.Container{uses("web/a", load, 1<<30), uses("hog/a", hog, 1<<30), uses("job/a", 100, 1<<30), uses("idle/a", 0, 1<<30)}
		for i := range containers {
			containers[i].CPU.At, containers[i].Pressure.At = now, now
		}
		containers[0].Pressure.CPU = float64(load) / 1e4
		v.Observe(&observe.Snapshot{Now: now, Containers: containers}, 0)
		was := len(want.Culprits)
		want = NewCPUDesired()
		c.Step(v, in, want)
		switch tried := len(want.Culprits); {
		case tried > was:
			began, trials = time.Duration(second)*time.Second, trials+1
		case tried < was && time.Duration(second)*time.Second-began > 30*time.Second:
			t.Errorf("the trial took from %s to %d s", began, second)
		}
	}
	if trials != 1 {
		t.Errorf("%d trials in half an hour, want one", trials)
	}
}

// TestTargetsOfServicesThatMayBeLimited checks that the throttling by the quota of such a pod is read.
func TestTargetsOfServicesThatMayBeLimited(t *testing.T) {
	t.Parallel()
	for allow, want := range map[workload.Actions]bool{workload.Demote | workload.Reclaim: true, workload.Throttle: false} {
		web := running("web/a", "burstable", workload.LS)
		web.Request.Allow = workload.Some(allow)
		var v NodeView
		v.SetInventory(inventory(web))
		if got := slices.ContainsFunc(v.Targets(), func(t observe.Target) bool { return t.ID == PodTarget+"web" }); got != want {
			t.Errorf("a pod that allows %v is read: %t, want %t", allow, got, want)
		}
	}
}

// TestNoBurstOfACulpritInANewInventory checks that burst does not raise the limit of a culprit in the first step
// after a pod has come or gone.
func TestNoBurstOfACulpritInANewInventory(t *testing.T) {
	t.Parallel()
	_, s, c := busyNode(t)
	greedy := running("greedy/a", "burstable", workload.LS)
	greedy.Request.Burst.Auto, greedy.Quota = true, Quota(1000)
	v, in, want := &NodeView{}, &Inputs{Config: s.Config, Authority: s.Authority}, NewCPUDesired()
	for second := range 10 {
		want.Culprits["greedy"] = qos.Loop{Quota: Quota(500)}
		v.SetInventory(inventory(greedy))
		now := start.Add(time.Duration(second) * time.Second)
		one := uses("greedy/a", 500, 1<<30)
		one.CPU.At, one.CPU.StatAt, one.CPU.Periods, one.CPU.Throttled = now, now, 10, 10
		v.Observe(&observe.Snapshot{Now: now, Node: observe.Node{CPU: observe.NodeCPU{At: now, Usage: 500}}, Containers: []observe.Container{one}}, 0)
		c.Step(v, in, want)
		if len(want.Containers) > 0 {
			t.Fatalf("quotas %+v", want.Containers)
		}
	}
}
