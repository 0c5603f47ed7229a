package agent

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

const raisedLS = "control: {mode: on, batch: {by: quota}}\nauthorize: [{features: [system, identity], namespaces: [\"*\"]}]\n"

// weightOf returns the weight that the kernel uses.
func (h *loopNode) weightOf(dir string) int64 {
	h.t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(h.get(dir, "cpu.shares", "cpu.weight")), 10, 64)
	if err != nil {
		h.t.Fatalf("%s: %v", dir, err)
	}
	return n
}

func (h *loopNode) weights(dirs []string) map[string]int64 {
	all := map[string]int64{}
	for _, dir := range dirs {
		all[dir] = h.weightOf(dir)
	}
	return all
}

// expectTimes fails the test if a cgroup's weight is not the given multiple of what it was.
func (h *loopNode) expectTimes(before map[string]int64, factor int64, dirs ...string) {
	h.t.Helper()
	for _, dir := range dirs {
		if got := h.weightOf(dir); got != factor*before[dir] {
			h.t.Errorf("%s has the weight %d, want %d times %d", dir, got, factor, before[dir])
		}
	}
}

// TestLSWeightsKeepProportions checks that beside batch work everything else, large or small, has
// the same multiple of the kubelet's weight, also right after the kubelet has written it again,
// and that all of it has the kubelet's own weight once the plugin is gone.
func TestLSWeightsKeepProportions(t *testing.T) {
	onLoops(t, knobSetup{config: raisedLS}, func(t *testing.T, h *loopNode) {
		class := func(class string) map[string]string { return map[string]string{"class.sluice.dev": class} }
		vm := ask{name: "vm/c", milli: 2000}
		h.podOf(&vm).RuntimeHandler = "kata-qemu"
		asks := []ask{
			{name: "pin/c", milli: 1000, memory: 64, annotations: class("LSR")}, // while the largest weight permits it
			service("large/c", 64000), service("small/c", 50), vm,
			{name: "sys/c", milli: 2000, annotations: class("SYSTEM")},
			{name: "middle/c", qos: "burstable", milli: 16000, annotations: class("LS")},
			{name: "least/c", qos: "burstable", milli: 10, annotations: class("LS")},
			{name: "daemon/c", qos: "burstable", milli: 50, annotations: class("SYSTEM")},
		}
		const pods, inBurstable = "/kubepods", "/kubepods/burstable"
		top := []string{pods + "/pod-large", pods + "/pod-small", pods + "/pod-vm", pods + "/pod-sys", pods + "/pod-pin", inBurstable}
		below := []string{inBurstable + "/pod-middle", inBurstable + "/pod-least", inBurstable + "/pod-daemon"}
		h.weight(inBurstable, 18*1024)
		h.weight(bestBox, 2)
		h.run(asks...)
		before := h.weights(append(slices.Clone(top), below...))
		h.steps(2 * time.Second)
		h.expectTimes(before, 1, top...)

		// With 64 CPUs the kernel's largest weight permits a multiple of four, so all have that.
		// No pod of the burstable cgroup is batch work.
		h.run(batch("job/c"))
		h.expectTimes(before, 4, top...)
		h.expectTimes(before, 1, below...)
		h.expectTimes(map[string]int64{bestBox: h.least()}, 1, bestBox)
		low := ask{name: "low/c", qos: "burstable", milli: 1000, annotations: class("BE")}
		h.run(low)
		h.expectTimes(before, 16, below...)

		// The kubelet writes a higher weight of its class.
		h.weight(inBurstable, 30*1024)
		before[inBurstable] = h.weightOf(inBurstable)
		h.steps(100 * time.Millisecond)
		h.expectTimes(before, 4, top...)
		h.weight(inBurstable, 100*1024)
		before[inBurstable] = h.weightOf(inBurstable)
		h.steps(100 * time.Millisecond)
		h.expectTimes(before, 2, top...)
		h.weight(inBurstable, 18*1024)
		before[inBurstable] = h.weightOf(inBurstable)
		h.steps(50 * time.Second)
		h.expectTimes(before, 2, top...)
		h.steps(15 * time.Second)
		h.expectTimes(before, 4, top...)

		// A pod too large for any multiple ends it at once, before it runs. When the pod ends, the
		// multiple returns later.
		if err := h.create(service("huge/c", 250000)); err != nil {
			t.Fatal(err)
		}
		h.expectTimes(before, 1, top...)
		h.begin("huge/c")
		h.end("huge/c")
		h.steps(50 * time.Second)
		h.expectTimes(before, 1, top...)
		h.steps(15 * time.Second)
		h.expectTimes(before, 4, top...)
		h.resize("small/c", 50, 1000)
		h.pass()
		before[pods+"/pod-small"] = before[pods+"/pod-sys"] / 2
		if !h.V2 {
			h.expectTimes(before, 4, top...)
		}
		before[pods+"/pod-small"] = h.weightOf(pods+"/pod-small") / 4

		if s, _ := h.agent.Status(); s.Counters.Drift > 0 {
			t.Errorf("%d drifts:\n%s", s.Counters.Drift, h.log.text.String())
		}
		h.spy.took()
		h.restart(raisedLS)
		h.steps(2 * time.Second)
		if n := h.spy.took(); n > 8 { // a restart always writes pins and quotas
			t.Errorf("%d writes after a restart", n)
		}
		h.expectTimes(before, 4, top...)
		h.expectTimes(before, 16, below...)

		h.life.act(h)
		h.expectTimes(before, 1, top...)
		h.expectTimes(before, 1, below...)
		h.steps(2 * time.Second)
		h.expectTimes(before, 4, top...)
		h.expectTimes(before, 16, below...)
		if s, _ := h.agent.Status(); s.Counters.Drift > 0 {
			t.Errorf("%d drifts:\n%s", s.Counters.Drift, h.log.text.String())
		}

		h.end("job/c")
		h.end("low/c")
		h.steps(50 * time.Second)
		h.expectTimes(before, 4, top...)
		h.steps(15 * time.Second)
		h.expectTimes(before, 1, top...)
		h.expectTimes(before, 1, below...)
	})
}

// least returns the lowest weight.
func (h *loopNode) least() int64 {
	if h.V2 {
		return 1
	}
	return 2
}

// TestLSWeightsOfRandomSiblings checks that, whatever runs beside batch work, the weights of any two
// siblings that aren't batch work keep the kubelet's ratio, up to rounding.
func TestLSWeightsOfRandomSiblings(t *testing.T) {
	t.Parallel()
	for _, v2 := range []bool{false, true} {
		t.Run(fmt.Sprint("v2 ", v2), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				var f qos.LSWeight
				now := time.Unix(1e9, 0)
				most := rapid.SampledFrom([]int{150, 400, 1600, 10000}).Draw(t, "most")
				unit := func(s knobs.Shares) float64 {
					if v2 {
						return float64(cgroupfs.WeightOf(s))
					}
					return float64(max(s, 2))
				}
				for range rapid.IntRange(1, 20).Draw(t, "steps") {
					now = now.Add(time.Duration(rapid.IntRange(-1, 90).Draw(t, "seconds")) * time.Second)
					var own []knobs.Shares
					fits := cgroupfs.Room(0, v2)
					for range rapid.IntRange(1, 10).Draw(t, "siblings") {
						shares := cgroupfs.Scale(knobs.Shares(rapid.Int64Range(0, 256000).Draw(t, "shares")), 100, v2)
						own = append(own, shares)
						fits = min(fits, cgroupfs.Room(shares, v2))
					}
					percent := max(100, f.Step(now, most, fits, rapid.Bool().Draw(t, "batch")))
					if percent > most {
						t.Fatalf("%d %% where at most %d %% are wanted", percent, most)
					}
					for _, a := range own {
						got := unit(cgroupfs.Scale(a, percent, v2))
						if due := unit(a) * float64(percent) / 100; got < due-0.51 || got > due+0.51 {
							t.Fatalf("%v has %v, due %v at %d %%", a, got, due, percent)
						}
					}
				}
			})
		})
	}
}

// TestLSWeightsWriteLittle checks that pods which come and go beside the same batch work don't cause
// writes of other pods' weights.
func TestLSWeightsWriteLittle(t *testing.T) {
	onLoop(t, fakekernel.MainlineV1(), knobSetup{config: raisedLS}, func(t *testing.T, h *loopNode) {
		h.run(batch("job/c"))
		for i := range 20 {
			h.run(service(fmt.Sprintf("web%d/c", i), 500))
		}
		h.steps(10 * time.Second)
		writes := 0
		h.spy.refusing(func(c knobs.Change) error {
			if c.Knob == knobs.Weight {
				writes++
			}
			return nil
		})
		random := rand.New(rand.NewSource(1))
		const rounds = 40
		for i := range rounds {
			name := fmt.Sprintf("new%d/c", i)
			h.run(service(name, 100+random.Intn(16000)))
			h.steps(3 * time.Second)
			h.end(name)
			h.steps(3 * time.Second)
		}
		if writes > 2*rounds+5 { // each pod's own weight at its start and its end
			t.Errorf("%d weights written in %d rounds", writes, rounds)
		}
	})
}

// TestKeptWeights checks that no pod's weight is raised beside a kubelet that takes it for a request: only
// the Burstable class is, while no Guaranteed pod has to keep its proportion to it.
func TestKeptWeights(t *testing.T) {
	onBothLoops(t, knobSetup{config: raisedLS, kept: true}, func(t *testing.T, h *loopNode) {
		const inBurstable = "/kubepods/burstable"
		h.weight(inBurstable, 2*1024)
		h.run(ask{name: "web/c", qos: "burstable", milli: 2000, annotations: map[string]string{"class.sluice.dev": "LS"}})
		before := h.weights([]string{inBurstable, inBurstable + "/pod-web"})
		h.run(batch("job/c"))
		h.uses["job/c"] = 8
		h.steps(2 * time.Second)
		h.expectTimes(before, 16, inBurstable)
		h.expectTimes(before, 1, inBurstable+"/pod-web")
		if why := h.whyThreshold(); why != "" {
			t.Errorf("beside Burstable pods alone, %s", why)
		}
		h.run(service("database/c", 1000))
		before["/kubepods/pod-database"] = int64(knobs.RequestShares(1000))
		if h.V2 {
			before["/kubepods/pod-database"] = h.weightOf("/kubepods/pod-database")
		}
		h.expectTimes(before, 1, inBurstable, "/kubepods/pod-database", inBurstable+"/pod-web")
		h.steps(2 * time.Second)
		h.expectTimes(before, 1, inBurstable, "/kubepods/pod-database", inBurstable+"/pod-web")
		if why := h.whyThreshold(); !strings.Contains(why, "is beside /kubepods/pod-database, a pod's cgroup, whose weight the kubelet takes for a request") {
			t.Errorf("beside a Guaranteed pod: %q", why)
		}
	})
}

func (h *loopNode) whyThreshold() (why string) {
	h.loop(func() { why = h.agent.loop.BatchStatus().ThresholdWhy })
	return why
}
