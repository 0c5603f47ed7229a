package agent

import (
	"testing"
	"time"
)

// culpritNode runs a service, two batch pods, and a pod that makes the service wait while it uses more
// than 1.6 CPUs.
type culpritNode struct {
	*loopNode
	asks  []ask
	wants float64 // of the pod that makes the service wait
	half  float64 // half of what it uses then
	dir   string  // cgroup of that pod
}

func newCulpritNode(h *loopNode, hog ask) *culpritNode {
	n := &culpritNode{loopNode: h, wants: 0.2, dir: "/kubepods/" + hog.qos + "/pod-hog"}
	n.asks = []ask{service("web/c", 4000), hog, batch("a/c"), batch("b/c")}
	h.run(n.asks...)
	h.uses["web/c"], h.uses["a/c"], h.uses["b/c"] = 1, 0.1, 0.1
	h.waits = map[string]float64{"web/c": 0.01}
	return n
}

// seconds lets time pass, while the pod uses what it may.
func (n *culpritNode) seconds(count int) {
	n.t.Helper()
	for range count {
		n.uses["hog/c"] = n.wants
		if quota := n.quotaOf(n.dir); quota >= 0 {
			n.uses["hog/c"] = min(n.wants, quota)
		}
		n.waits["web/c"] = 0.01
		if n.uses["hog/c"] > 1.6 {
			n.waits["web/c"] = 0.5
		}
		n.steps(time.Second)
	}
}

// squeezed brings the node to the point where the pod is limited to half of its use, and that has helped.
func (n *culpritNode) squeezed() {
	n.t.Helper()
	n.seconds(5)
	n.wants, n.half = 3, 1.5
	if quota := n.quotaOf(n.dir); quota >= 0 {
		n.half = min(n.wants, quota) / 2
	}
	n.seconds(12)
	if n.audit.has("culprit", "squeeze") != 1 || n.audit.has("culprit", "confirm") != 1 {
		n.t.Fatalf("decisions %+v", n.audit.all)
	}
	n.expectQuota(n.dir, n.half)
}

// culpritHogs are the pod in a batch cgroup, outside of batch cgroups, and as a service that permits it.
func culpritHogs() map[string]ask {
	return map[string]ask{
		"in the batch cgroup": granted("hog/c"),
		"a service":           {name: "hog/c", qos: "burstable", milli: 4000, request: 1000, annotations: map[string]string{"class.sluice.dev": "LS", "allow.sluice.dev": "demote", "cpu-burst.sluice.dev": "100%"}},
		"outside":             {name: "hog/c", qos: "burstable", milli: 3000, annotations: map[string]string{"class.sluice.dev": "BE"}},
	}
}

const (
	culpritOn         = "control: {mode: preview, culprit: {mode: on}}\nmemory: {}\n"
	culpritWithBudget = "control: {mode: on, culprit: {mode: on}, batch: {by: quota, thresholdPercent: 90}}\nmemory: {}\n"
)

// TestCulprit checks that the quota of the pod that makes a service wait is lowered and given
// back, that no other pod's is, and that a container which starts later in the pod gets no more,
// with and without a budget of batch work.
func TestCulprit(t *testing.T) {
	for name, hog := range culpritHogs() {
		for budget, config := range map[string]string{"alone": culpritOn, "with a budget": culpritWithBudget} {
			t.Run(name+" "+budget, func(t *testing.T) {
				onLoops(t, knobSetup{config: config}, func(_ *testing.T, h *loopNode) {
					n := newCulpritNode(h, hog)
					n.squeezed()
					for _, other := range []string{"/kubepods/besteffort/pod-a", "/kubepods/besteffort/pod-b"} {
						h.expectQuota(other, -1)
					}
					late := hog
					late.name, late.request = "hog/d", min(hog.request, 200)
					h.run(late)
					n.seconds(2)
					h.expectQuota(n.dir, n.half)
					n.wants = 0.2
					n.seconds(180)
					if h.audit.has("culprit", "restore") != 1 {
						h.t.Errorf("decisions %+v", h.audit.all)
					}
					h.pass()
					h.giveBack(func(h *knobNode) { h.run(append(n.asks, late)...) })
				})
			})
		}
	}
}

// TestCulpritGivenBack checks that the quota is given back by the failsafe, by a reload that ends
// the controller, and after a restart.
func TestCulpritGivenBack(t *testing.T) {
	for name, hog := range culpritHogs() {
		for how, do := range map[string]func(*culpritNode){
			"failsafe": func(n *culpritNode) { n.life.act(n.loopNode) },
			"reload": func(n *culpritNode) {
				if err := n.reload("control: {mode: preview}\nmemory: {}\n"); err != nil {
					n.t.Fatal(err)
				}
			},
			"restart": func(n *culpritNode) { n.restart(culpritOn) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				onLoops(t, knobSetup{config: culpritOn}, func(_ *testing.T, h *loopNode) {
					n := newCulpritNode(h, hog)
					before := h.quotaOf(n.dir)
					own := h.quotaOf(n.dir + "/c")
					n.squeezed()
					do(n)
					h.expectQuota(n.dir, before)
					h.expectQuota(n.dir+"/c", own)
				})
			})
		}
	}
}

// TestCulpritBudgetAfterRestart checks that after a restart the pod has its own quota again where
// an earlier run's quotas are taken over for the budget.
func TestCulpritBudgetAfterRestart(t *testing.T) {
	onLoops(t, knobSetup{config: culpritWithBudget}, func(_ *testing.T, h *loopNode) {
		n := newCulpritNode(h, granted("hog/c"))
		n.squeezed()
		n.wants = 0.2
		n.restart(culpritWithBudget)
		n.seconds(2)
		h.expectQuota(n.dir, 2)
		h.expectQuota(n.dir+"/c", 2)
	})
}

// TestCulpritPreview checks that nothing is written in preview, and that the service is watched
// closely.
func TestCulpritPreview(t *testing.T) {
	onBothLoops(t, knobSetup{config: "control: {mode: preview}\nmemory: {}\n"}, func(t *testing.T, h *loopNode) {
		n := newCulpritNode(h, batch("hog/c"))
		n.seconds(5)
		writes := h.Writes()
		n.wants = 3
		n.seconds(12)
		if h.Writes() != writes || h.audit.has("culprit", "squeeze") == 0 || h.audit.has("culprit", "confirm") > 0 {
			t.Errorf("%d writes, decisions %+v", h.Writes()-writes, h.audit.all)
		}
		for _, target := range h.agent.Targets() {
			if target.Waiting != (target.ID == "web/c") {
				t.Errorf("watched closely: %+v", target)
			}
		}
	})
}
