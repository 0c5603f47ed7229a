package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// newMarket returns a node with five services that share a pool, and three BE pods that use half a CPU each.
// The service greedy requests 2 CPUs, uses 14 and allows to be demoted. The service web waits while it uses
// more than most.
func newMarket(most workload.MilliCPU) *court {
	c := newCourt()
	c.Pods, c.Containers = c.Pods[:1], c.Containers[:1]
	clear(c.wants)
	c.run("greedy", workload.LS, 2000, 0)
	c.Pods[1].Allow = workload.Demote
	c.wants["greedy"] = 14000
	for i := range 3 {
		c.run(fmt.Sprintf("api%d", i), workload.LS, 2000, 0)
		c.batch(fmt.Sprintf("job%d", i), 500)
	}
	c.waitsFor("greedy", most)
	return c
}

// pod returns a pod of the node.
func (c *court) pod(name string) *Pod { return &c.Pods[c.at(name).Pod] }

// TestServiceAsCulprit checks the way of a service that makes another one wait: it is limited step by step
// down to its request, keeps that while it helps, and gets all back.
func TestServiceAsCulprit(t *testing.T) {
	t.Parallel()
	c := newMarket(2500)
	c.steps(8)
	if taken := c.c.Taken(&c.View); taken != 12000 || c.Pools[1].Demoted != taken {
		t.Errorf("batch work must not get %d, of that in the pool %d, want 12000", taken, c.Pools[1].Demoted)
	}
	c.steps(52)
	c.wants["greedy"] = 2400
	c.steps(80)
	c.expect(t,
		"3 squeeze ns/greedy 7 CPUs", "5 squeeze ns/greedy 3.5 CPUs", "7 squeeze ns/greedy 2 CPUs",
		"12 confirm ns/greedy 2 CPUs",
		"72 ease ns/greedy 3 CPUs", "82 ease ns/greedy 4.5 CPUs", "92 ease ns/greedy 6.8 CPUs", "102 ease ns/greedy 10.1 CPUs", "112 ease ns/greedy 15.2 CPUs",
		"122 restore ns/greedy no limit")
	why := c.decisions[0].Why
	if want := "it uses 100 % of the CPU that services use beyond their requests, and allows it (demote) while ns/web waits: the run delay of ns/web is 30 % above its calm baseline; its CPU limit is 7"; why != want {
		t.Errorf("the reason is %q, want %q", why, want)
	}
	if taken := c.c.Taken(&c.View); taken != 0 {
		t.Errorf("in the end batch work must not get %d", taken)
	}
}

// TestServiceAcquitted checks that a service whose limit does not help gets all its CPU back, and is not
// tried again for a minute.
func TestServiceAcquitted(t *testing.T) {
	t.Parallel()
	c := newMarket(0)
	c.steps(70)
	c.expect(t, "3 squeeze ns/greedy 7 CPUs", "5 squeeze ns/greedy 3.5 CPUs", "7 squeeze ns/greedy 2 CPUs", "12 acquit ns/greedy no limit")
}

// TestInnocentService checks what it costs a service that another one waits for five seconds in five minutes for
// other reasons: the waiting ends during each trial, as if the limit had helped.
func TestInnocentService(t *testing.T) {
	t.Parallel()
	c := newMarket(0)
	c.hurt = func() float64 {
		if int(c.Now.Sub(c.began).Seconds())%300 < 5 {
			return 0.3
		}
		return 0
	}
	lost, limited := workload.MilliCPU(0), 0
	const seconds = 4 * 3600
	for range seconds {
		c.step()
		lost += c.wants["greedy"] - c.has("greedy")
		limited += len(c.limits)
	}
	if lost > 14000*seconds/10 || limited > seconds/8 {
		t.Errorf("in %d s it was limited for %d s, and lost %s of 14 CPUs: %v", seconds, limited, inCPUs(lost/seconds), c.log)
	}
	if want := "acquit ns/greedy no limit"; !strings.HasSuffix(c.log[len(c.log)-1], want) {
		t.Errorf("in the end %q", c.log[len(c.log)-1])
	}
}

// TestBatchComesFirst checks that a service is tried only after the BE pod that uses most has not helped.
func TestBatchComesFirst(t *testing.T) {
	t.Parallel()
	c := newMarket(8000)
	c.wants["job0"] = 9000
	c.steps(60)
	if got := c.log[0]; got != "3 squeeze ns/job0 4.5 CPUs" {
		t.Errorf("first decided %q", got)
	}
	acquitted := slices.Index(c.log, "20 acquit ns/job0 no limit")
	if acquitted < 0 || !slices.Equal(c.log[acquitted+1:], []string{"23 squeeze ns/greedy 7 CPUs", "28 confirm ns/greedy 7 CPUs"}) {
		t.Errorf("decided %v", c.log)
	}
}

// TestSuspectService checks which service is suspected.
func TestSuspectService(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		change func(*court) // before each step
		want   string       // the pod that is suspected; "" for none
	}{
		"allows to be demoted": {func(*court) {}, "greedy"},
		"allows nothing":       {func(c *court) { c.pod("greedy").Allow = 0 }, ""},
		"allows other actions": {func(c *court) { c.pod("greedy").Allow = workload.Throttle | workload.Reclaim | workload.EvictPod }, ""},
		"unclassified":         {func(c *court) { c.pod("greedy").Class = workload.Unclassified }, "greedy"},
		"LSR":                  {func(c *court) { c.pod("greedy").Class, c.at("greedy").Pool = workload.LSR, -1 }, ""},
		"LSE":                  {func(c *court) { c.pod("greedy").Class, c.at("greedy").Pool = workload.LSE, -1 }, ""},
		"system":               {func(c *court) { c.pod("greedy").Class, c.at("greedy").Pool = workload.System, -1 }, ""},
		"within its request":   {func(c *court) { c.at("greedy").Request = 14000 }, ""},
		"others use as much":   {func(c *court) { c.at("api0").CPU.Usage, c.at("api1").CPU.Usage = 14000, 14000 }, ""},
		"can't be limited":     {func(c *court) { c.unable["greedy"] = true }, ""},
		"is not measured":      {func(c *court) { c.unmeasured["greedy"] = true }, ""},
		"the victim allows it": {func(c *court) { c.pod("web").Allow = workload.Demote; c.wants["web"], c.wants["greedy"] = 20000, 2500 }, ""},
		"batch work uses more": {func(c *court) { c.wants["job0"], c.wants["job1"], c.wants["job2"] = 5000, 5000, 5000 }, ""},
		"but yields at once": {func(c *court) {
			c.Isolated = true
			c.wants["job0"], c.wants["job1"], c.wants["job2"] = 5000, 5000, 5000
		}, "greedy"},
		"batch work is bounded": {func(c *court) { c.Share.Percent = 30 }, "greedy"},
		"a window squeezes":     {func(c *court) { c.Batch.Squeeze = true }, "greedy"},
		"in a higher pool":      {func(c *court) { c.at("greedy").Pool = 0 }, ""},
		"in a lower pool":       {func(c *court) { c.at("web").Pool = 0 }, "greedy"},
		"apart from the victim": {func(c *court) { c.at("web").Pool, c.ExclusivePools = 0, true }, ""},
		"in the victim's pool":  {func(c *court) { c.ExclusivePools = true }, "greedy"},
		"the victim is pinned":  {func(c *court) { c.at("web").Pool = -1 }, ""},
		"disks, apart": {func(c *court) {
			c.part, c.at("web").Pool, c.ExclusivePools = 2, 0, true
			c.at("greedy").IO.WriteBPS = 1e8
		}, "greedy"},
		"disks, and batch work uses more": {func(c *court) {
			c.part = 2
			c.at("greedy").IO.WriteBPS = 1e8
			for i := range 3 {
				c.at(fmt.Sprintf("job%d", i)).IO.WriteBPS = 5e7
			}
		}, ""},
		"memory": {func(c *court) {
			c.part = 1
			c.at("greedy").Container.Memory.Current += 100 << 20
		}, "greedy"},
		"memory of one that does not allow it": {func(c *court) {
			c.part = 1
			c.at("api1").Container.Memory.Current += 100 << 20
		}, ""},
	} {
		c := newMarket(0)
		c.hurt = func() float64 { return 0.3 }
		if got := c.suspect(one.change); got != one.want {
			t.Errorf("%s: suspected is %q, want %q: %v", name, got, one.want, c.log)
		}
	}
}

// TestServiceEnds checks what ends the limit of a service besides its success.
func TestServiceEnds(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		change func(*court)
		why    string
	}{
		"not allowed":      {func(c *court) { c.pod("greedy").Allow = 0 }, "it may not be squeezed any more"},
		"a larger request": {func(c *court) { c.at("greedy").Request = 8000 }, "its request has become larger than its limit"},
	} {
		c := newMarket(2500)
		c.steps(20)
		one.change(c)
		c.step()
		last := c.decisions[len(c.decisions)-1]
		if len(c.limits) > 0 || last.Action != "restore" || last.Why != one.why {
			t.Errorf("%s: limits %v, %+v", name, c.limits, last)
		}
	}
}

// A service that is limited waits for that reason, and nobody is suspected because of it.
func TestLimitedServiceIsNoVictim(t *testing.T) {
	t.Parallel()
	c := newMarket(8000)
	c.steps(20)
	a := c.c.pods.find("greedy")
	if a == nil || a.phase != culpritHeld {
		t.Fatalf("decided %v", c.log)
	}
	victim := Disturbance{Pod: c.at("greedy").Pod, Latest: c.latest}
	victim.Latest[runDelay].above = 0.5
	if d, _ := c.c.worst(&c.View, []Disturbance{victim}, 0); d != nil {
		t.Error("a limited service counts as a victim")
	}
}

// TestServiceProperties checks that no service has a limit below its request or without its permission, and that
// everything is given back once no service waits.
func TestServiceProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newMarket(0)
		c.pod("api0").Allow = workload.Demote | workload.Reclaim
		waits := 0.0
		c.hurt = func() float64 { return waits }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			waits = rapid.SampledFrom([]float64{0, 0.12, 0.3, 0.9}).Draw(t, "waits")
			c.Isolated = rapid.Bool().Draw(t, "isolated")
			name := rapid.SampledFrom([]string{"greedy", "api0", "api1", "job0"}).Draw(t, "who")
			c.wants[name] = workload.MilliCPU(rapid.IntRange(0, 20000).Draw(t, "wants"))
			c.at(name).Request = workload.MilliCPU(rapid.SampledFrom([]int{0, 1000, 4000}).Draw(t, "request"))
			for range rapid.IntRange(1, 20).Draw(t, "seconds") {
				c.step()
				for uid, limit := range c.limits {
					if p := c.pod(uid); p.Class != workload.BE && (p.Allow&workload.Demote == 0 || limit < max(c.at(uid).Request, leastQuota)) {
						t.Fatalf("%s has a limit of %d, requests %d and allows %v: %v", uid, limit, c.at(uid).Request, p.Allow, c.log)
					}
				}
			}
		}
		waits = 0
		c.steps(int((holdTime << mostDoubled).Seconds()) + 20*int(easeTime/time.Second))
		if len(c.limits) > 0 {
			t.Fatalf("with quiet services, limited are %v: %v", c.limits, c.log)
		}
	})
}

// The limit of a service that has a lower one as a culprit is not raised.
func TestNoBurstOfACulprit(t *testing.T) {
	t.Parallel()
	for _, squeezed := range []bool{false, true} {
		s := newScene(16)
		web := s.run("web", workload.LS, 1000, 1000)
		web.Burst.Auto, s.Pods[0].Squeezed = true, squeezed
		b := newBurst()
		raised := false
		for range 20 {
			s.Node.CPU.Usage = 1000
			web.CPU.Periods, web.CPU.Throttled = 10, 5
			quotas, _ := b.Step(s.second())
			raised = raised || quotaOf(quotas, "web") > 0
		}
		if raised == squeezed {
			t.Errorf("squeezed %t: raised %t", squeezed, raised)
		}
	}
}

// A service whose request has grown since a limit helped does not get that limit again.
func TestAgainWithALargerRequest(t *testing.T) {
	t.Parallel()
	c := newMarket(4000)
	c.steps(70) // held at 3.5 CPUs, then eased
	if limit := c.limits["greedy"]; limit <= 4000 {
		t.Fatalf("the limit is %d: %v", limit, c.log)
	}
	c.at("greedy").Request = 4500
	for range 10 {
		if c.step(); c.limits["greedy"] > 0 && c.limits["greedy"] < 4500 {
			t.Fatalf("its limit is %d, and its request 4500: %v", c.limits["greedy"], c.log)
		}
	}
}
