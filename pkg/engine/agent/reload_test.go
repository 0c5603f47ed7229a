package agent

import (
	"cmp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/fake"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// reload applies a configuration. Like the plugin's log, the error also reports a broken file.
func reload(a *Agent, text string) ([]string, error) {
	c, err := config.Parse([]byte("recordUpdates: {enabled: false}\n" + text))
	if err != nil {
		a.RefuseConfig(text, err)
		return nil, err
	}
	return a.Reconfigure(Reload{Config: c, Hash: cmp.Or(text, "empty")}) // without a hash only the parts change
}

func (h *knobNode) reload(text string) error {
	_, err := reload(h.agent, text)
	if err == nil {
		h.text = text
	}
	synctest.Wait()
	return err
}

// mustReload fails the test if the configuration is refused.
func mustReload(t *testing.T, a *Agent, text string) (restart []string) {
	t.Helper()
	restart, err := reload(a, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	synctest.Wait()
	return restart
}

func TestReloadPools(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("pin", "LSR", 2)
		n.run("web", "LS", 1)
		n.run("job", "BE", 0)
		n.expect(map[string]string{"pin": "0-1", "web": "2-7", "job": "2-7"})
		sized := "pools: {mode: exclusive, list: [{name: critical, cpus: 1}, {name: online}, {name: batch, cpus: 2}]}\n"
		mustReload(t, n.agent, sized)
		web, job := n.cpus("web"), n.cpus("job")
		if n.cpus("pin") != "0-1" || len(strings.Split(job, ",")) > 2 || web == job {
			t.Errorf("pin %s, web %s, job %s", n.cpus("pin"), web, job)
		}
		n.kernel.took()
		mustReload(t, n.agent, sized+"driftInterval: 2s\n") // changes no pool
		if wrote := n.kernel.took(); len(wrote) > 0 {
			t.Errorf("the same pools: wrote %v", wrote)
		}
		// A pool of unchanged size keeps its CPUs, whatever its place in the list.
		mustReload(t, n.agent, "pools: {mode: exclusive, list: [{name: first, cpus: 1}, {name: critical, cpus: 1}, {name: online}, {name: batch, cpus: 2}]}\n")
		if n.cpus("job") != job || n.cpus("pin") != "0-1" {
			t.Errorf("job was on %s and is on %s", job, n.cpus("job"))
		}
		mustReload(t, n.agent, "")
		n.expect(map[string]string{"pin": "0-1", "web": "2-7", "job": "2-7"})
	})
}

func TestReloadRefused(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("pin", "LSR", 2)
		n.run("web", "LS", 1)
		before, loaded := n.dump(), n.status().Config.LoadedAt
		for text, want := range map[string]string{
			"reserved: 0-3\n":              "default/pin/c has CPUs 0-1 of its own and is not moved while it runs: CPUs 0-1 would be reserved",
			"reserved: 2-7\n":              "would leave",
			"mode: of\n":                   "must be on or preview",
			"pools: {list: [{cpus: 9}]}\n": "must be 1 to 63 small letters",
			"pools: {mode: exclusive, list: [{name: a, cpus: 9}, {name: b}]}\n": "does not fit this machine: pools.list: the pools take 9 CPUs, and this machine has 8",
		} {
			if _, err := reload(n.agent, text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
			synctest.Wait()
			c := n.status().Config
			if c.Problem == "" || c.Refused != c.Reloads || !c.LoadedAt.Equal(loaded) {
				t.Errorf("%q: status %+v", text, c)
			}
			if after := n.dump(); after != before {
				t.Errorf("%q: refused, and yet: before\n%s\nafter\n%s", text, before, after)
			}
		}
		mustReload(t, n.agent, "roundUp: true\n")
		if c := n.status().Config; c.Problem != "" || c.Reloads != 6 || c.Refused != 5 || c.Hash != "roundUp: true\n" || c.LoadedAt.IsZero() {
			t.Errorf("status %+v", c)
		}
	})
}

// Keys that take effect after a restart keep their values, while all others change.
func TestReloadTakesARestart(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		restart := mustReload(t, n.agent, "stateDir: /elsewhere\nlog: {format: json}\nreserved: \"7\"\n")
		if strings.Join(restart, " ") != "stateDir log.format" {
			t.Errorf("restart for %v", restart)
		}
		if c := n.agent.Config; c.StateDir != config.Default().StateDir || c.Reserved != cpuset.Of(7) {
			t.Errorf("in force: %s, reserved %s", c.StateDir, c.Reserved)
		}
	})
}

// The settings of a class change with the configuration for running containers, too. In preview
// nothing is written; when it ends, the missed changes are made.
func TestReloadKnobs(t *testing.T) {
	onFlavours(t, knobSetup{config: everyKnob}, func(t *testing.T, h *knobNode) {
		asks := everyPod()
		h.run(asks...)
		h.pass()
		with := h.state()
		bareText := "classes: {BE: {}, LSE: {}, LSR: {}}\n"
		if err := h.reload(bareText); err != nil {
			t.Fatal(err)
		}
		h.pass()
		if err := h.reload(everyKnob); err != nil {
			t.Fatal(err)
		}
		h.pass()
		if diff := differences(with, h.state()); diff != "" {
			t.Errorf("there and back:\n%s", diff)
		}
		h.spy.took()
		if err := h.reload(everyKnob + "mode: preview\n"); err != nil {
			t.Fatal(err)
		}
		h.pass()
		if n := h.spy.took(); n > 0 {
			t.Errorf("%d writes in preview", n)
		}
		if err := h.reload(everyKnob); err != nil {
			t.Fatal(err)
		}
		h.pass()
		if diff := differences(with, h.state()); diff != "" {
			t.Errorf("after preview:\n%s", diff)
		}
	})
}

// When the loop is switched off, its settings are removed.
func TestReloadEndsTheLoop(t *testing.T) {
	for name, next := range map[string]string{
		"loop": "control: {mode: preview}\n", "node": "mode: preview\n" + byQuota, "controllers": "control: {mode: on, batch: {mode: off}, burst: {mode: preview}, demotion: {mode: preview}, memory: {mode: off}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			onBothLoops(t, knobSetup{config: byQuota}, func(t *testing.T, h *loopNode) {
				h.run(service("web/c", 2000), batch("job/c"))
				h.pass()
				before := bare(t, h.Flavour, func(n *knobNode) { n.run(service("web/c", 2000), batch("job/c")) })
				h.uses["web/c"], h.uses["job/c"] = 3, 4
				h.steps(5 * time.Second)
				if h.quotaOf(bestBox) < 0 {
					t.Fatal("batch work is not bounded")
				}
				if err := h.reload(next); err != nil {
					t.Fatal(err)
				}
				if got := h.quotaOf(bestBox); got >= 0 {
					t.Errorf("the box still has %v CPUs", got)
				}
				if v, err := h.spy.Read(bestBox, knobs.MemoryMax); err == nil && !h.spy.Same(knobs.MemoryMax, knobs.Max, v) {
					t.Errorf("the box still has %v of memory", v)
				}
				if len(h.life.plan) > 0 {
					t.Errorf("the failsafe would still do %v", h.life.plan)
				}
				_ = before
				h.steps(2 * time.Second)
				if err := h.reload(byQuota); err != nil {
					t.Fatal(err)
				}
				h.steps(5 * time.Second)
				if h.quotaOf(bestBox) < 0 {
					t.Error("batch work is not bounded again")
				}
			})
		})
	}
}

// A controller whose part of the file is unchanged keeps what it has learned.
func TestReloadKeepsWhatWasLearned(t *testing.T) {
	onLoop(t, fakekernel.MainlineV2(), knobSetup{config: byQuota}, func(t *testing.T, h *loopNode) {
		t.Helper()
		h.run(service("web/c", 2000), batch("job/c"))
		h.steps(2 * time.Second)
		before := h.agent.loop.Controllers
		if err := h.reload(byQuota + "roundUp: true\n"); err != nil {
			t.Fatal(err)
		}
		if h.agent.loop.Controllers != before {
			t.Error("controllers were made anew for a key that isn't theirs")
		}
		if err := h.reload(strings.Replace(byQuota, "65", "70", 1)); err != nil {
			t.Fatal(err)
		}
		now := h.agent.loop.Controllers
		if now.Batch == before.Batch || now.Memory != before.Memory || now.Burst != before.Burst {
			t.Error("it is the batch budget, and it alone, that has another part")
		}
	})
}

// Processes move to the group of their new class, and groups without a class are removed.
func TestReloadRDT(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML, func(n *rdtNode) {
		n.start("job", "BE", nil)
		n.start("web", "LS", map[string]string{"rdt-class.sluice.dev": "latency"})
		n.isIn("job", "sluice-be")
		steps := []struct{ yaml, job, web string }{
			{strings.NewReplacer("{be:", "{low:", "class: be", "class: low").Replace(rdtYAML), "sluice-low", "sluice-latency"},
			{strings.ReplaceAll(rdtYAML, ", rdt-class: be", ""), "", "sluice-latency"},
			{rdtYAML, "sluice-be", "sluice-latency"},
			{rdtYAML + "mode: preview\n", "sluice-be", "sluice-latency"},
			{strings.ReplaceAll(rdtYAML, "{classes", "{mode: \"off\", classes"), "", ""},
			{"", "", ""},
			{rdtYAML, "sluice-be", "sluice-latency"},
		}
		for _, step := range steps {
			if _, err := reload(n.agent, step.yaml); err != nil {
				n.t.Fatalf("%s: %v", step.yaml, err)
			}
			n.sleep(time.Second)
			n.isIn("job", step.job)
			n.isIn("web", step.web)
		}
		if _, err := n.kernel.Read("sluice-low/schemata"); err == nil {
			n.t.Error("the group of a class that is gone is still there")
		}
	})
}
