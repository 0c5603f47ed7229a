package agent

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// everyKnob configures the keys that have no annotation.
const everyKnob = `
memory: {bePageCachePercent: 50}
authorize: [{features: [identity, oomScore, ioWeight, pool], namespaces: ["*"]}]
pools: {list: [{name: critical, set: {weight: 200%}}, {name: online}, {name: batch}]}
classes:
  BE: {cpu-identity: -1, memory-qos: {wmarkRatio: 95, wmarkScale: 20, wmarkMinAdj: 50}, oom-score: 900, net-class: "10:1", io: {weight: 10}}
`

// everyPod returns pods that request every knob.
func everyPod() []ask {
	batch := `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"256Mi"}},"b":{"limits":{"kubernetes.io/batch-cpu":"2000","kubernetes.io/batch-memory":"1Gi"}}}}`
	koordinator := map[string]string{"node.koordinator.sh/extended-resource-spec": batch, "class.sluice.dev": "BE"}
	return []ask{
		{name: "burst/a", milli: 2000, memory: 512, annotations: map[string]string{"class.sluice.dev": "LS", "cpu-burst.sluice.dev": "50%"}},
		{name: "burst/b", milli: 1000, memory: 512, annotations: map[string]string{"class.sluice.dev": "LS", "cpu-burst.sluice.dev": "100%"}},
		{name: "pin/a", milli: 2000, memory: 1024, annotations: map[string]string{"class.sluice.dev": "LSR"}},
		{name: "memory/a", milli: 1000, memory: 1024, annotations: map[string]string{
			"memory-qos.sluice.dev": `{minPercent: 50, lowPercent: 100, highPercent: 80, wmarkRatio: 90, priority: 5, oomGroup: true}`,
			"io.sluice.dev":         `{weight: 300, readBPS: 1Mi, devices: {/dev/sda: {weight: 50, writeIOPS: 100}}}`,
		}},
		{name: "idle/a", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "BE"}},
		{name: "low/a", qos: "burstable", milli: 500, memory: 128, annotations: map[string]string{"class.sluice.dev": "BE"}},
		{name: "mixed/a", qos: "burstable", milli: 500, annotations: map[string]string{"cpu-identity.sluice.dev": "2"}},
		{name: "mixed/b", qos: "burstable", milli: 500, annotations: map[string]string{"cpu-identity.sluice.dev": "-1"}},
		{name: "batch/a", qos: "besteffort", annotations: koordinator},
		{name: "batch/b", qos: "besteffort", annotations: koordinator},
		{name: "pool/a", qos: "burstable", milli: 1000, annotations: map[string]string{"pool.sluice.dev": "critical"}},
		{name: "plain/a", qos: "burstable", milli: 1000, memory: 64},
	}
}

// bare returns the state of the same node without Sluice.
func bare(t testingT, f fakekernel.Flavour, do func(h *knobNode)) map[string]string {
	h := newKnobNode(t, f, knobSetup{config: everyKnob + "mode: preview\n"})
	defer h.stop()
	do(h)
	h.pass()
	return h.state()
}

// TestEveryKnob compares the state of each kernel after requests for every knob with its state
// without Sluice, and checks which missing knobs containers are warned of.
func TestEveryKnob(t *testing.T) {
	onFlavours(t, knobSetup{config: everyKnob}, func(t *testing.T, h *knobNode) {
		f := h.Flavour
		h.run(everyPod()...)
		h.pass()
		var text strings.Builder
		without := bare(t, f, func(h *knobNode) { h.run(everyPod()...) })
		got := h.state()
		for line := range strings.SplitSeq(differences(without, got), "\n") {
			if !strings.Contains(line, "/cpuset.") {
				text.WriteString(line + "\n")
			}
		}
		for _, a := range everyPod() {
			c := h.container(a.name)
			for _, l := range c.Lacks {
				missing := ""
				if l.Missing {
					missing = "MISSING "
				}
				text.WriteString(a.name + " " + missing + l.Key + ": " + l.Text + "\n")
			}
			if score := h.specs[a.name].score; score.Set {
				text.WriteString(a.name + " oom_score_adj " + strconv.Itoa(score.Value) + "\n")
			}
			for _, k := range c.Settings {
				if k.Problem != "" {
					text.WriteString(a.name + " PROBLEM " + k.Knob + ": " + k.Problem + "\n")
				}
			}
		}
		golden(t, "knobs-"+strings.ReplaceAll(f.Name, " ", "-")+".golden", text.String())
		h.calm(t)
		h.spy.took()
		h.pass()
		h.synchronize()
		h.pass()
		if n := h.spy.took(); n > 0 {
			t.Errorf("%d writes, and all was right", n)
		}
		h.calm(t)
	})
}

// calm checks that no write was refused and no drift repaired.
func (h *knobNode) calm(t testingT) {
	t.Helper()
	s, err := h.agent.Status()
	if err != nil {
		t.Fatal(err)
	}
	if s.Counters.Drift > 0 || s.Counters.Panics > 0 || len(h.spy.refused) > 0 {
		t.Errorf("%d drifts, %d panics, refused %q; log:\n%s", s.Counters.Drift, s.Counters.Panics, h.spy.refused, h.log.text.String())
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestRestoreEveryKnob checks that after a crash Restore returns the kernel to its state without
// Sluice.
func TestRestoreEveryKnob(t *testing.T) {
	onFlavours(t, knobSetup{config: everyKnob}, func(t *testing.T, h *knobNode) {
		f, file := h.Flavour, h.o.Originals
		h.run(everyPod()...)
		h.pass()
		book := readJournal(t, file)
		set := h.state()
		if dry, err := restore.Run(&restore.Host{Kernel: h.spy}, book, true); err != nil || len(dry.Changes) == 0 || differences(set, h.state()) != "" {
			t.Errorf("dry: %d changes, %v, %s", len(dry.Changes), err, differences(set, h.state()))
		}
		h.crash(t, file)
		r, err := restore.Run(&restore.Host{Kernel: h.spy}, readJournal(t, file), false)
		stays := f.NoWayBack && err != nil && strings.Contains(err.Error(), "cpu.qos_level")
		if err != nil && !stays || len(r.Newer) > 0 {
			t.Errorf("newer %v, %v", r.Newer, err)
		}
		without := bare(t, f, func(h *knobNode) { h.run(everyPod()...) })
		diff := slices.DeleteFunc(strings.Split(differences(without, h.state()), "\n"), func(line string) bool {
			return line == "" || f.NoWayBack && strings.Contains(line, "cpu.qos_level")
		})
		if len(diff) > 0 {
			t.Errorf("not as before:\n%s", strings.Join(diff, "\n"))
		}
		if left := readJournal(t, file).All(); len(left) > 0 && !stays {
			t.Errorf("the book still has %v", left)
		}
	})
}

// TestRestoreBesideStaticManagers checks that Restore leaves sets alone that the kubelet's static
// managers now write, and restores everything else.
func TestRestoreBesideStaticManagers(t *testing.T) {
	onFlavours(t, knobSetup{config: everyKnob}, func(t *testing.T, h *knobNode) {
		file := h.o.Originals
		h.run(everyPod()...)
		h.pass()
		h.crash(t, file)
		all := readJournal(t, file).All()
		read := func() map[reconcile.Key]string {
			sets := map[reconcile.Key]string{}
			for _, e := range all {
				if e.Knob == knobs.CPUs {
					have, err := h.spy.Read(e.Object.Path, e.Knob)
					if err != nil {
						t.Fatal(err)
					}
					sets[reconcile.Key{Path: e.Object.Path, Knob: e.Knob}] = have.String()
				}
			}
			return sets
		}
		before := read()
		host := &restore.Host{Kernel: h.spy, Managers: []peers.Neighbour{{Kind: peers.CPUManager}}}
		r, err := restore.Run(host, readJournal(t, file), false)
		if err != nil && !h.NoWayBack {
			t.Error(err)
		}
		if after := read(); len(before) == 0 || !maps.Equal(before, after) || len(r.Newer) != len(before) {
			t.Errorf("CPU sets were %v and are %v; left alone: %v", before, after, r.Newer)
		}
		for _, e := range readJournal(t, file).All() {
			if _, kept := before[reconcile.Key{Path: e.Object.Path, Knob: e.Knob}]; !kept && !h.NoWayBack {
				t.Errorf("%s of %s is not given back", e.Knob, e.Object.Name)
			}
		}
	})
}

// crash ends the plugin without writing to its journal.
func (h *knobNode) crash(t testingT, journal string) {
	t.Helper()
	was, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	h.stop()
	if err := os.WriteFile(journal, was, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRequired checks that a container which requires a knob fails if the kernel lacks it.
func TestRequired(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		err := h.create(ask{name: "web/a", milli: 1000, memory: 64, annotations: map[string]string{
			"memory-qos.sluice.dev": "{lowPercent: 100}", "required.sluice.dev": "memory-qos",
		}})
		if has := h.V2 || h.Memory; has != (err == nil) || err != nil && !strings.Contains(err.Error(), "memory.low") {
			t.Errorf("memory.low is there: %v; %v", has, err)
		}
	})
}
