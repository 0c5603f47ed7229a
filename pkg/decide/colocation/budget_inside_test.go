package colocation

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// batchPod returns a container of a BestEffort batch pod, which is alone in its pod.
func batchPod(name, namespace string, tier workload.Tier, grant workload.MilliCPU) Container {
	c := running(name+"/a", "besteffort", workload.BE)
	c.Ref, c.PodRef, c.Pod.Namespace = namespace+"/"+name+"/a", namespace+"/"+name, namespace
	c.Request.Tier = workload.Some(tier)
	c.Request.Batch.CPURequest = workload.Optional[workload.MilliCPU]{Value: grant, Set: grant > 0}
	return c
}

// spin lets pods whose kernel knows no weights run for some steps on a budget: each uses what it wants,
// at most its quota, and the kernel divides what is short equally.
func spin(d *BudgetDivider, v *NodeView, budget workload.MilliCPU, steps int, wants map[string]workload.MilliCPU) map[string]workload.MilliCPU {
	return spinOn(d, v, steps, wants, func(int) (amount, there workload.MilliCPU) { return budget, budget })
}

// spinOn does that on a budget of which not all may be there at each step.
func spinOn(d *BudgetDivider, v *NodeView, steps int, wants map[string]workload.MilliCPU, budget func(step int) (amount, there workload.MilliCPU)) map[string]workload.MilliCPU {
	have := NewCPUDesired()
	b := &Budget{Now: start, IdleClass: true}
	used := map[string]workload.MilliCPU{}
	for step := range steps {
		amount, there := budget(step)
		b.Amount = amount
		limits := map[string]workload.MilliCPU{}
		for uid, want := range wants {
			limits[uid] = want
			if q, ok := have.Parts[uid]; ok {
				limits[uid] = min(want, workload.MilliCPU(q.Quota.Milli()))
			}
		}
		used = equally(there, limits)
		for i := range v.Containers {
			v.Containers[i].CPU.Usage, v.Containers[i].CPU.At = used[v.Pods[v.Containers[i].Pod].UID], b.Now
		}
		want := NewCPUDesired()
		d.Divide(v, b, have, want)
		have, b.Now = want, b.Now.Add(time.Second)
	}
	return used
}

// equally divides an amount as the kernel does between cgroups in the idle class.
func equally(amount workload.MilliCPU, limits map[string]workload.MilliCPU) map[string]workload.MilliCPU {
	used := map[string]workload.MilliCPU{}
	for left := maps.Clone(limits); len(left) > 0; {
		part := amount / workload.MilliCPU(len(left))
		small := ""
		for uid, limit := range left {
			if limit <= part {
				small = uid
			}
		}
		if small == "" {
			for uid := range left {
				used[uid] = part
			}
			break
		}
		used[small] = left[small]
		amount -= left[small]
		delete(left, small)
	}
	return used
}

func TestPodsOfACgroupShareByTier(t *testing.T) {
	t.Parallel()
	const all = 1 << 20
	free, batch, mid := batchPod("free", "a", workload.TierFree, 1000), batchPod("batch", "a", workload.TierBatch, 1000), batchPod("mid", "a", workload.TierMid, 1000)
	for name, c := range map[string]struct {
		pods  []Container
		wants map[string]workload.MilliCPU
		want  map[string]workload.MilliCPU
	}{
		"all spin":                     {[]Container{free, batch, mid}, map[string]workload.MilliCPU{"free": all, "batch": all, "mid": all}, map[string]workload.MilliCPU{"free": 100, "batch": 1000, "mid": 4000}},
		"the lower share what is left": {[]Container{free, batch, mid}, map[string]workload.MilliCPU{"free": all, "batch": all, "mid": 0}, map[string]workload.MilliCPU{"free": 463, "batch": 4637, "mid": 0}},
		"the lowest has it all":        {[]Container{free, batch, mid}, map[string]workload.MilliCPU{"free": all, "batch": 0, "mid": 0}, map[string]workload.MilliCPU{"free": 5100, "batch": 0, "mid": 0}},
		"by grant": {[]Container{batch, batchPod("large", "a", workload.TierBatch, 4000)}, map[string]workload.MilliCPU{"batch": all, "large": all},
			map[string]workload.MilliCPU{"batch": 1020, "large": 4080}},
		"not by the number of pods": {[]Container{batchPod("one", "a", workload.TierBatch, 0), batchPod("x", "b", workload.TierBatch, 0), batchPod("y", "b", workload.TierBatch, 0)},
			map[string]workload.MilliCPU{"one": all, "x": all, "y": all}, map[string]workload.MilliCPU{"one": 2550, "x": 1275, "y": 1275}},
	} {
		var v NodeView
		v.SetInventory(inventory(c.pods...))
		got := spin(&BudgetDivider{}, &v, 5100, 30, c.wants)
		for uid, want := range c.want {
			if diff := got[uid] - want; diff < -want/20-60 || diff > want/20+60 {
				t.Errorf("%s: %v, want %v", name, got, c.want)
				break
			}
		}
	}
}

// Each pod has about its part if the budget changes with each step, and services take a quarter of it.
func TestPartsOfAnUnsteadyBudget(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(inventory(batchPod("free", "a", workload.TierFree, 0), batchPod("batch", "a", workload.TierBatch, 0), batchPod("mid", "a", workload.TierMid, 0)))
	const steps = 40
	var d BudgetDivider
	sum, all := map[string]workload.MilliCPU{}, workload.MilliCPU(0)
	wants := map[string]workload.MilliCPU{"free": 2000, "batch": 2000, "mid": 2000}
	budgets := [...]workload.MilliCPU{1200, 900, 1000, 500, 500, 1200, 1100}
	spinOn(&d, &v, steps, wants, func(step int) (amount, there workload.MilliCPU) {
		for i := range v.Containers { // of the step before
			if step > 10 {
				use := v.Containers[i].CPU.Usage
				sum[v.Pods[v.Containers[i].Pod].UID] += use
				all += use
			}
		}
		amount = budgets[step%len(budgets)]
		return amount, amount * 3 / 4
	})
	for uid, due := range map[string]workload.MilliCPU{"free": 10, "batch": 100, "mid": 400} {
		if got, want := float64(sum[uid])/float64(all), float64(due)/510; got < want*0.7 || got > want*1.3+0.02 {
			t.Errorf("%s has %.1f %%, and is due %.1f %%", uid, 100*got, 100*want)
		}
	}
}

// Pods of one weight, and pods where the kernel knows weights, have no quotas of their own.
func TestPodsOfACgroupWithoutQuotas(t *testing.T) {
	t.Parallel()
	free, batch := batchPod("free", "a", workload.TierFree, 1000), batchPod("batch", "a", workload.TierBatch, 1000)
	for name, c := range map[string]struct {
		pods []Container
		idle bool
	}{
		"weights":     {[]Container{free, batch}, false},
		"the same":    {[]Container{batch, batchPod("other", "b", workload.TierBatch, 1000)}, true},
		"one":         {[]Container{free}, true},
		"next to one": {[]Container{batchPod("x", "a", workload.TierFree, 0), batchPod("y", "b", workload.TierFree, 0)}, true},
	} {
		var v NodeView
		v.SetInventory(inventory(c.pods...))
		for i := range v.Containers {
			v.Containers[i].CPU.Usage = 4000
		}
		want := NewCPUDesired()
		(&BudgetDivider{}).Divide(&v, &Budget{Amount: 1000, Now: start, IdleClass: c.idle}, NewCPUDesired(), want)
		if len(want.Parts) > 0 || len(want.BatchCgroups) != 1 {
			t.Errorf("%s: %v and %v", name, amounts(want.Parts), amounts(want.BatchCgroups))
		}
	}
}

// A batch cgroup that has no containers any more gets the budget.
func TestBudgetOfAnEmptyCgroup(t *testing.T) {
	t.Parallel()
	var v NodeView
	v.SetInventory(inventory())
	v.BatchCgroups.Dirs = []string{"/kubepods/besteffort"}
	want := NewCPUDesired()
	(&BudgetDivider{}).Divide(&v, &Budget{Amount: 1000, Floor: 200, Now: start, IdleClass: true}, NewCPUDesired(), want)
	if got := amounts(want.BatchCgroups); !maps.Equal(got, map[string]workload.MilliCPU{"/kubepods/besteffort": 1000}) {
		t.Errorf("%v", got)
	}
}

// Outside of a batch cgroup, each pod has a part by tier and grant.
func TestPodsOutsideShareByTier(t *testing.T) {
	t.Parallel()
	outside := func(name string, tier workload.Tier, milli workload.MilliCPU) Container {
		c := running(name+"/a", "burstable", workload.BE)
		c.Request.Tier, c.Request.Milli = workload.Some(tier), milli
		return c
	}
	var v NodeView
	v.SetInventory(inventory(outside("free", workload.TierFree, 1000), outside("batch", workload.TierBatch, 1000), outside("mid", workload.TierMid, 1000)))
	for i := range v.Containers {
		v.Containers[i].CPU.Usage = 8000
	}
	want := NewCPUDesired()
	(&BudgetDivider{}).Divide(&v, &Budget{Amount: 5100}, NewCPUDesired(), want)
	if got := amounts(want.Pods); !maps.Equal(got, map[string]workload.MilliCPU{"free": 100, "batch": 1000, "mid": 4000}) {
		t.Errorf("%v", got)
	}
}

// In the end, a pod that could use more has at least its part by weight, however many others there are,
// and little of the budget is lost while somebody could use it.
func TestPodsOfACgroupStarveNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var pods []Container
		wants := map[string]workload.MilliCPU{}
		n := rapid.IntRange(1, 8).Draw(t, "pods")
		for i := range n {
			name := string(rune('a' + i))
			pods = append(pods, batchPod(name, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"),
				workload.Tier(rapid.IntRange(int(workload.TierFree), int(workload.TierMid)).Draw(t, "tier")), workload.MilliCPU(rapid.SampledFrom([]int{0, 500, 1000, 4000}).Draw(t, "grant"))))
			wants[name] = workload.MilliCPU(rapid.SampledFrom([]int{0, 50, 300, 1000, 1 << 20}).Draw(t, "wants"))
		}
		var v NodeView
		v.SetInventory(inventory(pods...))
		const budget = 6000
		var d BudgetDivider
		got := spin(&d, &v, budget, 60, wants)
		weights, used, wanted := int64(0), workload.MilliCPU(0), workload.MilliCPU(0)
		for i := range v.Pods {
			weights += d.inside.weights.Of(&v.View, &v.Pods[i])
			used, wanted = used+got[v.Pods[i].UID], wanted+wants[v.Pods[i].UID]
		}
		for i := range v.Pods {
			uid := v.Pods[i].UID
			part := workload.MilliCPU(budget * d.inside.weights.Of(&v.View, &v.Pods[i]) / weights)
			if least := min(part, wants[uid]); got[uid] < least*9/10-30 {
				t.Fatalf("%s of weight %d of %d uses %d, and is due %d: %v", uid, d.inside.weights.Of(&v.View, &v.Pods[i]), weights, got[uid], least, got)
			}
		}
		if could := min(budget, wanted); used < could*8/10 {
			t.Fatalf("they use %d of %d that they could: %v of %v", used, could, got, wants)
		}
	})
}

// The priority counts only where neither the pod nor the configuration says the tier.
func TestTierByPriority(t *testing.T) {
	t.Parallel()
	said, unsaid := batchPod("said", "a", workload.TierFree, 0), batchPod("unsaid", "a", workload.TierBatch, 0)
	unsaid.Request.Tier = workload.Optional[workload.Tier]{}
	var v NodeView
	v.SetInventory(inventory(said, unsaid))
	tiers := func() string { return v.Pods[0].Tier.String() + " " + v.Pods[1].Tier.String() }
	for _, c := range []struct {
		priority int32
		want     string
	}{{7500, "free mid"}, {0, "free batch"}, {3000, "free free"}} {
		v.SetAPIPods(map[string]evictorder.Pod{"said": {UID: "said", Priority: c.priority}, "unsaid": {UID: "unsaid", Priority: c.priority}})
		if got := tiers(); got != c.want {
			t.Errorf("priority %d: %q, want %q", c.priority, got, c.want)
		}
		if v.SetInventory(inventory(said, unsaid)); tiers() != c.want {
			t.Errorf("priority %d, of the next inventory: %q, want %q", c.priority, tiers(), c.want)
		}
	}
	if v.SetAPIPods(nil); tiers() != "free batch" {
		t.Errorf("without the API: %q", tiers())
	}
}
