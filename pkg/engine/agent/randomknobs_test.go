package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// drawAsk draws a container that requests some knobs.
func drawAsk(t *rapid.T, name, qos string) ask {
	a := ask{name: name, qos: qos, annotations: map[string]string{}}
	if qos != "besteffort" {
		a.milli, a.memory = 1000*rapid.IntRange(1, 2).Draw(t, "cpus"), rapid.Int64Range(32, 512).Draw(t, "memory")
	}
	class := rapid.SampledFrom([]string{"LS", "LS", "BE", "BE", "LSR"}).Draw(t, "class")
	if class == "LSR" && qos != "" {
		class = "LS"
	}
	a.annotations["class.sluice.dev"] = class
	if class == "LS" {
		maybe(t, a.annotations, "cpu-burst.sluice.dev", "20%", "100%")
		maybe(t, a.annotations, "cpu-identity.sluice.dev", "-1", "0", "2")
		maybe(t, a.annotations, "pool.sluice.dev", "critical")
	}
	maybe(t, a.annotations, "memory-qos.sluice.dev", "{minPercent: 50, highPercent: 80}", "{lowPercent: 100, priority: 0, oomGroup: true}")
	maybe(t, a.annotations, "io.sluice.dev", "{weight: 50}", "{readBPS: 1Mi, devices: {/dev/sda: {weight: 20}}}")
	return a
}

func maybe(t *rapid.T, annotations map[string]string, key string, values ...string) {
	if value := rapid.SampledFrom(append(values, "")).Draw(t, key); value != "" {
		annotations[key] = value
	}
}

// TestRandomKnobs runs random events on a node with Sluice and on one without. In the end, and
// after a crash, Restore removes all differences. No write of kubelet or runtime is refused, and
// nothing is left of pods that are gone.
func TestRandomKnobs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runs := 0
	bubbles(t, func(t *rapid.T) {
		runs++
		journal := filepath.Join(dir, fmt.Sprint(runs))
		defer os.Remove(journal)
		flavours := fakekernel.Flavours()
		f := flavours[rapid.IntRange(0, len(flavours)-1).Draw(t, "flavour")]
		f.NoWayBack = false
		with := newKnobNode(t, f, knobSetup{config: everyKnob, originals: journal})
		defer func() { with.stop() }()
		without := newKnobNode(t, f, knobSetup{config: everyKnob + "mode: preview\n"})
		defer func() { without.stop() }()
		both := func(do func(*knobNode)) { do(with); do(without) }
		milli := map[string]int{}
		some := func(t *rapid.T) string {
			names := slices.Sorted(maps.Keys(with.specs))
			if len(names) == 0 {
				t.Skip("nobody")
			}
			return rapid.SampledFrom(names).Draw(t, "name")
		}
		made := 0
		seen := map[*knobNode]*reader{with: {}, without: {}}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if len(with.spy.refused) > 0 {
					t.Fatalf("refused: %v", with.spy.refused)
				}
				both(func(h *knobNode) { seen[h].read(t, h.agent) })
			},
			"run": func(t *rapid.T) {
				made++
				qos := []string{"", "burstable", "besteffort"}[made/2%3]
				a := drawAsk(t, fmt.Sprintf("p%d/c%d", made/2, made), qos)
				if a.pod = 4000; made/2%2 == 0 {
					a.pod, a.name = 0, fmt.Sprintf("s%d/c", made)
				}
				if with.create(a) == nil {
					with.begin(a.name)
					without.run(a)
					milli[a.name] = a.milli
				} else {
					without.podOf(&a)
				}
			},
			"end": func(t *rapid.T) {
				name := some(t)
				both(func(h *knobNode) { h.end(name) })
			},
			"resize": func(t *rapid.T) {
				name := some(t)
				from := milli[name]
				if from == 0 || name[0] != 's' {
					t.Skip("not this one")
				}
				to := 1000 * rapid.IntRange(1, 3).Draw(t, "to")
				if err := with.tryResize(name, from, to); err == nil {
					without.resize(name, from, to)
					milli[name] = to
				} else if !strings.Contains(err.Error(), "CPUs of its own would leave") {
					t.Errorf("update %s: %v", name, err)
				} else { // the pins leave no room, and the pod has grown already
					without.resizePod(name, to)
				}
			},
			"a resize that fails": func(t *rapid.T) {
				name := some(t)
				if milli[name] == 0 {
					t.Skip("not this one")
				}
				both(func(h *knobNode) {
					was := h.specs[name].Resources
					h.announce(name, milli[name])
					h.specs[name].Resources = was
				})
			},
			"another writer": func(t *rapid.T) {
				with.loop(func() {
					var path []string
					for c := range with.agent.Reconciler.Cgroups() {
						path = append(path, c.Path)
					}
					slices.Sort(path)
					if len(path) == 0 {
						return
					}
					tuned := with.agent.Reconciler.Cgroup(rapid.SampledFrom(path).Draw(t, "of"))
					k := tuned.Settings()[rapid.IntRange(0, len(tuned.Settings())-1).Draw(t, "knob")]
					e, _ := with.agent.Journal.Entry(tuned.Path, k.Knob)
					if k.Percent == 0 && k.Knob != knobs.CgroupPriority && k.Knob != knobs.CPUQoS && e.Value != nil {
						with.spy.Driver.Apply([]knobs.Change{{Object: tuned.Object, Knob: k.Knob, To: e.Value}})
					}
				})
			},
			"crash": func(_ *rapid.T) {
				with.crash(t, journal)
				with.launch(everyKnob)
				without.restart(everyKnob + "mode: preview\n")
			},
			"reconnect": func(_ *rapid.T) { both((*knobNode).synchronize) },
			"pass":      func(_ *rapid.T) { with.pass() },
			"calm":      func(_ *rapid.T) { with.sleep(3 * time.Minute) },
		})
		with.sleep(20 * time.Minute)
		without.pass()
		if rapid.Bool().Draw(t, "in the end nobody runs") {
			for _, name := range slices.Sorted(maps.Keys(with.specs)) {
				both(func(h *knobNode) { h.end(name) })
			}
			with.pass()
			with.nothingLeft(t)
		}
		with.crash(t, journal)
		book := readJournal(t, journal)
		if r, err := restore.Run(&restore.Host{Kernel: with.spy}, book, false); err != nil || len(r.Newer) > 0 {
			t.Errorf("newer %v, %v", r.Newer, err)
		}
		if diff := differences(without.state(), with.state()); diff != "" {
			t.Errorf("not as before:\n%s", diff)
		}
		if s, _ := without.agent.Status(); s.Counters.Panics > 0 || len(with.spy.refused) > 0 || strings.Contains(with.log.text.String(), "panic") {
			t.Errorf("refused %v; log:\n%s", with.spy.refused, with.log.text.String())
		}
		with.launch(everyKnob)
		synctest.Wait()
	})
}
