package agent

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestBatchBesideAService checks that a service is neither evicted nor throttled because a
// container of its pod is batch work.
func TestBatchBesideAService(t *testing.T) {
	onV2Loop(t, "control: {mode: preview}\n", func(t *testing.T, h *loopNode) {
		side := service("web/side", 100)
		side.annotations = map[string]string{"class.sluice.dev": "BE"}
		may := service("may/c", 1000)
		may.annotations["allow.sluice.dev"] = "evict"
		h.run(service("web/c", 1000), side, may, batch("job/c"))
		h.steps(time.Second)
		h.loop(func() {
			for _, p := range h.agent.loop.View.Pods {
				want := map[string]control.Pod{"web": {Class: workload.LS}, "may": {Class: workload.LS, Allow: workload.EvictPod}, "job": {Class: workload.BE}}[p.UID]
				if p.Class != want.Class || p.Allow != want.Allow {
					t.Errorf("pod %s: class %s, allows %v", p.UID, p.Class, p.Allow)
				}
			}
		})
	})
}

// TestRulesThatReclaimSlowly checks that, while the kernel reclaims, only the latest of a rule's
// repeated requests is kept.
func TestRulesThatReclaimSlowly(t *testing.T) {
	var mu sync.Mutex
	var taken knobs.Bytes
	var answers chan struct{}
	s := knobSetup{config: "control: {mode: preview, rules: [{name: r, mode: on, metric: node.cpu, watermark: 10, action: reclaim, stepPercent: 10}]}\n"}
	s.options = func(_ *knobNode, o *Options) {
		answers = make(chan struct{}) // made in the synctest bubble
		o.Memory.Reclaim = func(_ string, bytes knobs.Bytes) error {
			<-answers
			mu.Lock()
			defer mu.Unlock()
			taken += bytes
			return nil
		}
	}
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		h.run(batch("job/c"))
		h.hold("job/c", 1<<30)
		h.uses["job/c"] = 8
		h.steps(30 * time.Second)
		h.uses["job/c"] = 0
		h.steps(2 * time.Second)
		close(answers)
		h.steps(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most := knobs.Bytes(2 << 30 / 10); taken == 0 || taken > most {
			t.Errorf("%s taken, of two rounds at most %s", taken, most)
		}
	})
}

// TestEvictionsOverAReload checks that the counts of evictions stay when their configuration
// changes.
func TestEvictionsOverAReload(t *testing.T) {
	dir := t.TempDir()
	s := knobSetup{config: "control: {mode: on, eviction: {by: cri}}\n"}
	s.options = func(_ *knobNode, o *Options) { o.StateDir, o.Evictor = dir, &fakeEvictor{} }
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 1000), batch("job/c"))
		h.steps(3 * time.Second)
		kills := func() (n int) {
			h.loop(func() { n = h.agent.loop.Controllers.Benefit.Report(time.Now()).Day.Evicted })
			return n
		}
		if err := batchswitch.Write(dir, batchswitch.Setting{To: control.SwitchOff, Evict: true}); err != nil {
			t.Fatal(err)
		}
		h.steps(5 * time.Second)
		h.end("job/c")
		h.steps(2 * time.Second)
		if n := kills(); n != 1 {
			t.Fatalf("%d kills", n)
		}
		if err := h.reload("control: {mode: on, eviction: {by: cri, coolDown: 10m}}\n"); err != nil {
			t.Fatal(err)
		}
		h.steps(2 * time.Second)
		if n := kills(); n != 1 {
			t.Errorf("%d kills after a reload", n)
		}
	})
}

// TestTicksThatComeEarly checks that no step is left out because a tick comes a little early, if
// the fast interval is also that of all steps.
func TestTicksThatComeEarly(t *testing.T) {
	onV2Loop(t, "control: {mode: on, fastInterval: 1s, batch: {mode: off}}\n", func(t *testing.T, h *loopNode) {
		h.run(bursting("web/c", 1000))
		h.throttled["web/c"], h.uses["web/c"] = true, 1
		for range 5 {
			time.Sleep(999 * time.Millisecond)
			h.tick()
		}
		if got := h.quotaOf("/kubepods/pod-web/c"); got < 2.4 {
			t.Errorf("%v CPUs after five steps", got)
		}
	})
}

// TestSwitchInPreview checks that windows and the switch in preview cause no evictions, although
// evictions are on.
func TestSwitchInPreview(t *testing.T) {
	dir := t.TempDir()
	evictor := &fakeEvictor{}
	s := knobSetup{config: "control: {mode: preview, eviction: {mode: on, by: cri}}\n"}
	s.options = func(_ *knobNode, o *Options) { o.StateDir, o.Evictor = dir, evictor }
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 1000), batch("job/c"))
		if err := batchswitch.Write(dir, batchswitch.Setting{To: control.SwitchOff, Evict: true}); err != nil {
			t.Fatal(err)
		}
		h.steps(10 * time.Second)
		if len(evictor.asked) > 0 || h.audit.has("windows", "evict") == 0 {
			t.Errorf("asked %v; decisions %+v", evictor.asked, h.audit.all)
		}
	})
}

// TestDemotionBesidePoolsInPreview checks that nobody is demoted for a pool's lack of CPUs while
// the pools' controller is in preview, because CPUs may still be free to take.
func TestDemotionBesidePoolsInPreview(t *testing.T) {
	t.Parallel()
	for mode, demotes := range map[string]bool{"preview": false, "on": true} {
		t.Run(mode, func(t *testing.T) { testDemotionBeside(t, mode, demotes) })
	}
}

// TestDemotionWherePoolsShare checks that of services which compete for CPUs that all share only
// the one that permits demotion is demoted.
func TestDemotionWherePoolsShare(t *testing.T) {
	t.Parallel()
	for allow, demotes := range map[string]bool{"demote": true, "throttle": false} {
		t.Run(allow, func(t *testing.T) {
			onV2Loop(t, "control: {mode: preview, demotion: {mode: on}}\n", func(t *testing.T, h *loopNode) {
				h.run(
					ask{name: "web/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS"}},
					ask{name: "report/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS", "allow.sluice.dev": allow}},
					batch("job/c"))
				h.uses["web/c"], h.uses["report/c"], h.uses["job/c"] = 8, 6, 0.1
				h.steps(10 * time.Second)
				if got := h.audit.has("demotion", "demote") > 0; got != demotes {
					t.Errorf("demoted %v: %+v", got, h.audit.all)
				}
				h.expectQuota(h.specs["web/c"].CgroupsPath, -1)
				if quota := h.quotaOf(h.specs["report/c"].CgroupsPath); (quota > 0 && quota < 6) != demotes {
					t.Errorf("report has %v CPUs", quota)
				}
			})
		})
	}
}

func testDemotionBeside(t *testing.T, mode string, demotes bool) {
	onV2Loop(t, "control: {mode: preview, demotion: {mode: on}, pools: {mode: "+mode+"}}\n"+apart, func(t *testing.T, h *loopNode) {
		web := ask{name: "web/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS", "allow.sluice.dev": "demote"}}
		h.run(web, batch("job/c"))
		h.uses["web/c"], h.uses["job/c"] = 8, 8
		h.steps(10 * time.Second)
		if got := h.audit.has("demotion", "demote") > 0; got != demotes {
			t.Errorf("pools in mode %s: demoted %v", mode, got)
		}
	})
}

// TestCacheCantTell checks that the cache controller says why it can't work without counters, and
// says nothing if it isn't configured.
func TestCacheCantTell(t *testing.T) {
	t.Parallel()
	for configured, says := range map[string]bool{"control: {mode: on}\n": false, "rdt: {classes: {be: {l3: 0-30%}}}\ncontrol: {mode: on, cache: {class: be}}\n": true} {
		t.Run(configured, func(t *testing.T) {
			onV2Loop(t, configured, func(t *testing.T, h *loopNode) {
				h.run(service("web/c", 1000), batch("job/c"))
				h.steps(3 * time.Second)
				var all []status.Controller
				err := h.agent.events.Query("test", func() error { all = h.agent.loop.ControllerStatus(); return nil })
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range all {
					if c.Name == "cache" && strings.HasPrefix(c.Note, "can't tell contention: no container's cache") != says || c.Name != "cache" && c.Note != "" {
						t.Errorf("%s: %q", c.Name, c.Note)
					}
				}
			})
		})
	}
}
