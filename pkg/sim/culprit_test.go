package sim

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// culpritRun is the outcome of a scenario with a culprit.
type culpritRun struct {
	*report
	pod                     string // the culprit
	start                   time.Time
	squeezed, confirmed     time.Duration // since the culprit's begin; 0 for never. A noisy pod is kept apart instead
	late, lateAfter         float64       // share of the services' time, while the culprit is busy, and from its confirmation on
	others, culprit         float64       // CPU seconds that the other batch pods and the culprit did
	services                float64       // those that the services did which are no culprit
	lateSteps, steps        int
	lateStepsAfter, stepsIn int
	before, during, after   response      // of the services: before the culprit begins, until its confirmation, and from then on
	limited                 time.Duration // for which a limit held batch pods back, summed over them
}

// response is the mean 99th percentile of response times, without those at which more work arrives than can be done.
type response struct {
	sum float64
	n   int
}

func (p *response) add(seconds float64) {
	if !math.IsInf(seconds, 1) {
		p.sum, p.n = p.sum+seconds, p.n+1
	}
}

func (p response) String() string { return fmt.Sprintf("%.1f ms", 1000*ratio(p.sum, float64(p.n))) }

const (
	culpritBegin = 5 * time.Minute
	culpritEnd   = 20 * time.Minute
)

// Record notes when the culprit was squeezed and confirmed for the first time.
func (r *culpritRun) Record(now time.Time, mode control.Mode, d *control.Decision) {
	since := now.Sub(r.start) - culpritBegin
	switch {
	case d.Controller != "culprit" && d.Controller != "noisy" || mode != control.On:
	case d.Object != r.pod:
		r.squeezed = -1 // somebody else is suspected
	case (d.Action == "squeeze" || d.Action == "separate") && r.squeezed == 0:
		r.squeezed = since
	case d.Action == "confirm" && r.confirmed == 0:
		r.confirmed = since
	}
	r.report.Record(now, mode, d)
}

func runCulprit(t *testing.T, policy Policy, text, pod string, mode control.Mode, threshold int) *culpritRun {
	t.Helper()
	s := parsed(t, text)
	s.Config.Control.Culprit.Mode = mode
	s.Config.Control.Batch.ThresholdPercent = threshold
	sim, err := prepare(s, trial{policy: policy, vary: 1, tight: 1, budget: always})
	if err != nil {
		t.Fatal(err)
	}
	r := &culpritRun{report: &sim.report, pod: pod, start: time.Time(s.Start)}
	sim.options.Audit = r
	sim.kubelet.setUp()
	err = sim.manage()
	defer sim.leave()
	if err != nil {
		t.Fatal(err)
	}
	step := sim.node.step
	for now := time.Duration(0); now < s.Duration; now += step {
		sim.steer(now+step, sim.advance(now))
		for _, c := range sim.node.containers {
			r.look(sim.node, c, now)
			switch {
			case strings.HasPrefix(c.ref, pod):
				r.culprit += c.done
			case c.isService() && now >= culpritBegin && now < culpritEnd:
				r.services += c.done
				late := 0
				if c.p99 > c.Service.SLO.Seconds() {
					late = 1
				}
				r.steps, r.lateSteps = r.steps+1, r.lateSteps+late
				if r.confirmed > 0 {
					r.stepsIn, r.lateStepsAfter = r.stepsIn+1, r.lateStepsAfter+late
				}
			case strings.HasPrefix(c.ref, "sim/job"):
				r.others += c.done
			}
		}
	}
	r.late, r.lateAfter = ratio(float64(r.lateSteps), float64(r.steps)), ratio(float64(r.lateStepsAfter), float64(r.stepsIn))
	return r
}

// look adds what a container shows in a step that began at the time now.
func (r *culpritRun) look(n *simNode, c *container, now time.Duration) {
	switch {
	case c.class == workload.BE && c.throttled:
		r.limited += n.step
	case !c.isService() || now >= culpritEnd:
	case now < culpritBegin:
		r.before.add(c.p99)
	case r.confirmed == 0:
		r.during.add(c.p99)
	default:
		r.after.add(c.p99)
	}
}

// TestCulpritAmongTen checks on the scenario that one culprit among ten batch pods is found within
// seconds, that services are then on time again, and that the nine others lose nothing. The log has
// the numbers of docs/simulation.md.
func TestCulpritAmongTen(t *testing.T) {
	t.Parallel()
	text := scenarioText(t, "culprit")
	run := func(mode control.Mode, threshold int) *culpritRun {
		return runCulprit(t, Suppression, text, "sim/scan", mode, threshold)
	}
	without, with, all := run(control.Off, 95), run(control.On, 95), run(control.Off, 65)
	for name, r := range map[string]*culpritRun{"without": without, "with": with, "all squeezed": all} {
		t.Logf("%s: squeezed after %v, confirmed after %v; services late %.2f %%, %.2f %% after the confirmation; the culprit did %.0f CPU seconds, the nine %.0f",
			name, r.squeezed, r.confirmed, 100*r.late, 100*r.lateAfter, r.culprit, r.others)
	}
	if without.late < 0.9 || without.squeezed != 0 {
		t.Errorf("without the controller services are late for %.3f of the time, squeezed after %v: the scenario shows nothing", without.late, without.squeezed)
	}
	if with.squeezed <= 0 || with.squeezed > 13*time.Second || with.confirmed > 30*time.Second {
		t.Errorf("squeezed after %v, confirmed after %v", with.squeezed, with.confirmed)
	}
	if with.late > 0.04 || with.lateAfter > 0.02 {
		t.Errorf("services are late for %.3f of the time, and for %.3f after the culprit was found", with.late, with.lateAfter)
	}
	if with.others < 0.999*without.others {
		t.Errorf("the nine others do %.1f CPU seconds, and %.1f without the controller", with.others, without.others)
	}
}

// TestGreedyService checks on the scenario that one service among five that makes the others wait is found
// within seconds where it permits that, that the others are then on time again, and that nobody else loses
// anything. The log has the numbers of docs/simulation.md.
func TestGreedyService(t *testing.T) {
	t.Parallel()
	text := scenarioText(t, "greedy-service")
	run := func(text string, mode control.Mode) *culpritRun {
		return runCulprit(t, Suppression, text, "sim/index", mode, 95)
	}
	without, with := run(text, control.Off), run(text, control.On)
	denied := run(strings.Replace(text, "allow.sluice.dev: demote", "allow.sluice.dev: none", 1), control.On)
	for name, r := range map[string]*culpritRun{"without": without, "with": with, "not permitted": denied} {
		t.Logf("%s: squeezed after %v, confirmed after %v; the four other services late %.2f %%, %.2f %% after the confirmation; they did %.0f CPU seconds, the culprit %.0f, batch work %.0f",
			name, r.squeezed, r.confirmed, 100*r.late, 100*r.lateAfter, r.services, r.culprit, r.others)
	}
	if without.late < 0.9 || without.squeezed != 0 || denied.squeezed != 0 {
		t.Errorf("without the controller the others are late for %.3f of the time, squeezed after %v, and where it is not permitted after %v", without.late, without.squeezed, denied.squeezed)
	}
	if with.squeezed <= 0 || with.squeezed > 13*time.Second || with.confirmed > 30*time.Second {
		t.Errorf("squeezed after %v, confirmed after %v", with.squeezed, with.confirmed)
	}
	if with.late > 0.04 || with.lateAfter > 0.02 {
		t.Errorf("the others are late for %.3f of the time, and for %.3f after the culprit was found", with.late, with.lateAfter)
	}
	if with.others < 0.999*without.others || with.services < 0.999*without.services {
		t.Errorf("batch work does %.1f CPU seconds, and %.1f without the controller; the other services %.1f and %.1f", with.others, without.others, with.services, without.services)
	}
	if least := 4 * (culpritEnd - culpritBegin).Seconds(); with.culprit < least {
		t.Errorf("the culprit does %.0f CPU seconds, and its request are %.0f", with.culprit, least)
	}
}

// TestNoisyService checks on the same scenario that the greedy service is kept apart from the others where it does not
// permit to be demoted, and that these are on time again, with pools that share their CPUs and with exclusive ones. The log
// has the numbers of docs/simulation.md.
func TestNoisyService(t *testing.T) {
	t.Parallel()
	text := strings.Replace(scenarioText(t, "greedy-service"), "allow.sluice.dev: demote", "allow.sluice.dev: none", 1)
	const config = "\nconfig:\n  control: {"
	separate := strings.Replace(text, config, config+"noisy: {mode: on}, ", 1)
	job := text[strings.Index(text, "- name: job"):strings.Index(text, "- name: index")]
	alone := runCulprit(t, Suppression, strings.Replace(separate, job, "", 1), "sim/index", control.Off, 95)
	t.Logf("without batch work: separated after %v, confirmed after %v; the four other services late %.2f %%, %.2f %% after the confirmation", alone.squeezed, alone.confirmed, 100*alone.late, 100*alone.lateAfter)
	if alone.confirmed <= 0 || alone.confirmed > 60*time.Second || alone.lateAfter > 0.001 {
		t.Errorf("without batch work: confirmed after %v, late for %.3f of the time then", alone.confirmed, alone.lateAfter)
	}
	for pools, policy := range map[string]Policy{"shared": Suppression, "exclusive": Pools} {
		without, with := runCulprit(t, policy, text, "sim/index", control.Off, 95), runCulprit(t, policy, separate, "sim/index", control.Off, 95)
		for name, r := range map[string]*culpritRun{"advice": without, "separated": with} {
			t.Logf("%s pools, %s: separated after %v, confirmed after %v; the four other services late %.2f %%, %.2f %% after the confirmation; they did %.0f CPU seconds, the noisy one %.0f, batch work %.0f",
				pools, name, r.squeezed, r.confirmed, 100*r.late, 100*r.lateAfter, r.services, r.culprit, r.others)
		}
		if without.late < 0.9 || without.squeezed != 0 {
			t.Errorf("%s pools: with advice alone the others are late for %.3f of the time, separated after %v", pools, without.late, without.squeezed)
		}
		if with.squeezed <= 0 || with.squeezed > 45*time.Second || with.confirmed > 60*time.Second {
			t.Errorf("%s pools: separated after %v, confirmed after %v", pools, with.squeezed, with.confirmed)
		}
		if with.late > 0.06 || with.lateAfter > 0.001 {
			t.Errorf("%s pools: the others are late for %.3f of the time, and for %.3f after the confirmation", pools, with.late, with.lateAfter)
		}
		if with.others < 0.999*without.others || with.services < 0.999*without.services {
			t.Errorf("%s pools: batch work does %.1f CPU seconds, and %.1f with advice alone; the other services %.1f and %.1f", pools, with.others, without.others, with.services, without.services)
		}
		if least := 3.9 * (culpritEnd - culpritBegin).Seconds(); with.culprit < least {
			t.Errorf("%s pools: the noisy one does %.0f CPU seconds, and its request are %.0f", pools, with.culprit, least)
		}
	}
}

func scenarioText(t *testing.T, name string) string {
	t.Helper()
	text, err := Text(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
