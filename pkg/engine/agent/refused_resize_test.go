package agent

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
)

// TestRefusedResizeIsToldOnce checks that a refused resize is reported once, although the kubelet
// tries it each half second while the spec demands it, and writes the pod's own quota before each
// attempt.
func TestRefusedResizeIsToldOnce(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("shop/db", "LSR", 2)
		n.expectQuota(shopPod, "unlimited")
		counters := func() (refused, drift int) {
			s, err := n.agent.Status()
			if err != nil {
				t.Fatal(err)
			}
			return s.Counters.ResizesRefused, s.Counters.Drift
		}
		attempt := func(cpus int) {
			t.Helper()
			n.kernel.change(shopPod, func(g *group) { g.quota = finite(cpus) })
			if err := n.update("shop/db", cpus); err == nil {
				t.Fatal("resized")
			}
			n.pass()
			n.sleep(600 * time.Millisecond)
		}
		for range 20 {
			attempt(9)
		}
		refused, drift := counters()
		if told := n.log.count("Resize refused"); told != 1 || refused != 1 {
			t.Errorf("one resize was told of %d times and counted %d times", told, refused)
		}
		if told := n.log.count("The lifted quota of a pod was put back"); told != 0 || drift != 0 {
			t.Errorf("the kubelet's part of a resize was told of %d times and counted %d times", told, drift)
		}
		n.expectQuota(shopPod, "unlimited")
		attempt(10)
		if told := n.log.count("Resize refused"); told != 2 {
			t.Errorf("another resize: told of %d times", told)
		}
		n.sleep(refusalLogInterval)
		attempt(10)
		if told, refused := n.log.count("Resize refused"), 2; told != 3 {
			t.Errorf("after a long time told of %d times, %d refused", told, refused)
		}
		if refused, _ := counters(); refused != 2 {
			t.Errorf("%d counted", refused)
		}
		if err := n.update("shop/db", 3); err != nil {
			t.Fatal(err)
		}
		attempt(10)
		if told := n.log.count("Resize refused"); told != 4 {
			t.Errorf("refused again after one that was carried out: told of %d times", told)
		}
		n.sleep(podsettings.ResizeTime)
		n.pass()
		n.kernel.change(shopPod, func(g *group) { g.quota = finite(10) })
		n.pass()
		if _, drift := counters(); drift != 1 {
			t.Errorf("without a resize under way the quota was put back, and %d are counted", drift)
		}
	})
}

// TestResizesAreCounted checks that all resizes count, not only those of pins.
func TestResizesAreCounted(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		for name, cpus := range map[string]int{"web": 2, "db": 3} {
			for range 2 { // the second resize changes nothing
				if err := n.update(name, cpus); err != nil {
					t.Fatal(err)
				}
			}
		}
		if s, err := n.agent.Status(); err != nil || s.Counters.Resized != 2 || s.Counters.ResizesRefused != 0 {
			t.Errorf("%+v, %v", s.Counters, err)
		}
	})
}
