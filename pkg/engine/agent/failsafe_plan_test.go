package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

const poolsOn = "control: {mode: on}\n" + apart

// set returns the container's CPUs in the kernel.
func (h *loopNode) set(name string) cpuset.Set {
	h.t.Helper()
	v, err := h.spy.Read(h.specs[name].CgroupsPath, knobs.CPUs)
	if err != nil {
		return cpuset.Set{} // the container has ended
	}
	if set := cpuset.Set(v.(knobs.CPUSet)); !set.IsEmpty() {
		return set
	}
	return cpuset.Range(0, fakekernel.CPUs-1)
}

// exclusive fails the test if another container's set has CPUs of a pin.
func (h *loopNode) exclusive() {
	h.t.Helper()
	s, err := h.agent.Status()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, pin := range s.Containers {
		if !pin.Class.Pinned() || h.specs[pin.ID] == nil || pin.Pool != "" {
			continue
		}
		for name := range h.specs {
			if name != pin.ID && h.set(name).Overlaps(pin.CPUs) {
				h.t.Fatalf("%s on %s has CPUs of %s, %s", name, h.set(name), pin.ID, pin.CPUs)
			}
		}
	}
}

// TestPoolsFollow checks that exclusive pools follow the load while pins come and go, keep their
// sizes over a restart, and follow changes of the machine.
func TestPoolsFollow(t *testing.T) {
	onLoops(t, knobSetup{config: poolsOn}, func(t *testing.T, h *loopNode) {
		asks := []ask{service("web/c", 4000), service("idle/c", 1000), batch("job/c")}
		h.run(asks...)
		h.uses["web/c"], h.uses["job/c"] = 3.5, 4
		h.steps(5 * time.Second)
		grown := h.set("web/c").Size()
		if grown < 4 || h.set("web/c").Overlaps(h.set("job/c")) {
			t.Errorf("web is on %s, job on %s", h.set("web/c"), h.set("job/c"))
		}
		before := h.set("web/c")
		if err := h.create(ask{name: "pin/c", milli: 1000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}}); err != nil {
			t.Fatal(err)
		}
		h.steps(300 * time.Millisecond)
		h.begin("pin/c")
		h.exclusive()
		h.steps(3 * time.Second)
		h.exclusive()
		if moved := cpuset.Difference(before, h.set("web/c")).Size(); moved > 2 {
			t.Errorf("web moved from %s to %s", before, h.set("web/c"))
		}
		web, job := h.set("web/c"), h.set("job/c")
		h.blind = true
		h.restart(poolsOn)
		h.pass()
		if h.set("web/c") != web || h.set("job/c") != job {
			t.Errorf("after a restart on %s and %s, before on %s and %s", h.set("web/c"), h.set("job/c"), web, job)
		}
		h.blind = false
		h.end("pin/c")
		h.uses["web/c"], h.system = 0.1, 0
		h.steps(4 * time.Minute)
		if got := h.set("web/c"); got.Size() >= grown {
			t.Errorf("web keeps %s", got)
		}
		h.pass()
		if s, _ := h.agent.Status(); s.Counters.Drift > 0 {
			t.Errorf("%d drifts", s.Counters.Drift)
		}
		writes := h.Writes()
		h.steps(5 * time.Second)
		if h.Writes() != writes {
			t.Errorf("%d writes of a loop that changes nothing", h.Writes()-writes)
		}
		h.giveBack(func(h *knobNode) { h.run(asks...) })
	})
}

// TestLoopHotplug checks the pools' sizes on a machine that loses CPUs.
func TestLoopHotplug(t *testing.T) {
	onV2Loop(t, poolsOn, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 4000), batch("job/c"))
		h.uses["web/c"] = 3
		h.steps(2 * time.Second)
		full := h.o.Machine
		m, err := synth.Machine("2 nodes 2 cores memory 8G")
		if err != nil {
			t.Fatal(err)
		}
		h.agent.SetMachine(m)
		h.steps(2 * time.Second)
		if got := h.set("web/c"); !got.SubsetOf(m.Online) {
			t.Errorf("web is on %s", got)
		}
		h.agent.SetMachine(full)
		h.steps(10 * time.Second)
		h.exclusive()
	})
}

// onV2Loop runs onLoop for mainline's cgroup v2.
func onV2Loop(t *testing.T, text string, test func(t *testing.T, h *loopNode)) {
	t.Helper()
	onLoop(t, fakekernel.MainlineV2(), knobSetup{config: text}, test)
}

// TestBatchBySet checks the batch pool in overlap mode, over a restart.
func TestBatchBySet(t *testing.T) {
	const text = "control: {mode: on, batch: {by: cpuset, thresholdPercent: 65}}\n"
	onLoops(t, knobSetup{config: text}, func(t *testing.T, h *loopNode) {
		asks := []ask{service("web/c", 6000), batch("job/c")}
		h.run(asks...)
		h.uses["web/c"] = 3
		h.steps(2 * time.Second)
		if got := h.set("job/c"); got.Size() != 3 {
			t.Errorf("job is on %s", got)
		}
		job := h.set("job/c")
		h.run(batch("more/c"))
		if got := h.set("more/c"); got != job {
			t.Errorf("more begins on %s", got)
		}
		h.restart(text)
		h.pass()
		if got := h.set("job/c"); got != job {
			t.Errorf("after a restart on %s, before %s", got, job)
		}
		h.steps(time.Second)
		h.uses["web/c"] = 0
		h.steps(time.Minute)
		if got := h.set("job/c"); got.Size() < 6 {
			t.Errorf("job stays on %s", got)
		}
		h.giveBack(func(h *knobNode) { h.run(append(asks, batch("more/c"))...) })
	})
}

// TestFailsafe checks that the failsafe's plan is right at any time, that the kernel accepts all
// of it, and that the loop reverts and reports what the failsafe did.
func TestFailsafe(t *testing.T) {
	for name, text := range map[string]string{"pools": poolsOn, "quota": byQuota, "both": "control: {mode: on, batch: {by: both, thresholdPercent: 65}}\n"} {
		t.Run(name, func(t *testing.T) {
			onLoops(t, knobSetup{config: text}, func(t *testing.T, h *loopNode) {
				low := ask{name: "low/c", qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}}
				h.run(bursting("web/c", 2000), batch("job/c"), granted("big/c"), low)
				h.throttled["web/c"], h.uses["web/c"] = true, 2
				h.steps(3 * time.Second)
				h.run(ask{name: "pin/c", milli: 2000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}})
				pin := h.set("pin/c")
				before := h.spy.refused
				h.life.act(h) // no tick since the plan was made
				if h.set("pin/c") != pin || len(h.spy.refused) != len(before) {
					t.Errorf("the pin went from %s to %s", pin, h.set("pin/c"))
				}
				h.exclusive()
				shared := cpuset.Difference(cpuset.Range(0, 7), pin)
				if got := h.set("web/c"); got != shared {
					t.Errorf("web is on %s, the shared CPUs are %s", got, shared)
				}
				h.expectQuota("/kubepods/pod-web/c", 2)
				h.expectQuota("/kubepods/pod-web", 2)
				switch name {
				case "quota", "both":
					if got := h.quotaOf(bestBox); got < 0 || got > 0.2 {
						t.Errorf("the box has %v CPUs", got)
					}
				case "pools":
					if got := h.set("job/c"); got.Size() != 2 {
						t.Errorf("job is on %s", got)
					}
				}
				h.sleep(5 * time.Second)
				h.steps(5 * time.Second)
				h.pass()
				if h.audit.has("failsafe", "act") != 1 {
					t.Error("the loop tells nothing of what the failsafe did")
				}
				if name != "pools" {
					if got := h.quotaOf(bestBox); got < 0.9 {
						t.Errorf("the box still has %v CPUs", got)
					}
				} else if got := h.set("web/c"); got == shared {
					t.Errorf("web is still on %s", got)
				}
				kept := h.life.kept
				h.steps(5 * time.Second)
				if h.life.kept != kept {
					t.Errorf("the same plan was kept %d times", h.life.kept-kept)
				}
			})
		})
	}
}

// TestFailsafeWhileTheSamplerHangs checks that the periodic pass, which goes on while measuring hangs,
// leaves what the failsafe did, repairs pins, and repairs everything once ticks are back.
func TestFailsafeWhileTheSamplerHangs(t *testing.T) {
	for name, text := range map[string]string{"pools": poolsOn, "quota": byQuota} {
		t.Run(name, func(t *testing.T) {
			onBothLoops(t, knobSetup{config: text}, func(t *testing.T, h *loopNode) {
				h.run(bursting("web/c", 2000), batch("job/c"))
				h.run(ask{name: "pin/c", milli: 2000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}})
				h.throttled["web/c"], h.uses["web/c"] = true, 2
				h.steps(3 * time.Second)
				pin, web, batchQuota := h.set("pin/c"), h.set("web/c"), h.quotaOf(bestBox)
				h.sleep(failsafe.Silence)
				h.life.act(h)
				all, floor := h.set("web/c"), h.quotaOf(bestBox)
				if name == "pools" && all == web || name == "quota" && floor == batchQuota {
					t.Fatalf("the failsafe changed nothing: web is on %s, the box has %v CPUs", all, floor)
				}
				other := cpuset.Difference(cpuset.Range(0, fakekernel.CPUs-1), pin)
				if err := h.WriteFile(h.specs["pin/c"].CgroupsPath, "cpuset.cpus", other.String()); err != nil {
					t.Fatal(err)
				}
				h.sleep(time.Minute)
				if h.set("pin/c") != pin || h.set("web/c") != all {
					t.Errorf("a minute later the pin is on %s, and web on %s; want %s and %s", h.set("pin/c"), h.set("web/c"), pin, all)
				}
				h.expectQuota("/kubepods/pod-web/c", 2)
				h.expectQuota(bestBox, floor)
				h.steps(5 * time.Second)
				h.pass()
				if name == "pools" && h.set("web/c") == all || name == "quota" && h.quotaOf(bestBox) == floor {
					t.Errorf("with ticks again, web is on %s, and the box has %v CPUs", h.set("web/c"), h.quotaOf(bestBox))
				}
			})
		})
	}
}

// TestLoopFaults checks that the loop takes nothing from services without measurements, while the
// clock stands still or jumps, and after a panic, and that it continues afterwards.
func TestLoopFaults(t *testing.T) {
	onBothLoops(t, knobSetup{config: poolsOn}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 4000), batch("job/c"))
		h.uses["web/c"] = 3
		h.steps(3 * time.Second)
		size := h.set("web/c").Size()
		same := func(when string) {
			t.Helper()
			if got := h.set("web/c").Size(); got < size {
				t.Errorf("%s: web has %d CPUs, had %d", when, got, size)
			}
		}
		h.uses["web/c"] = 0.1
		h.blind = true
		h.steps(time.Minute)
		same("blind")
		h.blind, h.frozen = false, time.Now()
		h.steps(time.Minute)
		same("frozen")
		h.frozen = time.Now().Add(-time.Hour)
		h.steps(2 * time.Second)
		same("back")
		h.frozen = time.Now().Add(time.Hour)
		h.steps(2 * time.Second)
		same("forth")
		h.frozen = time.Time{}
		h.steps(2 * time.Second)
		same("again")
		beats := h.life.beats
		h.inPanic(3)
		if h.life.beats != beats+3 || h.log.count("panic in the control loop") != 1 {
			t.Errorf("beats %d to %d; log %s", beats, h.life.beats, h.log.text.String())
		}
		h.uses["web/c"] = 3.8
		h.steps(time.Second)
		if got := h.set("web/c").Size(); got < 4 {
			t.Errorf("the loop stands still: web has %d CPUs", got)
		}
	})
}

// inPanic makes the loop panic for some ticks, with a heartbeat in each.
func (h *loopNode) inPanic(ticks int) {
	var made colocation.Controllers
	h.loop(func() { made, h.agent.loop.Controllers = h.agent.loop.Controllers, colocation.Controllers{} })
	for range ticks {
		time.Sleep(failsafe.BeatInterval)
		h.agent.Tick(h.snapshot())
	}
	h.loop(func() {
		h.agent.loop.Controllers = made
		h.agent.Counters.Panics = 0
	})
	if !strings.Contains(h.log.text.String(), "nil pointer") {
		h.t.Errorf("nobody told of the panic")
	}
}

// TestFailsafeAfterGivingBack checks that the plan made before batch work ended sets no quota on
// its cgroup that nothing would remove.
func TestFailsafeAfterGivingBack(t *testing.T) {
	onBothLoops(t, knobSetup{config: byQuota}, func(_ *testing.T, h *loopNode) {
		h.run(batch("crunch/c"))
		h.steps(2 * time.Second)
		h.end("crunch/c")
		h.restart(byQuota)
		h.expectQuota("/kubepods/besteffort", -1)
		h.sleep(5 * time.Second)
		h.life.act(h)
		h.expectQuota("/kubepods/besteffort", -1)
	})
}

// A container that ends between the failsafe's work and the next step of the loop leaves nothing of
// it behind.
func TestEndAfterTheFailsafe(t *testing.T) {
	onLoops(t, knobSetup{config: byQuota}, func(_ *testing.T, h *loopNode) {
		low := ask{name: "low/c", qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}}
		h.run(service("web/c", 1000), granted("big/c"), low)
		h.uses["web/c"] = 3
		h.steps(3 * time.Second)
		h.sleep(failsafe.Silence)
		h.life.act(h)
		for _, name := range []string{"big/c", "low/c"} {
			h.end(name)
		}
		h.steps(time.Second)
		h.giveBack(func(h *knobNode) {
			h.run(service("web/c", 1000), granted("big/c"), low)
			for _, name := range []string{"big/c", "low/c"} {
				h.end(name)
			}
		})
	})
}
