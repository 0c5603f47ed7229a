package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// drawConfig draws a configuration that changes what containers get, but not the pools' CPUs.
func drawConfig(t *rapid.T) string {
	line := func(label string, lines ...string) string { return rapid.SampledFrom(append(lines, "")).Draw(t, label) }
	return "authorize: [{features: [identity, oomScore, ioWeight, pool], namespaces: [\"*\"]}]\n" +
		line("pools", "pools: {list: [{name: critical, set: {weight: 200%}}, {name: online}, {name: batch}]}\n",
			"pools: {list: [{name: critical}, {name: online, set: {cpu-identity: 1}}, {name: batch, set: {io: {weight: 20}}}]}\n") +
		line("classes", "classes:\n  BE: {cpu-identity: -1, memory-qos: {wmarkRatio: 95, wmarkScale: 20}}\n",
			"classes:\n  BE: {io: {weight: 10}, weight: 50%}\n  LS: {cpu-burst: 50%}\n",
			"classes:\n  BE: {}\n  LS: {memory-qos: {lowPercent: 100}}\n") +
		line("cache", "memory: {bePageCachePercent: 50}\n") +
		line("defaults", "defaults: {besteffort: BE}\n") +
		line("invalid", "onInvalid: ignore\n") +
		line("classify", "classify: [{namespaces: [default], set: {cpu-identity: 1}}]\n")
}

// TestRandomReloads runs random events on a node whose configuration is reloaded, and on one that
// is restarted with each configuration. After each reload both kernels have the same state, and no
// pin has moved.
func TestRandomReloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runs := 0
	bubbles(t, func(t *rapid.T) {
		runs++
		journal := filepath.Join(dir, fmt.Sprint(runs))
		defer os.Remove(journal)
		defer os.Remove(journal + ".anew")
		flavours := fakekernel.Flavours()
		f := flavours[rapid.IntRange(0, len(flavours)-1).Draw(t, "flavour")]
		f.NoWayBack = false
		text := drawConfig(t)
		live := newKnobNode(t, f, knobSetup{config: text, originals: journal, node: cached(text)})
		defer func() { live.stop() }()
		anew := newKnobNode(t, f, knobSetup{config: text, originals: journal + ".anew", node: cached(text)})
		defer func() { anew.stop() }()
		both := func(do func(*knobNode)) { do(live); do(anew) }
		made := 0
		var seen reader
		same := func() {
			both((*knobNode).pass)
			if diff := differences(anew.state(), live.state()); diff != "" {
				t.Fatalf("reloaded with\n%s\nthe kernel is not as after a start with it:\n%s", text, diff)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if len(live.spy.refused) > 0 || live.log.count("panic") > 0 {
					t.Fatalf("refused: %v\n%s", live.spy.refused, live.log.text.String())
				}
				seen.read(t, live.agent)
			},
			"run": func(t *rapid.T) {
				made++
				qos := []string{"", "burstable", "besteffort"}[made%3]
				a := drawAsk(t, fmt.Sprintf("p%d/c", made), qos)
				errs := []error{live.create(a), anew.create(a)}
				if (errs[0] == nil) != (errs[1] == nil) {
					t.Fatalf("live: %v; anew: %v", errs[0], errs[1])
				}
				if errs[0] == nil {
					both(func(h *knobNode) { h.begin(a.name) })
				}
			},
			"end": func(t *rapid.T) {
				names := slices.Sorted(maps.Keys(live.specs))
				if len(names) == 0 {
					t.Skip("nobody")
				}
				name := rapid.SampledFrom(names).Draw(t, "name")
				both(func(h *knobNode) { h.end(name) })
			},
			"reload": func(t *rapid.T) {
				pins := live.pins()
				text = drawConfig(t)
				if err := live.reload(text); err != nil {
					t.Fatal(err)
				}
				cached(text)(&anew.o.Node)
				anew.restart(text)
				if now := live.pins(); !maps.Equal(now, pins) {
					t.Fatalf("pins were on %v and are on %v", pins, now)
				}
				same()
			},
			"broken": func(t *rapid.T) {
				before := live.state()
				if live.reload(text+"mode: of\n") == nil {
					t.Fatal("a broken file was taken over")
				}
				if diff := differences(before, live.state()); diff != "" {
					t.Fatalf("a broken file changed\n%s", diff)
				}
			},
			"reconnect": func(_ *rapid.T) { both((*knobNode).synchronize) },
			"pass":      func(_ *rapid.T) { both((*knobNode).pass) },
		})
		same()
	})
}

// cached sets on a node what its plugin derives from the configuration.
func cached(text string) func(*qos.Node) {
	return func(n *qos.Node) {
		n.BEPageCachePercent = 0
		if strings.Contains(text, "bePageCachePercent: 50") {
			n.BEPageCachePercent = 50
		}
	}
}

// pins returns the CPUs of containers with CPUs of their own, by name.
func (h *knobNode) pins() map[string]cpuset.Set {
	h.t.Helper()
	s, err := h.agent.Status()
	if err != nil {
		h.t.Fatal(err)
	}
	pins := map[string]cpuset.Set{}
	for _, c := range s.Containers {
		if c.Class.Pinned() && c.Pool == "" {
			pins[c.ID] = c.CPUs
		}
	}
	return pins
}

// churnConfigs returns configurations of every kind that a node may have.
func churnConfigs() []string {
	return []string{
		"control: {mode: on}\n" + apart,
		byQuota,
		"control: {mode: on, batch: {by: cpuset}}\nreserved: \"7\"\n",
		"control: {mode: preview}\nclasses: {BE: {cpu-identity: -1, memory-qos: {wmarkRatio: 90}}}\n",
		"control: {mode: on, batch: {by: both, thresholdPercent: 65}, burst: {all: true}}\ndefaults: {besteffort: BE}\n",
		"mode: preview\n" + byQuota,
		"pools: {mode: exclusive, list: [{name: critical, cpus: 1}, {name: online, cpus: 3}, {name: batch}]}\n",
		"pools: {list: [{name: online}, {name: more, set: {weight: 150%}}, {name: batch, cpus: 2}]}\ncontrol: {mode: \"off\"}\n",
		"",
	}
}

// brokenConfigs returns configurations that are invalid, or impossible on this node.
func brokenConfigs() []string {
	return []string{"mode: of\n", "reserved: 0-7\n", "pools: {list: []}\n", "control: {mode: on, memory: {safePercent: 90}}\n", "reserved: [\n", "pools: {mode: exclusive, list: [{name: a, cpus: 9}, {name: b}]}\n"}
}

// TestReloadUnderChurn reloads the configuration a hundred times, every second time a broken file,
// while containers come, are resized and go and the load changes. No invariant breaks and no pin
// moves. In the end, the node equals one that is started with the last configuration: a restart
// changes nothing, and Restore returns the kernel to its state without Sluice.
func TestReloadUnderChurn(t *testing.T) {
	t.Parallel()
	for i, f := range fakekernel.Flavours() {
		f.NoWayBack = false
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			journal := filepath.Join(t.TempDir(), "originals")
			synctest.Test(t, func(t *testing.T) { churn(t, dice{rand.New(rand.NewPCG(5, uint64(i)))}, f, journal) })
		})
	}
}

// dice makes the same random choices in each run; a run of a hundred reloads is too long for
// rapid.
type dice struct{ *rand.Rand }

func oneOf[T any](d dice, all []T) T { return all[d.IntN(len(all))] }

func churn(t *testing.T, d dice, f fakekernel.Flavour, journal string) {
	var h *loopNode
	newKnobNode(t, f, withLoop(knobSetup{config: byQuota, originals: journal, node: cached(byQuota)}, &h))
	defer func() { h.stop() }()
	without := newKnobNode(t, f, knobSetup{config: "mode: preview\n"})
	defer func() { without.stop() }()
	milli := map[string]int{}
	end := func(name string) {
		h.end(name)
		without.end(name)
		delete(milli, name)
		delete(h.uses, name)
	}
	reloads, refused, previews := 0, 0, 0
	for i := range 100 {
		switch names := slices.Sorted(maps.Keys(h.specs)); d.IntN(4) {
		case 0, 1:
			name := fmt.Sprintf("p%d/c", i)
			if len(names) > 6 {
				end(oneOf(d, names))
			}
			a := oneOf(d, []ask{
				service(name, 1000), service(name, 2000), bursting(name, 1000), batch(name), granted(name),
				{name: name, milli: 1000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}},
				{name: name, qos: "besteffort"},
			})
			if h.create(a) != nil {
				without.podOf(&a)
				break
			}
			h.begin(name)
			without.run(a)
			if a.annotations["class.sluice.dev"] == "LS" {
				milli[name] = a.milli
			}
		case 2:
			for _, name := range names {
				if strings.HasPrefix(h.text, "mode: preview") {
					break // remaining bursts prevent it, as they do after a stop
				}
				if from := milli[name]; from > 0 {
					to := 3000 - from
					h.resize(name, from, to)
					without.resize(name, from, to)
					milli[name] = to
					break
				}
			}
		case 3:
			for _, name := range names {
				h.uses[name] = float64(d.IntN(31)) / 10
			}
		}
		pins, before := h.pins(), h.text
		if i%2 == 1 {
			state := h.state()
			if h.reload(oneOf(d, brokenConfigs())) == nil {
				t.Fatal("a broken file was taken over")
			}
			if diff := differences(state, h.state()); diff != "" {
				t.Fatalf("a broken file changed\n%s", diff)
			}
			refused++
		} else if text := oneOf(d, churnConfigs()); h.reload(text) != nil {
			refused++ // the reload would have moved a pin
		}
		reloads++
		if strings.HasPrefix(h.text, "mode: preview") || strings.HasPrefix(before, "mode: preview") {
			previews++ // no container that is created in preview is placed
		} else if now := h.pins(); !maps.Equal(now, pins) {
			t.Fatalf("%s\npins were on %v and are on %v", h.text, pins, now)
		}
		h.steps(time.Duration(1+d.IntN(12)) * 100 * time.Millisecond)
		if !strings.HasPrefix(h.text, "mode: preview") {
			h.pass()
			h.right(t, false, milli)
		}
		if len(h.spy.refused) > 0 {
			t.Fatalf("refused: %v", h.spy.refused)
		}
	}
	s, err := h.agent.Status()
	if err != nil || s.Config.Reloads != reloads || s.Config.Refused != refused || s.Counters.Panics > 0 || h.log.count("panic") > 0 {
		t.Fatalf("%v; %+v, want %d reloads, %d refused; %s", err, s.Config, reloads, refused, h.log.text.String())
	}
	if err := h.reload(""); err != nil {
		t.Fatal(err)
	}
	h.sleep(20 * time.Minute)
	state := h.state()
	h.restart("")
	h.pass()
	if diff := differences(state, h.state()); diff != "" {
		t.Fatalf("a start with the same configuration changed\n%s", diff)
	}
	h.stop()
	book := readJournal(t, journal)
	if r, err := restore.Run(&restore.Host{Kernel: h.spy}, book, false); err != nil || len(r.Newer) > 0 {
		t.Errorf("newer %v, %v", r.Newer, err)
	}
	without.pass()
	if diff := differences(without.state(), h.state()); diff != "" {
		t.Errorf("not as before:\n%s", diff)
	}
	h.launch("")
	synctest.Wait()
}
