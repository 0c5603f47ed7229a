package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
)

const culpritCycles = "control: {mode: preview, culprit: {mode: on, cpi: true}}\nmemory: {}\n"

// counts lists the containers whose cycles are counted.
func (h *loopNode) counts() (all []string) {
	for _, target := range h.agent.Targets() {
		if target.CPI {
			all = append(all, target.ID)
		}
	}
	return all
}

// TestCulpritByCycles checks the way from counts of cycles to a quota and back: a service that waits for nothing needs three
// times the cycles while a batch pod uses more than 1.6 CPUs.
func TestCulpritByCycles(t *testing.T) {
	onBothLoops(t, knobSetup{config: culpritCycles}, func(t *testing.T, h *loopNode) {
		n := newCulpritNode(h, granted("hog/c"))
		h.cycles = func() float64 {
			if h.uses["hog/c"] > 1.6 {
				return 3.6
			}
			return 1.2
		}
		seconds := func(count int) {
			for range count {
				h.uses["hog/c"] = n.wants
				if quota := h.quotaOf(n.dir); quota >= 0 {
					h.uses["hog/c"] = min(n.wants, quota)
				}
				h.steps(time.Second)
			}
		}
		n.wants, h.uses["a/c"], h.uses["b/c"] = 0, 0, 0
		seconds(60)
		n.wants, h.uses["a/c"], h.uses["b/c"] = 3, 0.1, 0.1
		before := h.quotaOf(n.dir)
		seconds(60)
		if quota := h.quotaOf(n.dir); h.audit.has("culprit", "confirm") != 1 || quota < 0 || quota > 1.6 {
			t.Fatalf("its quota is %v CPUs; decided %+v", quota, h.audit.all)
		}
		if got := h.counts(); !slices.Equal(got, []string{"web/c"}) {
			t.Errorf("counted are %v", got)
		}
		if err := h.reload(strings.Replace(culpritCycles, "cpi: true", "cpi: false", 1)); err != nil {
			t.Fatal(err)
		}
		if got := h.counts(); len(got) > 0 {
			t.Errorf("still counted after a reload: %v", got)
		}
		seconds(400)
		if quota := h.quotaOf(n.dir); quota != before {
			t.Errorf("its quota is %v CPUs and was %v", quota, before)
		}
		for _, target := range h.agent.Targets() {
			if target.CPI || target.CPIAlways {
				t.Errorf("counted: %+v", target)
			}
		}
	})
}

// TestReloadCycles checks that a reload counts cycles or ceases to, in each mode, and that the status says what was found.
func TestReloadCycles(t *testing.T) {
	onBothLoops(t, knobSetup{config: culpritOn}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 2000), batch("job/c"))
		if got := h.counts(); len(got) > 0 {
			t.Errorf("counted are %v, which nobody asks for", got)
		}
		for text, want := range map[string]int{culpritCycles: 1, strings.Replace(culpritCycles, "on, cpi", "preview, cpi", 1): 1, strings.Replace(culpritCycles, "on, cpi", "off, cpi", 1): 0} {
			if err := h.reload(text); err != nil {
				t.Fatal(err)
			}
			if got := h.counts(); len(got) != want {
				t.Errorf("%s counts %v, want %d", text, got, want)
			}
		}
		cfg := *h.agent.Config
		adapt := func(_ *config.Config, o *Options) { o.Cycles = true }
		if _, err := h.agent.Reconfigure(Reload{Config: &cfg, Adapt: adapt}); err != nil {
			t.Fatal(err)
		}
		s, err := h.agent.Status()
		if err != nil {
			t.Fatal(err)
		}
		if f := feature(s, "cycles per instruction"); f.State != status.FeatureSupported {
			t.Errorf("the status says %+v", f)
		}
	})
}

func feature(s *status.Status, name string) status.Feature {
	for _, f := range s.Features {
		if f.Name == name {
			return f
		}
	}
	return status.Feature{}
}
