package agent

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

const normalized = "cpuNormalization: {ratio: 1.2}\n"

func (h *loopNode) expectQuotas(when string, container, pod float64) {
	h.t.Helper()
	for dir, want := range map[string]float64{"/kubepods/pod-web/a": container, "/kubepods/pod-web": pod} {
		if got := h.quotaOf(dir); got < want-0.00002 || got > want+0.00002 {
			h.t.Errorf("%s: %s has %v CPUs, want %v", when, dir, got, want)
		}
	}
}

// TestNormalization checks that CPU limits of services are divided from the start, over restarts and
// resizes in both directions, by another ratio, and given back.
func TestNormalization(t *testing.T) {
	onLoops(t, knobSetup{config: normalized}, func(t *testing.T, h *loopNode) {
		web := ask{name: "web/a", milli: 1000, annotations: map[string]string{"class.sluice.dev": "LS"}}
		h.run(web, ask{name: "plain/c", milli: 1500}, batch("job/c"), granted("big/c"),
			ask{name: "pin/c", milli: 1000, annotations: map[string]string{"class.sluice.dev": "LSR"}})
		h.expectQuotas("at the start", 0.83334, 0.83334)
		h.expectQuota("/kubepods/pod-plain", 1.25)
		h.expectQuota(bestBox+"/pod-big/c", 2)
		h.pass()
		h.restart(h.text)
		h.pass()
		h.expectQuotas("after a restart", 0.83334, 0.83334)

		milli := 1000
		for _, to := range []int{2400, 900, 880, 3000, 100} {
			h.resize("web/a", milli, to)
			milli = to
			h.sleep(podsettings.ResizeTime + time.Second)
			h.pass()
			want := float64((milli*100*100+119)/120) / 100_000
			h.expectQuotas("after a resize", want, want)
		}
		h.announce("web/a", 600) // it fails
		h.sleep(podsettings.ResizeTime + time.Second)
		h.pass()
		h.expectQuotas("after a resize that failed", 0.08334, 0.08334)
		h.specs["web/a"].Resources.Quota = 10_000

		if err := h.reload("cpuNormalization: {ratio: 2}\n"); err != nil {
			t.Fatal(err)
		}
		h.expectQuotas("by another ratio", 0.05, 0.05)
		if err := h.reload(""); err != nil {
			t.Fatal(err)
		}
		h.expectQuotas("without a ratio", 0.1, 0.1)
		h.expectQuota("/kubepods/pod-plain", 1.5)
		if err := h.reload(normalized); err != nil {
			t.Fatal(err)
		}
		h.expectQuotas("again", 0.08334, 0.08334)
		if len(h.spy.refused) > 0 {
			t.Error(h.spy.refused)
		}
		h.stop()
		h.giveBackNow()
		h.expectQuotas("given back", 0.1, 0.1)
		h.launch(h.text)
	})
}

// TestNormalizationAndBurst checks that the loop raises the divided limit, to a multiple of it.
func TestNormalizationAndBurst(t *testing.T) {
	onBothLoops(t, knobSetup{config: normalized + "control: {mode: on}\n"}, func(t *testing.T, h *loopNode) {
		h.run(ask{name: "web/a", milli: 1000, annotations: map[string]string{"class.sluice.dev": "LS", "cpu-burst.sluice.dev": "auto"}})
		h.uses["web/a"], h.throttled["web/a"] = 0.8, true
		h.steps(time.Minute)
		if got := h.quotaOf("/kubepods/pod-web/a"); got < 2.4 || got > 2.51 {
			t.Errorf("it is raised to %v CPUs, want three times 0.83", got)
		}
		h.throttled["web/a"] = false
		h.uses["web/a"] = 0.1
		h.steps(5 * time.Minute)
		h.expectQuotas("calm again", 0.83334, 0.83334)
	})
}

// TestNormalizationPreview checks that nothing is written in preview.
func TestNormalizationPreview(t *testing.T) {
	onBothLoops(t, knobSetup{config: "mode: preview\n" + normalized}, func(_ *testing.T, h *loopNode) {
		h.run(ask{name: "web/a", milli: 1000, annotations: map[string]string{"class.sluice.dev": "LS"}})
		h.pass()
		h.expectQuotas("in preview", 1, 1)
	})
}

// TestNormalizedResizeSeenLate checks a resize of which a pass sees the pod's part alone first.
func TestNormalizedResizeSeenLate(t *testing.T) {
	onLoops(t, knobSetup{config: normalized}, func(t *testing.T, h *loopNode) {
		h.run(ask{name: "web/a", milli: 1200, annotations: map[string]string{"class.sluice.dev": "LS"}})
		h.kubelet("/kubepods/pod-web", 2400)
		h.pass()
		if err := h.tryResize("web/a", 2400, 2400); err != nil {
			t.Fatal(err)
		}
		h.sleep(podsettings.ResizeTime + time.Second)
		h.pass()
		h.expectQuotas("after it", 2, 2)
		h.stop()
		h.giveBackNow()
		h.expectQuotas("given back", 2.4, 2.4)
		h.launch(h.text)
	})
}

// TestNormalizedResizeUnseen checks resizes while the plugin does not run, one of them to the value that
// Sluice had written.
func TestNormalizedResizeUnseen(t *testing.T) {
	onLoops(t, knobSetup{config: normalized}, func(_ *testing.T, h *loopNode) {
		h.run(ask{name: "web/a", milli: 1200, annotations: map[string]string{"class.sluice.dev": "LS"}})
		for _, to := range []int{1000, 1320} {
			h.stop()
			h.specs["web/a"].Resources.Quota = int64(to) * 100
			if to > 1200 {
				h.kubelet("/kubepods/pod-web", to) // first, since its container may not exceed it
			}
			h.runc(h.specs["web/a"])
			h.kubelet("/kubepods/pod-web", to)
			h.launch(h.text)
			h.pass()
			want := float64((to*100*100+119)/120) / 100_000
			h.expectQuotas("after a restart", want, want)
			h.stop()
			h.giveBackNow()
			h.expectQuotas("given back", float64(to)/1000, max(1.2, float64(to)/1000)) // nobody can tell whose 1 CPU the pod had
			h.launch(h.text)
		}
	})
}

// TestNormalizedPodIsPinned checks that the limit of a pod that a reload pins, and unpins, is the
// kubelet's in the end.
func TestNormalizedPodIsPinned(t *testing.T) {
	onLoops(t, knobSetup{config: normalized}, func(t *testing.T, h *loopNode) {
		h.run(ask{name: "web/a", milli: 2000})
		h.expectQuotas("at the start", 1.66667, 1.66667)
		if err := h.reload(normalized + "defaults: {guaranteed: LSR}\n"); err != nil {
			t.Fatal(err)
		}
		h.expectQuota("/kubepods/pod-web", -1)
		h.pass()
		h.expectQuota("/kubepods/pod-web", -1)
		if err := h.reload(normalized); err != nil {
			t.Fatal(err)
		}
		h.pass()
		h.expectQuotas("shared again", 1.66667, 1.66667)
		h.stop()
		h.giveBackNow()
		h.expectQuotas("given back", 2, 2)
		h.launch(h.text)
	})
}

// TestNormalizedPinIsGivenBack checks that the limits of a pod that a reload or a restart pins can be
// restored while it is pinned, and after it shares CPUs again.
func TestNormalizedPinIsGivenBack(t *testing.T) {
	const pins = normalized + "defaults: {guaranteed: LSR}\n"
	for name, start := range map[string]func(*loopNode, string) error{
		"reload":  (*loopNode).reload,
		"restart": func(h *loopNode, text string) error { h.restart(text); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			onLoops(t, knobSetup{config: normalized}, func(t *testing.T, h *loopNode) {
				h.run(ask{name: "web/a", milli: 2000})
				h.expectQuotas("at the start", 1.66667, 1.66667)
				for _, by := range []struct {
					text string
					cpus float64
				}{{pins, -1}, {normalized, 1.66667}, {pins, -1}} {
					if err := start(h, by.text); err != nil {
						t.Fatal(err)
					}
					h.expectQuotas("by "+by.text, by.cpus, by.cpus)
					h.pass()
					h.expectQuotas("after a pass by "+by.text, by.cpus, by.cpus)
				}
				h.calm(t)
				h.stop()
				h.giveBackNow()
				h.expectQuotas("given back", 2, 2)
				h.launch(h.text)
			})
		})
	}
}

// TestLiftWaitsForASetting checks that the limit of a pinned pod is not lifted before a setting of
// Sluice's in its place is given back, of which a pass may know before the settings are compared.
func TestLiftWaitsForASetting(t *testing.T) {
	onLoops(t, knobSetup{}, func(_ *testing.T, h *loopNode) {
		h.run(pinned("web/a"))
		h.loop(func() {
			j, pod := h.agent.Journal, knobs.Object{Path: "/kubepods/pod-web", Name: "ns/web", Level: knobs.PodLevel}
			j.Drop(pod.Path, knobs.Quota)
			j.Record(pod, knobs.Quota, finite(1))
			j.RecordWrite(pod.Path, knobs.Quota, knobs.MicroQuota(83_334, 100_000))
			h.quota(pod.Path, 83_334)
			h.agent.cpusets.LiftAll()
			h.expectQuotas("before the setting is given back", -1, 0.83334)
			h.agent.podsettings.ReconcileAll(h.agent.loop.Memory.Owns)
			h.agent.cpusets.LiftAll()
		})
		h.expectQuotas("lifted", -1, -1)
		h.stop()
		h.giveBackNow()
		h.expectQuotas("given back", 1, 1)
		h.launch(h.text)
	})
}
