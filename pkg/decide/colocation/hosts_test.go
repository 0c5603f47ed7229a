package colocation

import (
	"maps"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	yarnDir   = "/hadoop-yarn"
	backupDir = "/backup"
)

// besideHosts returns an inventory with two host applications, of which one has no memory limit.
func besideHosts(containers ...Container) *Inventory {
	inv := inventory(containers...)
	inv.HostApplications = []HostApplication{
		{HostApplication: &control.HostApplication{Name: "yarn", Cgroup: yarnDir, CPU: 3000}, HoldsMemory: true},
		{HostApplication: &control.HostApplication{Name: "backup", Cgroup: backupDir, Tier: workload.TierFree}},
	}
	return inv
}

// Host applications and batch pods divide the budget by weight: a free one without an amount counts as
// a tenth of a CPU.
func TestDivideBudgetBesideHosts(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/besteffort"
	job, low := running("job/a", "besteffort", workload.BE), running("low/a", "burstable", workload.BE)
	job.Request.Batch.CPURequest, low.Request.Milli = workload.Some[workload.MilliCPU](1000), 900
	var v NodeView
	v.SetInventory(besideHosts(job, low))
	for _, id := range []string{"job/a", "low/a"} {
		v.Container(id).CPU.Usage = 8000
	}
	for i := range v.HostApplications {
		v.HostApplications[i].CPU.Usage = 8000
	}
	want := NewCPUDesired()
	var d BudgetDivider
	d.Divide(&v, &Budget{Amount: 5000, IdleClass: true}, NewCPUDesired(), want)
	if got := amounts(want.BatchCgroups); !maps.Equal(got, map[string]workload.MilliCPU{dir: 1000, yarnDir: 3000, backupDir: 100}) {
		t.Errorf("%v", got)
	}
	if got := amounts(want.Pods); !maps.Equal(got, map[string]workload.MilliCPU{"low": 900}) {
		t.Errorf("%v", got)
	}
}

// The memory of host applications is batch work's, unless the view counts only that of pods.
func TestObserveHosts(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(besideHosts(running("job/c", "besteffort", workload.BE)))
	targets := map[string]observe.Target{}
	for _, target := range v.Targets() {
		targets[target.ID] = target
	}
	yarn, backup := targets[BatchCgroupTarget+yarnDir], targets[BatchCgroupTarget+backupDir]
	if !yarn.Fast || !yarn.Memory || yarn.CPUOnly || !backup.Fast || !backup.CPUOnly {
		t.Errorf("targets %+v, %+v", yarn, backup)
	}
	if b := &v.BatchCgroups; !slices.Equal(b.Limited, []string{"/kubepods/besteffort", yarnDir}) || b.Holds(yarnDir) || !b.Bounds(yarnDir) || !b.Bounds(backupDir) {
		t.Errorf("%+v", b)
	}
	node := observe.Node{Memory: observe.NodeMemory{At: start, Total: 16 << 30, Available: 6 << 30}}
	sample := []observe.Container{
		uses(BatchCgroupTarget+"/kubepods/besteffort", 1000, 2<<30), uses(AllPodsTarget, 3000, 4<<30),
		uses(BatchCgroupTarget+yarnDir, 2000, 3<<30), {ID: BatchCgroupTarget + backupDir, CPU: observe.ContainerCPU{At: start, Usage: 500}},
	}
	for limit, want := range map[int64]int64{0: 5 << 30, 15 << 30: 5 << 30, 5 << 30: 2 << 30} {
		v.Observe(&observe.Snapshot{Now: start, Node: node, Containers: sample}, knobs.Bytes(limit))
		if v.BatchUse.Usage != 1000 || v.BatchMemory.Current != want || v.BatchMemory.At.IsZero() {
			t.Errorf("beside a limit of %d for pods: batch work uses %v CPUs in pods and %d bytes", limit, v.BatchUse.Usage, v.BatchMemory.Current)
		}
		use := v.HostApplications
		if use[0].CPU.Usage != 2000 || use[1].CPU.Usage != 500 || use[0].Memory.Current != want-2<<30 {
			t.Errorf("beside a limit of %d for pods: %+v", limit, use)
		}
	}
	v.Observe(&observe.Snapshot{Now: start, Node: node, Containers: sample[:2]}, 0)
	if use := v.HostApplications[0]; !use.CPU.At.IsZero() || !v.BatchMemory.At.IsZero() {
		t.Errorf("its use is not in the sample, and counts as %+v, with %+v in all", use, v.BatchMemory)
	}
}
