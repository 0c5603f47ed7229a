package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// withSignals returns the scenario memory-culprit on a node that counts cycles per instruction, RDT's figures, or both.
func withSignals(t *testing.T, cycles, rdt bool) string {
	t.Helper()
	text := scenarioText(t, "memory-culprit")
	if !cycles {
		text = swap(t, text, "cpi: true", "cpi: false")
	}
	if !rdt {
		text = swap(t, text, "monitor: true", "monitor: false")
	}
	return text
}

func swap(t *testing.T, text, old, with string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("the scenario has no %q", old)
	}
	return strings.ReplaceAll(text, old, with)
}

func (r *culpritRun) logMemory(t *testing.T, name string) {
	t.Helper()
	t.Logf("%s: squeezed after %v, confirmed after %v; response times %v before, %v until then, %v afterwards; services late %.2f %%, %.2f %% after the confirmation; the culprit did %.0f CPU seconds, the nine %.0f; held back for %v",
		name, r.squeezed, r.confirmed, r.before, r.during, r.after, 100*r.late, 100*r.lateAfter, r.culprit, r.others, r.limited)
}

// cacheAlone makes the culprit move little memory, so that cache alone is short, on which services depend more.
func cacheAlone(t *testing.T, text string) string {
	t.Helper()
	return swap(t, swap(t, text, "traffic: 1700M", "traffic: 300M"), "sensitivity: 70%", "sensitivity: 150%")
}

// TestMemoryCulprit checks on the scenario that one of ten batch pods which takes services' cache and memory bandwidth
// is found by each signal, that services are then on time again, and that the nine others lose nothing. RDT alone
// finds it only where cache is short, but not bandwidth. The log has the numbers of docs/simulation.md.
func TestMemoryCulprit(t *testing.T) {
	t.Parallel()
	both := func(cycles, rdt bool) string { return withSignals(t, cycles, rdt) }
	cache := func(cycles, rdt bool) string { return cacheAlone(t, withSignals(t, cycles, rdt)) }
	without := map[string]*culpritRun{
		"cache and bandwidth": runCulprit(t, Suppression, both(true, true), "sim/scan", control.Off, 95),
		"cache":               runCulprit(t, Suppression, cache(true, true), "sim/scan", control.Off, 95),
	}
	for name, r := range without {
		r.logMemory(t, name+", off")
		if r.late < 0.9 || r.squeezed != 0 {
			t.Errorf("%s: without the controller services are late for %.3f of the time, squeezed after %v: the scenario shows nothing", name, r.late, r.squeezed)
		}
	}
	for _, test := range []struct {
		short, by string
		text      string
		found     time.Duration // 0 for never
	}{
		{"cache and bandwidth", "cycles", both(true, false), 140 * time.Second},
		{"cache and bandwidth", "cycles, RDT", both(true, true), 140 * time.Second},
		{"cache and bandwidth", "RDT alone", both(false, true), 0},
		{"cache", "cycles", cache(true, false), 140 * time.Second},
		{"cache", "cycles, RDT", cache(true, true), 140 * time.Second},
		{"cache", "RDT alone", cache(false, true), 20 * time.Second},
	} {
		name, with := test.short+", "+test.by, runCulprit(t, Suppression, test.text, "sim/scan", control.On, 95)
		with.logMemory(t, name)
		if with.others < 0.999*without[test.short].others {
			t.Errorf("%s: the nine others do %.1f CPU seconds, and %.1f without the controller", name, with.others, without[test.short].others)
		}
		if test.found == 0 {
			if with.squeezed != 0 {
				t.Errorf("%s: squeezed after %v", name, with.squeezed)
			}
			continue
		}
		if with.squeezed <= 0 || with.squeezed > test.found || with.confirmed <= 0 || with.confirmed > test.found+15*time.Second {
			t.Errorf("%s: squeezed after %v, confirmed after %v", name, with.squeezed, with.confirmed)
		}
		if with.lateAfter > 0.02 {
			t.Errorf("%s: services are late for %.3f of the time after the culprit was found", name, with.lateAfter)
		}
	}
}

// TestMemoryNobodys checks that batch pods keep their CPU where services need more cycles per instruction for reasons of
// their own, even if a batch pod begins to use much CPU in the same second. The log has the numbers of docs/simulation.md.
func TestMemoryNobodys(t *testing.T) {
	t.Parallel()
	for name, cycles := range map[string]string{
		"slow by themselves":  "{at: 5m, load: 250%}, {at: 20m, load: 100%}",
		"phases of their own": "{at: 5m, load: 250%}, {at: 9m, load: 100%}, {at: 12m, load: 250%}, {at: 16m, load: 100%}, {at: 19m, load: 250%}, {at: 23m, load: 100%}",
	} {
		for signals, text := range map[string]string{"cycles": withSignals(t, true, false), "cycles, RDT": withSignals(t, true, true), "RDT alone": withSignals(t, false, true)} {
			text = swap(t, text, "  sensitivity: 70%", "  sensitivity: 70%\n  cycles: ["+cycles+"]")
			text = swap(t, swap(t, text, "traffic: 1700M", "traffic: 20M"), "llc: 256Mi", "llc: 1Mi")
			r := runCulprit(t, Suppression, text, "sim/scan", control.On, 95)
			r.logMemory(t, name+" ("+signals+")")
			if r.confirmed != 0 || r.limited > 2*time.Minute || r.squeezed != 0 && strings.Contains(signals, "RDT") {
				t.Errorf("%s (%s): confirmed after %v, held back for %v", name, signals, r.confirmed, r.limited)
			}
		}
	}
}
