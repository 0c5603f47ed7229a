package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

var burstFile = []string{"cpu.max.burst", "cpu.cfs_burst_us"}

// TestResizeWithBurst checks that no write of the kubelet or the runtime is refused in a resize,
// and that the burst follows.
func TestResizeWithBurst(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(ask{name: "web/a", milli: 1000, annotations: map[string]string{"cpu-burst.sluice.dev": "100%", "class.sluice.dev": "LS"}})
		milli := 1000
		for i := range 40 {
			next := 500 + (i*i*700)%3000
			h.resize("web/a", milli, next)
			milli = next
			want := itoa(milli * 100)
			h.sleep(podsettings.ResizeTime + time.Second)
			if got := h.get("/kubepods/pod-web/a", burstFile...); got != want {
				t.Fatalf("resize %d: burst %s, want %s", i, got, want)
			}
			if got := h.get("/kubepods/pod-web", burstFile...); got != want {
				t.Fatalf("resize %d: the pod's burst is %s, want %s", i, got, want)
			}
			h.sleep(2 * time.Minute)
		}
		if len(h.spy.refused) > 0 {
			t.Error(h.spy.refused)
		}
	})
}

func itoa(n int) string { return knobs.Number(n).String() }

// TestResizeNeverEnds checks that settings which were taken back for a resize that fails, or whose
// end nobody reports, are set again one second after it was given up.
func TestResizeNeverEnds(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(ask{name: "web/a", milli: 1000, annotations: map[string]string{"cpu-burst.sluice.dev": "100%", "class.sluice.dev": "LS"}})
		for range 2 {
			h.announce("web/a", 2000)
			if got := h.get("/kubepods/pod-web/a", burstFile...); got != "0" {
				t.Errorf("burst %s during the resize", got)
			}
			h.sleep(podsettings.ResizeTime + time.Second)
			if got := h.get("/kubepods/pod-web/a", burstFile...); got != "100000" {
				t.Errorf("burst %s after a resize that failed", got)
			}
			h.specs["web/a"].Resources.Quota = 100000
		}
		// The second container makes Sluice compute the pod's settings again, from what the kernel
		// shows.
		h.run(ask{name: "web/b", milli: 500})
		h.pass()
		if err := h.agent.UpdatePod(context.Background(), "sandbox-web", workload.Resources{Shares: 2048}); err != nil {
			t.Fatal(err)
		}
		if got := h.get("/kubepods/pod-web", burstFile...); got != "0" {
			t.Errorf("the pod's burst is %s during its resize", got)
		}
		h.sleep(podsettings.ResizeTime + time.Second)
		if got := h.get("/kubepods/pod-web", burstFile...); got != "100000" {
			t.Errorf("the pod's burst is %s after it", got)
		}
		h.calm(t)
	})
}

// TestResizeOfIdle checks that a container of an idle pod can be resized, and that the new weight
// is in force when the pod is no longer idle.
func TestResizeOfIdle(t *testing.T) {
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		t.Run(f.Name, func(t *testing.T) {
			onFlavour(t, f, knobSetup{}, func(t *testing.T, h *knobNode) {
				h.run(ask{name: "web/a", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "BE"}})
				const dir = "/kubepods/besteffort/pod-web"
				idle := func(want string) {
					t.Helper()
					if got := h.get(dir, "cpu.idle"); got != want {
						t.Errorf("idle %s, want %s", got, want)
					}
				}
				idle("1")
				h.announce("web/a", 500)
				idle("0")
				h.weight(dir, 512)
				h.runc(h.specs["web/a"])
				if err := h.agent.PostUpdateContainer("web/a"); err != nil {
					t.Fatal(err)
				}
				idle("1")
				h.run(ask{name: "web/b", qos: "besteffort"})
				idle("0")
				if got := h.get(dir, "cpu.shares", "cpu.weight"); got != "512" && got != "20" {
					t.Errorf("weight %s after idle", got)
				}
				h.end("web/b")
				idle("1")
				h.end("web/a")
				if got := h.get(dir, "cpu.shares", "cpu.weight"); got != "512" && got != "20" {
					t.Errorf("weight %s in the end", got)
				}
				h.calm(t)
			})
		})
	}
}

// burstPod returns a pod with a burst.
func burstPod() ask {
	return ask{name: "web/a", milli: 1000, annotations: map[string]string{"cpu-burst.sluice.dev": "50%", "class.sluice.dev": "LS"}}
}

// TestEveryKnobDrifts checks that the next pass repairs any knob that another program has changed,
// and counts it once.
func TestEveryKnobDrifts(t *testing.T) {
	onFlavours(t, knobSetup{config: everyKnob}, func(t *testing.T, h *knobNode) {
		h.run(everyPod()...)
		h.pass()
		right := h.state()
		var changed int
		h.loop(func() {
			for tuned := range h.agent.Reconciler.Cgroups() {
				for _, k := range tuned.Settings() {
					e, _ := h.agent.Journal.Entry(tuned.Path, k.Knob)
					if k.Percent > 0 || h.NoWayBack && k.Knob == knobs.CPUQoS {
						continue // it follows the newer weight and can't return to the old one
					}
					if k.Knob == knobs.CgroupPriority || k.Knob == knobs.CPUQoS {
						continue // the pod's own value can't exceed its containers'
					}
					if err := h.spy.Driver.Apply([]knobs.Change{{Object: tuned.Object, Knob: k.Knob, To: e.Value}}); err != nil {
						t.Fatal(err)
					}
					changed++
				}
			}
		})
		h.pass()
		if diff := differences(right, h.state()); diff != "" {
			t.Error(diff)
		}
		h.pass()
		s, err := h.agent.Status()
		if err != nil {
			t.Fatal(err)
		}
		if s.Counters.Drift != changed || len(s.Contested) > 0 || len(h.spy.refused) > 0 {
			t.Errorf("%d drifts of %d knobs, contested %v, refused %v", s.Counters.Drift, changed, s.Contested, h.spy.refused)
		}
		for _, k := range h.container("burst/a").Settings {
			if k.Drift != 1 || k.Suspect == "" {
				t.Errorf("status %+v", k)
			}
		}
		if h.log.count("suspect=") < changed {
			t.Error("nobody is suspected in the log")
		}
	})
}

// TestFight checks that a setting which another program keeps changing is repaired at growing
// intervals, and at once again after a time without changes.
func TestFight(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(burstPod())
		const dir = "/kubepods/pod-web/a"
		spoil := func() { h.put(dir, h.burst(), "1000") }
		burst := func() status.Setting { return h.container("web/a").Settings[0] }
		for range reconcile.RepairsAtOnce {
			spoil()
			h.pass()
		}
		if b := burst(); b.Drift != reconcile.RepairsAtOnce || !b.Contested {
			t.Errorf("%+v", b)
		}
		for _, wait := range []time.Duration{10, 20, 40} {
			before := burst().Drift
			spoil()
			h.sleep(wait*time.Second - 4*time.Second)
			if got := h.get(dir, burstFile...); got != "1000" {
				t.Errorf("repaired to %s before %d s", got, wait)
			}
			h.sleep(5 * time.Second)
			if got := h.get(dir, burstFile...); got != "50000" || burst().Drift != before+1 {
				t.Errorf("%s after %d s, drift %d", got, wait, burst().Drift)
			}
		}
		if s, _ := h.agent.Status(); len(s.Contested) != 1 || s.Contested[0] != "cpu.burst of ns/web/a" {
			t.Errorf("contested %v", s.Contested)
		}
		h.sleep(3 * time.Minute)
		if s, _ := h.agent.Status(); len(s.Contested) != 0 {
			t.Errorf("contested %v", s.Contested)
		}
		spoil()
		h.pass()
		if got := h.get(dir, burstFile...); got != "50000" {
			t.Errorf("%s a second after the calm", got)
		}
	})
}

func (h *knobNode) burst() string {
	if h.V2 {
		return burstFile[0]
	}
	return burstFile[1]
}

func (h *knobNode) loop(do func()) {
	h.agent.events.Do("test", func() error { do(); return nil })
}

// TestNoJournal checks that without a journal Sluice writes nothing but cpusets.
func TestNoJournal(t *testing.T) {
	for _, f := range fakekernel.Flavours() {
		t.Run(f.Name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "missing", "originals")
			onFlavour(t, f, knobSetup{originals: file}, func(t *testing.T, h *knobNode) {
				h.run(burstPod())
				h.sleep(10 * time.Second)
				if got := h.get("/kubepods/pod-web/a", burstFile...); got != "0" {
					t.Errorf("burst %s without a journal", got)
				}
				if k := h.container("web/a").Settings[0]; !strings.Contains(k.Problem, "disk") {
					t.Errorf("status %+v", k)
				}
				if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				h.pass()
				if got := h.get("/kubepods/pod-web/a", burstFile...); got != "50000" {
					t.Errorf("burst %s with one", got)
				}
				h.calm(t)
			})
		})
	}
}

// TestNothingWritten checks that nothing is written in preview, or on a node of which nothing is
// known.
func TestNothingWritten(t *testing.T) {
	unknown := knobSetup{config: everyKnob}
	unknown.node = noFeatures
	for name, s := range map[string]knobSetup{"preview": {config: everyKnob + "mode: preview\n"}, "nothing known": unknown} {
		for _, f := range fakekernel.Flavours() {
			t.Run(name+" "+f.Name, func(t *testing.T) {
				onFlavour(t, f, s, func(t *testing.T, h *knobNode) {
					var asks []ask
					for _, a := range everyPod() {
						if !strings.HasPrefix(a.name, "pin/") {
							asks = append(asks, a)
						}
					}
					h.run(asks...)
					h.announce("burst/a", 1000)
					h.sleep(5 * time.Second)
					if n := h.spy.took(); n > 0 {
						t.Errorf("%d writes", n)
					}
					s, err := h.agent.Status()
					if err != nil {
						t.Fatal(err)
					}
					told := slices.ContainsFunc(s.Containers, func(c status.Container) bool { return len(c.Settings) > 0 })
					if told != (name == "preview") {
						t.Errorf("what would be set is told: %v", told)
					}
				})
			})
		}
	}
}

// TestRefusedStays checks that a value which the kernel refuses to restore stays in the journal,
// and that the next Restore restores it.
func TestRefusedStays(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(burstPod(), ask{name: "web/b", milli: 1000})
		h.pass()
		h.spy.refusing(func(c knobs.Change) error {
			if c.Knob == knobs.Burst {
				return errors.New("no")
			}
			return nil
		})
		h.end("web/a")
		h.pass()
		if got := h.get("/kubepods/pod-web", burstFile...); got != "50000" {
			t.Errorf("burst %s", got)
		}
		journal := h.o.Originals
		h.crash(t, journal)
		book := readJournal(t, journal)
		if _, err := restore.Run(&restore.Host{Kernel: h.spy}, book, false); err == nil {
			t.Error("all given back")
		}
		h.spy.refusing(nil)
		if _, err := restore.Run(&restore.Host{Kernel: h.spy}, readJournal(t, journal), false); err != nil {
			t.Error(err)
		}
		if got := h.get("/kubepods/pod-web", burstFile...); got != "0" {
			t.Errorf("burst %s in the end", got)
		}
		if left := readJournal(t, journal).All(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		h.launch("")
		synctest.Wait()
	})
}

// TestNewerStays checks that Restore leaves newer values of other programs alone.
func TestNewerStays(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(burstPod())
		h.pass()
		h.crash(t, h.o.Originals)
		h.put("/kubepods/pod-web/a", h.burst(), "7000")
		r, err := restore.Run(&restore.Host{Kernel: h.spy}, readJournal(t, h.o.Originals), false)
		if err != nil || len(r.Newer) != 1 || h.get("/kubepods/pod-web/a", burstFile...) != "7000" || h.get("/kubepods/pod-web", burstFile...) != "0" {
			t.Errorf("%+v %v", r, err)
		}
	})
}

// TestChangedConfig checks that a restart with another configuration restores settings that are no
// longer wanted and changes others, and takes neither for another program's.
func TestChangedConfig(t *testing.T) {
	first := "classes: {LS: {cpu-burst: 50%, weight: 200%, memory-qos: {lowPercent: 50}}}\n"
	onFlavours(t, knobSetup{config: first}, func(t *testing.T, h *knobNode) {
		h.run(ask{name: "web/a", milli: 1000, memory: 64})
		h.pass()
		without := h.state()
		h.restart("classes: {LS: {cpu-burst: 20%}}\n")
		for dir, want := range map[string]string{"/kubepods/pod-web/a": "20000", "/kubepods/pod-web": "20000"} {
			if got := h.get(dir, burstFile...); got != want {
				t.Errorf("burst of %s is %s", dir, got)
			}
			if got := h.get(dir, "memory.low"); got != "0" && got != "-" {
				t.Errorf("memory.low of %s is %s", dir, got)
			}
			if got := h.get(dir, "cpu.weight", "cpu.shares"); got != "1024" && got != "39" {
				t.Errorf("weight of %s is %s", dir, got)
			}
		}
		h.calm(t)
		h.restart(first)
		h.pass()
		if diff := differences(without, h.state()); diff != "" {
			t.Error(diff)
		}
		h.calm(t)
		h.spy.took()
		h.restart(first)
		h.pass()
		if n := h.spy.took(); n > 0 {
			t.Errorf("%d writes of what was right", n)
		}
	})
}

// TestRestartKeepsEveryKnob checks that originals survive a restart, and that values of Sluice's
// in the runtime's record are not taken for the kubelet's.
func TestRestartKeepsEveryKnob(t *testing.T) {
	onFlavours(t, knobSetup{config: everyKnob}, func(t *testing.T, h *knobNode) {
		h.run(everyPod()...)
		h.pass()
		set, book := h.state(), readJournal(t, h.o.Originals).All()
		for range 2 {
			h.restart(everyKnob)
			h.synchronize()
			h.pass()
			if diff := differences(set, h.state()); diff != "" {
				t.Error(diff)
			}
			again := readJournal(t, h.o.Originals).All()
			for i := range book {
				if i >= len(again) || book[i] != again[i] {
					t.Errorf("kept %v, now %d entries", book[i], len(again))
				}
			}
			h.calm(t)
		}
	})
}
