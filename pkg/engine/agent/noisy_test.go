package agent

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// loudNode runs a service, batch work, and a service that requests a CPU and has work for twelve. While that one is beside
// the other service, the other one waits.
type loudNode struct {
	*loopNode
	asks []ask
	wait float64 // pressure of the one that waits
}

func newLoudNode(h *loopNode) *loudNode {
	n := &loudNode{loopNode: h, wait: 0.5}
	n.asks = []ask{service("web/c", 1000), {name: "loud/c", qos: "burstable", milli: 4000, request: 1000, annotations: map[string]string{"class.sluice.dev": "LS"}}, batch("job/c")}
	h.run(n.asks...)
	h.uses["web/c"], h.uses["loud/c"], h.uses["job/c"] = 0.5, 0.5, 0.1
	h.waits, h.ready = map[string]float64{"web/c": 0.01}, map[string]float64{}
	n.seconds(10)
	return n
}

// seconds lets time pass.
func (n *loudNode) seconds(count int) {
	n.t.Helper()
	for range count {
		n.waits["web/c"] = 0.01
		if n.uses["loud/c"] > 1 && n.set("loud/c").Overlaps(n.set("web/c")) {
			n.waits["web/c"] = n.wait
		}
		n.steps(time.Second)
	}
}

// loud brings the node to the point where the pod is kept apart, and that has helped.
func (n *loudNode) loud() {
	n.t.Helper()
	n.uses["loud/c"], n.ready["loud/c"] = 3, 9
	n.seconds(15)
	n.expectApart("loud", true)
	if n.audit.has("noisy", "separate") != 1 || n.audit.has("noisy", "confirm") != 1 {
		n.t.Fatalf("decisions %+v", n.audit.of("noisy"))
	}
}

func (n *loudNode) expectApart(when string, apart bool) {
	n.t.Helper()
	loud, web := n.set("loud/c"), n.set("web/c")
	switch {
	case apart && (loud.Overlaps(web) || loud.Size() < 1 || web.Size() < loud.Size()):
		n.t.Errorf("%s: the noisy pod is on %s, the other on %s", when, loud, web)
	case !apart && loud != web:
		n.t.Errorf("%s: the noisy pod is on %s, the other on %s", when, loud, web)
	}
}

var noisyConfigs = map[string]string{
	"overlap":   "control: {mode: preview, noisy: {mode: on}}\nmemory: {}\n",
	"by quota":  "control: {mode: on, noisy: {mode: on}, batch: {by: quota}}\nmemory: {}\n",
	"by cpuset": "control: {mode: on, noisy: {mode: on}, batch: {by: cpuset}}\nmemory: {}\n",
	"exclusive": "control: {mode: on, noisy: {mode: on}}\nmemory: {}\n" + apart,
}

// TestNoisy checks that a noisy pod is kept apart from the others of its pool, also while containers and pins come and go,
// that explain says so, and that it is beside them again once it is calm.
func TestNoisy(t *testing.T) {
	for name, config := range noisyConfigs {
		t.Run(name, func(t *testing.T) {
			onLoops(t, knobSetup{config: config}, func(_ *testing.T, h *loopNode) {
				n := newLoudNode(h)
				n.loud()
				if why := h.container("loud/c").Why; why != "LS in pool online, apart from its other pods" {
					h.t.Errorf("explained by %q", why)
				}
				late := service("loud/d", 500)
				late.request, late.qos = 100, "burstable"
				other := service("api/c", 500)
				h.run(late, other)
				n.ready["loud/d"] = 0
				if all := cpuset.Union(h.set("loud/c"), h.set("loud/d")); h.set("loud/c") != h.set("loud/d") || h.set("api/c").Overlaps(all) || h.set("api/c") != h.set("web/c") {
					h.t.Errorf("noisy pod on %s and %s, others on %s and %s", h.set("loud/c"), h.set("loud/d"), h.set("web/c"), h.set("api/c"))
				}
				n.seconds(2)
				h.pass()
				n.expectApart("after a pass", true)
				n.uses["loud/c"], n.ready["loud/c"] = 0.5, 0
				n.seconds(140)
				n.expectApart("calm", false)
				if h.audit.has("noisy", "restore") != 1 {
					h.t.Errorf("decisions %+v", h.audit.of("noisy"))
				}
				h.giveBack(func(h *knobNode) { h.run(append(n.asks, late, other)...) })
			})
		})
	}
}

// TestNoisyAcquitted checks that a pod is beside the others again if keeping it apart has not helped.
func TestNoisyAcquitted(t *testing.T) {
	onBothLoops(t, knobSetup{config: noisyConfigs["by quota"]}, func(t *testing.T, h *loopNode) {
		n := newLoudNode(h)
		n.uses["loud/c"], n.ready["loud/c"] = 3, 9
		tried := 0
		for range 60 {
			h.waits["web/c"] = 0.5
			h.steps(time.Second)
			if !h.set("loud/c").Overlaps(h.set("web/c")) {
				tried++
			}
		}
		if tried < 5 || tried > 15 || h.audit.has("noisy", "acquit") != 1 {
			t.Errorf("apart for %d s, decisions %+v", tried, h.audit.of("noisy"))
		}
		n.expectApart("afterwards", false)
	})
}

// TestNoisyGivenBack checks that the pod is beside the others again after the failsafe has acted, after a reload that ends
// the controller, after a restart, and when others need the CPUs.
func TestNoisyGivenBack(t *testing.T) {
	for name, config := range noisyConfigs {
		for how, do := range map[string]func(*loudNode){
			"failsafe": func(n *loudNode) { n.life.act(n.loopNode) },
			"reload": func(n *loudNode) {
				if err := n.reload("control: {mode: preview}\nmemory: {}\n"); err != nil {
					n.t.Fatal(err)
				}
			},
			"restart": func(n *loudNode) { n.restart(config) },
			"others":  func(n *loudNode) { n.run(service("large/c", 6500)) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				onBothLoops(t, knobSetup{config: config}, func(_ *testing.T, h *loopNode) {
					n := newLoudNode(h)
					n.loud()
					do(n)
					n.expectApart(how, false)
					if how == "failsafe" {
						n.seconds(2)
						n.expectApart("back from it", true)
					}
				})
			})
		}
	}
}

// TestNoisyPreview checks that nothing is written in preview, nor by default.
func TestNoisyPreview(t *testing.T) {
	for config, told := range map[string]bool{"control: {mode: preview, noisy: {mode: preview}}\nmemory: {}\n": true, "control: {mode: preview}\nmemory: {}\n": false} {
		t.Run(config, func(t *testing.T) {
			onBothLoops(t, knobSetup{config: config}, func(t *testing.T, h *loopNode) {
				n := newLoudNode(h)
				writes := h.Writes()
				n.uses["loud/c"], n.ready["loud/c"] = 3, 9
				n.seconds(15)
				if h.Writes() != writes || (h.audit.has("noisy", "separate") > 0) != told || h.audit.has("noisy", "advise") != 1 {
					t.Errorf("%d writes, decisions %+v", h.Writes()-writes, h.audit.of("noisy"))
				}
			})
		})
	}
}
