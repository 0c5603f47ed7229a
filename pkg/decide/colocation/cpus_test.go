package colocation

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestMechanism(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		configured control.Mechanism
		nested     bool
		cpus       int
		foreign    bool
		want       control.Mechanism
	}{
		"v2":                           {control.ByAuto, false, 64, false, control.ByQuota},
		"v1":                           {control.ByAuto, true, fewCPUs, false, control.ByCPUSet},
		"v1 with few CPUs":             {control.ByAuto, true, fewCPUs - 1, false, control.ByQuota},
		"v1 with the kubelet's CPUs":   {control.ByAuto, true, 64, true, control.ByQuota},
		"configured":                   {control.ByBoth, false, 2, false, control.ByBoth},
		"configured, kubelet has CPUs": {control.ByCPUSet, false, 64, true, control.ByQuota},
	} {
		if got := Mechanism(c.configured, c.nested, c.cpus, c.foreign); got != c.want {
			t.Errorf("%s: by %s, want %s", name, got, c.want)
		}
	}
}

func TestPoolSizesFor(t *testing.T) {
	t.Parallel()
	budget := &control.Budget{CPUs: 3}
	for by, want := range map[control.Mechanism][]int{control.ByQuota: nil, control.ByCPUSet: {0, 0, 3}, control.ByBoth: {0, 0, 3}} {
		if got := PoolSizesFor(nil, budget, by, 3); !slices.Equal(got, want) {
			t.Errorf("by %s: pools get %v, want %v", by, got, want)
		}
	}
	if got := PoolSizesFor(nil, &control.Budget{Unlimited: true}, control.ByCPUSet, 3); len(got) > 0 {
		t.Errorf("without a limit pools get %v", got)
	}
}

func TestStepWindows(t *testing.T) {
	t.Parallel()
	off := control.Switch{To: control.SwitchOff, Evict: true}
	for name, c := range map[string]struct {
		eviction control.Mode
		switched control.Switch
		writes   bool
		closed   bool
		evicts   bool
	}{
		"on":                       {control.On, control.Switch{}, true, false, false},
		"switched off":             {control.On, off, true, true, true},
		"switched off, in preview": {"", off, false, true, true},
	} {
		v, s, controllers := busyNode(t)
		s.Eviction.Mode, s.Writes = c.eviction, c.writes
		sample(v, 0)
		controllers.StepWindows(v, &Inputs{Config: s.Config, Authority: s.Authority}, c.switched)
		if v.Batch.Closed != c.closed || v.Batch.Evict != c.evicts {
			t.Errorf("%s: batch work is %+v", name, v.Batch)
		}
	}
	v, s, controllers := busyNode(t)
	s.Loop, s.Eviction.Mode = control.Preview, control.On
	sample(v, 0)
	if controllers.StepWindows(v, &Inputs{Config: s.Config, Authority: s.Authority}, off); v.Batch.Evict {
		t.Error("an eviction that acts follows a loop in preview")
	}
}

func TestStepPools(t *testing.T) {
	t.Parallel()
	for demotion, wantShort := range map[control.Mode]bool{control.Preview: true, control.On: false} {
		cfg := control.DefaultConfig()
		cfg.Mode, cfg.Demotion.Mode = control.Preview, demotion
		law := []control.PoolConfig{{Name: "online", Low: 40, High: 60}, {Name: "batch", Low: 40, High: 60, Min: 6}}
		s := &Settings{Config: &cfg, Authority: Authority{Loop: cfg.Mode, Writes: true}, PoolLaw: law, ExclusivePools: true, Zone: time.UTC}
		controllers, err := NewControllers(s, Learned{})
		if err != nil {
			t.Fatal(err)
		}
		job := running("job/a", "besteffort", workload.BE)
		job.Pool = 1
		inv := inventory(running("web/a", "burstable", workload.LS), job)
		inv.ExclusivePools = true
		inv.Pools = []placement.PoolCPUs{{Name: "online", CPUs: cpus(0, 2)}, {Name: "batch", CPUs: cpus(2, 8)}}
		var v NodeView
		v.SetInventory(inv)
		var short []control.Shortage
		for second := range 30 {
			now := start.Add(time.Duration(second) * time.Second)
			busy := make([]observe.CPU, 8)
			for i := range busy {
				busy[i] = observe.CPU{Busy: 1, Known: true}
			}
			v.Observe(&observe.Snapshot{Now: now, CPUs: busy, Node: observe.Node{CPU: observe.NodeCPU{At: now, Usage: 8000}}}, 0)
			var decided Decided
			_, short, decided = controllers.StepPools(&v, &Inputs{Config: s.Config, Authority: s.Authority}, short[:0])
			if decided.Mode != control.Preview {
				t.Fatalf("the mode is %s", decided.Mode)
			}
		}
		if len(short) > 0 != wantShort {
			t.Errorf("demotion in mode %s is asked for %+v", demotion, short)
		}
	}
}
