package colocation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestSetInventory(t *testing.T) {
	t.Parallel()
	job := running("job/a", "besteffort", workload.BE)
	job.Request.Batch.CPURequest, job.Request.Batch.CPULimit = workload.Some[workload.MilliCPU](2000), workload.Some[workload.MilliCPU](3000)
	job.Request.Batch.MemoryLimit, job.MemoryLimit = workload.Some[int64](1<<30), 2<<30
	web := running("web/a", "burstable", workload.LS)
	web.Request.Milli, web.Quota = 1500, quotaOf(250_000)
	sidecar := running("web/b", "burstable", workload.BE)
	pin := running("pin/a", "", workload.LSR)
	pin.Pool, pin.Pinned, pin.Apart = -1, true, true
	late := running("late/a", "burstable", workload.LS)
	late.Request = nil
	created := running("new/a", "burstable", workload.LS)
	created.Started = false

	var v NodeView
	v.SetInventory(inventory(web, job, late, pin, sidecar, created))
	v.SetInventory(inventory(web, job, late, pin, sidecar, created)) // the second call reuses all slices
	var refs []string
	for i := range v.Containers {
		c := &v.Containers[i]
		refs = append(refs, c.Ref)
		if v.Members[i].ID != c.ID || v.Container(c.ID) != c || v.Pods[c.Pod].UID != v.Members[i].Pod.UID {
			t.Errorf("%s isn't where the index has it", c.Ref)
		}
	}
	if want := []string{"ns/web/a", "ns/web/b", "ns/job/a", "ns/pin/a", "ns/new/a"}; !slices.Equal(refs, want) {
		t.Fatalf("containers are %v, want %v", refs, want)
	}
	if v.Container("late/a") != nil {
		t.Error("a container without a place is in the view")
	}
	if p := &v.Pods[0]; p.Class != workload.LS || p.Count != 2 || p.First != 0 {
		t.Errorf("pod web is %+v, want the class of its LS container, and two containers", p)
	}
	if c := v.Container("job/a"); c.Request != 2000 || c.Limit != 3000 || c.MemoryLimit != 1<<30 {
		t.Errorf("job is %+v, want its grant of batch resources", c)
	}
	if c := v.Container("new/a"); !c.Unseen {
		t.Error("a container that has not started can't be observed")
	}
	if p := &v.Pools[0]; p.Size != 8 || p.Request != 1500 || p.Quota != 3000 {
		t.Errorf("the pool is %+v, want 8 CPUs, without a claim of batch work, and the largest limit", p)
	}
	if !v.HasBatch() {
		t.Error("there is batch work")
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/besteffort"
	low := running("low/a", "burstable", workload.BE)
	pin := running("pin/a", "", workload.LSR)
	pin.Pinned = true
	web := running("web/a", "burstable", workload.LS)
	inVM := running("vm/a", "burstable", workload.LS)
	inVM.Reachable = false
	all := []Container{web, running("job/a", "besteffort", workload.BE), low, pin, inVM}
	for name, c := range map[string]struct {
		rules Rules
		fast  []string
		pods  []string
	}{
		"batch shares CPUs":    {Rules{}, []string{BatchCgroupTarget + dir, AllPodsTarget, "low/a"}, []string{PodTarget + "low"}},
		"pins' CPUs are lent":  {Rules{LendIdlePins: true}, []string{BatchCgroupTarget + dir, AllPodsTarget, "low/a", "pin/a"}, []string{PodTarget + "low"}},
		"pools are exclusive":  {Rules{ExclusivePools: true}, nil, []string{PodTarget + "low"}},
		"all limits may burst": {Rules{BurstAll: true, ExclusivePools: true}, nil, []string{PodTarget + "web", PodTarget + "job", PodTarget + "low", PodTarget + "pin"}},
	} {
		inv := inventory(all...)
		inv.Rules = c.rules
		var v NodeView
		v.SetInventory(inv)
		var fast, pods, ids []string
		for _, target := range v.Targets() {
			ids = append(ids, target.ID)
			if target.Fast {
				fast = append(fast, target.ID)
			}
			if target.CPUOnly {
				pods = append(pods, target.ID)
			}
		}
		if !slices.Equal(fast, c.fast) || !slices.Equal(pods, c.pods) || slices.Contains(ids, "vm/a") {
			t.Errorf("%s: targets %v, fast %v, want %v; pods %v, want %v", name, ids, fast, c.fast, pods, c.pods)
		}
	}
}

// TestTargetsWhoseCyclesAreCounted checks that only services are counted, only if that is configured, and all the time
// only the pod in question.
func TestTargetsWhoseCyclesAreCounted(t *testing.T) {
	t.Parallel()
	var v NodeView
	inv := inventory(running("web/a", "burstable", workload.LS), running("pin/a", "burstable", workload.LSR), running("sys/a", "burstable", workload.System), running("job/a", "besteffort", workload.BE))
	counted := func() (some, always []string) {
		for _, target := range v.Targets() {
			if target.CPI {
				some = append(some, target.ID)
			}
			if target.CPIAlways {
				always = append(always, target.ID)
			}
		}
		return some, always
	}
	v.SetInventory(inv)
	v.WatchClosely, v.WatchCycles = "web", true
	if some, always := counted(); len(some)+len(always) > 0 {
		t.Errorf("without the configuration: %v, %v", some, always)
	}
	inv.CountCycles = true
	v.SetInventory(inv)
	if some, always := counted(); !slices.Equal(some, []string{"web/a", "pin/a"}) || !slices.Equal(always, []string{"web/a"}) {
		t.Errorf("counted are %v, all the time %v", some, always)
	}
	v.WatchCycles = false
	if _, always := counted(); len(always) > 0 {
		t.Errorf("then, all the time: %v", always)
	}
}

// TestTargetsThatAreWatchedClosely checks that only the containers of the pod in question are read
// more often, and that a list never changes after it was returned.
func TestTargetsThatAreWatchedClosely(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(inventory(running("web/a", "burstable", workload.LS), running("web/b", "burstable", workload.LS), running("db/a", "burstable", workload.LS), running("job/a", "besteffort", workload.BE)))
	waiting := func(all []observe.Target) (ids []string) {
		for _, target := range all {
			if target.Waiting {
				ids = append(ids, target.ID)
			}
		}
		return ids
	}
	usual := v.Targets()
	v.WatchClosely = "web"
	web := v.Targets()
	v.WatchClosely, v.MemoryClosely = "db", true
	db := v.Targets()
	if got := waiting(db); !slices.Equal(got, []string{"db/a"}) {
		t.Errorf("for db, the waiting of %v is read", got)
	}
	if got := waiting(web); !slices.Equal(got, []string{"web/a", "web/b"}) {
		t.Errorf("for web, the waiting of %v is read", got)
	}
	if memory := slices.ContainsFunc(db, func(t observe.Target) bool { return t.ID == "job/a" && t.Memory }); !memory {
		t.Error("the memory of batch work is read seldom")
	}
	if v.WatchClosely, v.MemoryClosely = "", false; len(waiting(usual)) > 0 || len(waiting(v.Targets())) > 0 {
		t.Error("then, nobody's waiting is read closely")
	}
}

func TestObserveBatchWork(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/besteffort"
	inv := inventory(running("web/a", "burstable", workload.LS), running("job/a", "besteffort", workload.BE), running("low/a", "burstable", workload.BE))
	var v NodeView
	v.SetInventory(inv)
	whole := []observe.Container{
		uses("web/a", 1000, 4<<30), uses("low/a", 300, 1<<30),
		uses(BatchCgroupTarget+dir, 500, 2<<30), uses(PodTarget+"low", 300, 3<<30), uses(AllPodsTarget, 1800, 9<<30),
	}
	for name, c := range map[string]struct {
		sample []observe.Container
		use    workload.MilliCPU // 0 if it is not known
		held   int64
	}{
		"all is known":                     {whole, 800, 5 << 30},
		"the batch cgroup wasn't observed": {append(slices.Clone(whole[:2]), whole[3:]...), 0, 3 << 30},
		"the pod's cgroup wasn't observed": {slices.Clone(whole[:3]), 800, 3 << 30},
	} {
		v.Observe(&observe.Snapshot{Now: start, Containers: c.sample}, 0)
		use := v.BatchUse.Usage
		if v.BatchUse.At.IsZero() {
			use = 0
		}
		if use != c.use || v.BatchMemory.Current != c.held {
			t.Errorf("%s: batch work uses %d and holds %d, want %d and %d", name, use, v.BatchMemory.Current, c.use, c.held)
		}
	}
	v.Observe(&observe.Snapshot{Now: start, Containers: whole}, 0)
	if v.PodsUse.Usage != 1800 || v.HeldOutside(dir) != 3<<30 {
		t.Errorf("all pods use %d, and %d bytes are held outside of %s", v.PodsUse.Usage, v.HeldOutside(dir), dir)
	}
}

// TestObserveInAnyOrder checks that each container gets its own sample, in whatever order the samples
// come, and whichever are missing.
func TestObserveInAnyOrder(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(inventory(running("web/a", "burstable", workload.LS), running("job/a", "besteffort", workload.BE), running("low/a", "burstable", workload.BE), running("low/b", "burstable", workload.BE)))
	use := map[string]workload.MilliCPU{"web/a": 1, "job/a": 2, "low/a": 3, "low/b": 4}
	for _, order := range []string{
		"web/a job/a low/a low/b", "low/b low/a job/a web/a", "job/a low/a", "web/a low/b job/a", "gone/a web/a job/a",
		"web/a gone/a job/a low/b", "low/b web/a web/a", "",
	} {
		for i := range v.Containers {
			v.Containers[i].CPU = observe.ContainerCPU{}
		}
		var sample []observe.Container
		for id := range strings.FieldsSeq(order) {
			sample = append(sample, uses(id, use[id], 1))
		}
		v.Observe(&observe.Snapshot{Now: start, Containers: sample}, 0)
		for i := range v.Containers {
			c := &v.Containers[i]
			want := use[c.ID]
			if !strings.Contains(order, c.ID) {
				want = 0
			}
			if c.CPU.Usage != want {
				t.Errorf("%q: %s uses %v, want %v", order, c.ID, c.CPU.Usage, want)
			}
		}
	}
}

// This test isn't parallel, because it would count the allocations of other tests.
func TestObserveAllocatesNothing(t *testing.T) {
	var v NodeView
	v.SetInventory(inventory(running("web/a", "burstable", workload.LS), running("job/a", "besteffort", workload.BE)))
	s := &observe.Snapshot{Now: start, Containers: []observe.Container{uses("web/a", 1, 1), uses(BatchCgroupTarget+"/kubepods/besteffort", 1, 1)}}
	if allocs := testing.AllocsPerRun(10, func() { v.Observe(s, 0) }); allocs > 0 {
		t.Errorf("a sample allocates %v times", allocs)
	}
}

// The view uses the limit of all pods if it is reached before the machine's memory is used up.
func TestObserveLimitOfAllPods(t *testing.T) {
	t.Parallel()
	node := observe.Node{Memory: observe.NodeMemory{At: start, Total: 16 << 30, Available: 6 << 30, Free: 5 << 30}}
	for name, c := range map[string]struct {
		limit       int64
		sample      []observe.Container
		total, free int64
		available   int64
		unknown     bool
	}{
		"no limit":             {0, []observe.Container{uses(AllPodsTarget, 0, 9<<30)}, 16 << 30, 5 << 30, 6 << 30, false},
		"a limit that is near": {12 << 30, []observe.Container{uses(AllPodsTarget, 0, 9<<30)}, 12 << 30, 3 << 30, 3 << 30, false},
		"exceeded":             {8 << 30, []observe.Container{uses(AllPodsTarget, 0, 9<<30)}, 8 << 30, 0, 0, false},
		"the machine is short": {15 << 30, []observe.Container{uses(AllPodsTarget, 0, 8<<30)}, 16 << 30, 5 << 30, 6 << 30, false},
		"use unknown":          {12 << 30, nil, 16 << 30, 5 << 30, 6 << 30, true},
	} {
		var v NodeView
		v.SetInventory(inventory())
		v.Observe(&observe.Snapshot{Now: start, Node: node, Containers: c.sample}, knobs.Bytes(c.limit))
		m := &v.Node.Memory
		if m.At.IsZero() != c.unknown || v.MemoryTotal != c.total || m.Free != c.free || m.Available != c.available || v.MachineMemory != 16<<30 {
			t.Errorf("%s: memory %+v of %d", name, m, v.MemoryTotal)
		}
	}
}

func TestObserveThrottlingByThePodsQuota(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(inventory(running("web/a", "burstable", workload.LS), running("web/b", "burstable", workload.LS)))
	own, pod := uses("web/a", 100, 0), uses(PodTarget+"web", 0, 0)
	own.CPU.Throttled, pod.CPU.Throttled, pod.CPU.StatAt = 9, 4, start
	v.Observe(&observe.Snapshot{Now: start, Containers: []observe.Container{own, uses("web/b", 100, 0), pod, uses(PodTarget+"gone", 0, 0)}}, 0)
	if a, b := v.Container("web/a").CPU.Throttled, v.Container("web/b").CPU.Throttled; a != 9 || b != 4 {
		t.Errorf("containers were throttled %d and %d times, want the larger of their own and of their pod's: 9 and 4", a, b)
	}
}

func TestObservePools(t *testing.T) {
	t.Parallel()
	web, job := running("web/a", "burstable", workload.LS), running("job/a", "besteffort", workload.BE)
	job.Pool = 1
	inv := inventory(web, job)
	inv.Pools = []placement.PoolCPUs{{Name: "online", CPUs: cpus(0, 2)}, {Name: "batch", CPUs: cpus(2, 4)}, {Name: "empty", CPUs: cpus(4, 6)}}
	busy := make([]observe.CPU, 6)
	for i := range busy {
		busy[i] = observe.CPU{Busy: 0.5, Known: i != 3}
	}
	waiting := uses("web/a", 700, 0)
	waiting.Pressure.CPU = 0.2
	s := &observe.Snapshot{
		Now: start, CPUs: busy, Containers: []observe.Container{waiting, uses("job/a", 400, 0)},
		Node: observe.Node{CPU: observe.NodeCPU{At: start.Add(time.Second)}, Pressure: observe.Pressure{CPU: 0.9}},
	}
	for exclusive, want := range map[bool][]workload.MilliCPU{false: {700, 400, 0}, true: {1000, 500, 0}} {
		inv.ExclusivePools = exclusive
		var v NodeView
		v.SetInventory(inv)
		v.Observe(s, 0)
		for i := range v.Pools {
			if p := &v.Pools[i]; p.Usage != want[i] || p.Empty != (i == 2) {
				t.Errorf("exclusive %t: pool %s is %+v, want usage %d", exclusive, p.Name, p, want[i])
			}
		}
		if p := v.Pools[0].Pressure; exclusive && p != 0.2 || !exclusive && p != 0.9 {
			t.Errorf("exclusive %t: pressure %v", exclusive, p)
		}
		v.ForgetPoolLoad()
		if !v.Pools[0].At.IsZero() {
			t.Error("the load is still known")
		}
	}
}

// While memory is taken back, that of each BE container is measured with the node's.
func TestTargetsOfMemory(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(inventory(running("web/a", "burstable", workload.LS), running("job/a", "besteffort", workload.BE)))
	closely := func() (all []string) {
		for _, target := range v.Targets() {
			if target.Memory && strings.HasSuffix(target.ID, "/a") {
				all = append(all, target.ID)
			}
		}
		return all
	}
	before := v.Targets()
	if got := closely(); len(got) > 0 {
		t.Errorf("usually: %v", got)
	}
	v.MemoryClosely = true
	if got := closely(); !slices.Equal(got, []string{"job/a"}) {
		t.Errorf("while memory is taken back: %v", got)
	}
	v.MemoryClosely = false
	if after := v.Targets(); &after[0] != &before[0] {
		t.Error("afterwards there is a new list")
	}
}
