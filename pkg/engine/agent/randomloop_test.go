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

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestRandomLoop runs random events on a node whose loop acts. After each, pins are exclusive, others are kept
// off the CPUs of pods that are apart, the pools divide all shared CPUs, no service has a quota below its
// limit, and the kernel has refused nothing. In the end, Restore removes all differences.
func TestRandomLoop(t *testing.T) {
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
		apart := "control: {mode: on}\n" + apart
		text := rapid.SampledFrom([]string{apart, byQuota, "control: {mode: on, batch: {by: cpuset}}\n", "control: {mode: on, batch: {by: both, thresholdPercent: 65}, burst: {all: true}}\n"}).Draw(t, "config")
		exclusive, noisy := text == apart, rapid.Bool().Draw(t, "noisy")
		if noisy {
			text = strings.Replace(text, "control: {mode: on", "control: {mode: on, noisy: {mode: on}", 1)
		}
		var h *loopNode
		s := withLoop(knobSetup{config: text, originals: journal}, &h)
		newKnobNode(t, f, s)
		h.waits, h.ready = map[string]float64{}, map[string]float64{}
		defer func() { h.stop() }()
		without := newKnobNode(t, f, knobSetup{config: "mode: preview\n"})
		defer func() { without.stop() }()
		milli := map[string]int{}
		some := func(t *rapid.T) string {
			names := slices.Sorted(maps.Keys(h.specs))
			if len(names) == 0 {
				t.Skip("nobody")
			}
			return rapid.SampledFrom(names).Draw(t, "name")
		}
		if noisy {
			for _, name := range []string{"web/c", "hog/c"} {
				h.run(service(name, 1000))
				without.run(service(name, 1000))
				milli[name] = 1000
			}
		}
		made := 0
		var seen reader
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if len(h.spy.refused) > 0 {
					t.Fatalf("refused: %v", h.spy.refused)
				}
				h.right(t, exclusive, milli)
				seen.read(t, h.agent)
			},
			"run": func(t *rapid.T) {
				made++
				name := fmt.Sprintf("p%d/c", made)
				a := rapid.SampledFrom([]ask{
					service(name, 1000), service(name, 3000), bursting(name, 1000), batch(name), granted(name),
					{name: name, qos: "burstable", milli: 1000, annotations: map[string]string{"class.sluice.dev": "BE"}},
					{name: name, milli: 1000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}},
					{name: name, qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS"}},
				}).Draw(t, "ask")
				if h.create(a) != nil {
					without.podOf(&a)
					return
				}
				if rapid.Bool().Draw(t, "slowly") {
					h.steps(300 * time.Millisecond)
				}
				h.begin(name)
				without.run(a)
				if a.annotations["class.sluice.dev"] == "LS" {
					milli[name] = a.milli
				}
			},
			"end": func(t *rapid.T) {
				name := some(t)
				h.end(name)
				without.end(name)
				delete(milli, name)
				delete(h.uses, name)
			},
			"grow": func(t *rapid.T) {
				name := some(t)
				if from := milli[name]; from == 1000 {
					h.resize(name, from, 4000)
					without.resize(name, from, 4000)
					milli[name] = 4000
				}
			},
			"shrink": func(t *rapid.T) {
				name := some(t)
				if from := milli[name]; from > 1000 {
					h.resize(name, from, 1000)
					without.resize(name, from, 1000)
					milli[name] = 1000
				}
			},
			"load": func(t *rapid.T) {
				name := some(t)
				h.uses[name] = float64(rapid.IntRange(0, 40).Draw(t, "tenths")) / 10
				h.throttled[name] = rapid.Bool().Draw(t, "throttled")
				h.steps(200 * time.Millisecond)
			},
			"loud": func(t *rapid.T) { // others wait because of it
				name, helps := "hog/c", rapid.Bool().Draw(t, "helps")
				if !noisy || h.specs[name] == nil {
					t.Skip("nobody")
				}
				for second := range 12 {
					for other := range h.specs {
						h.waits[other] = 0.01
						if other != name && second > 1 && (!helps || h.set(other).Overlaps(h.set(name))) {
							h.waits[other] = 0.5
						}
					}
					h.uses[name], h.ready[name] = 2, 15
					h.steps(time.Second)
				}
			},
			"quiet":     func(*rapid.T) { clear(h.ready); clear(h.waits); h.steps(time.Second) },
			"blind":     func(t *rapid.T) { h.blind = rapid.Bool().Draw(t, "blind"); h.steps(time.Second) },
			"steps":     func(_ *rapid.T) { h.steps(3 * time.Second) },
			"calm":      func(_ *rapid.T) { h.steps(time.Minute) },
			"pass":      func(_ *rapid.T) { h.pass() },
			"failsafe":  func(_ *rapid.T) { h.sleep(5 * time.Second); h.life.act(h); h.steps(1200 * time.Millisecond); h.pass() },
			"restart":   func(_ *rapid.T) { h.restart(text) },
			"reconnect": func(_ *rapid.T) { h.synchronize() },
		})
		h.steps(15 * time.Second)
		h.sleep(20 * time.Minute)
		without.pass()
		h.stop()
		book := readJournal(t, journal)
		if r, err := restore.Run(&restore.Host{Kernel: h.spy}, book, false); err != nil || len(r.Newer) > 0 {
			t.Errorf("newer %v, %v", r.Newer, err)
		}
		if diff := differences(without.state(), h.state()); diff != "" {
			t.Errorf("not as before:\n%s", diff)
		}
		if h.log.count("panic") > 0 {
			t.Error(h.log.text.String())
		}
		h.launch(text)
		synctest.Wait()
	})
}

// right checks what must hold at any time.
func (h *loopNode) right(t testingT, apart bool, milli map[string]int) {
	h.exclusive()
	avoid := map[string]cpuset.Set{} // CPUs of pods that are kept apart, by container of others
	h.loop(func() {
		for _, s := range h.agent.Ledger.Separations() {
			for _, other := range h.agent.Ledger.Holders() {
				if other.Pod != s.Pod && other.Request.Class != workload.BE && h.specs[other.ID] != nil {
					avoid[other.ID] = cpuset.Union(avoid[other.ID], s.CPUs)
				}
			}
		}
		var all cpuset.Set
		sum := 0
		for _, p := range h.agent.Ledger.Pools() {
			all, sum = cpuset.Union(all, p.CPUs), sum+p.CPUs.Size()
		}
		shared := h.agent.Ledger.Shared()
		if apart && shared.Size() >= 3 && sum != shared.Size() || !all.SubsetOf(shared) {
			t.Errorf("pools have %d CPUs, %s of %s", sum, all, shared)
		}
	})
	for name, cpus := range avoid {
		if h.specs[name].State == workload.Running && h.set(name).Overlaps(cpus) {
			t.Errorf("%s on %s is not kept off %s", name, h.set(name), cpus)
		}
	}
	for name, m := range milli {
		for _, dir := range []string{h.specs[name].CgroupsPath, h.podOfName(name).CgroupParent} {
			v, err := h.spy.Read(dir, knobs.Quota)
			if q, _ := v.(knobs.CPUQuota); err == nil && m > 0 && q.Quota > 0 && q.Quota < colocation.Quota(workload.MilliCPU(m)).Quota {
				t.Errorf("%s has %s, its limit is %d milli-CPU", dir, q, m)
			}
		}
	}
}
