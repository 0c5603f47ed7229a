package e2e

import (
	"strings"
	"testing"
	"unicode"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

func testSqueezeByQuota(t *testing.T, rt *runtime.Runtime) {
	testSqueeze(t, rt, control.ByQuota, boxed)
}

func testSqueezeByCPUSet(t *testing.T, rt *runtime.Runtime) {
	testSqueeze(t, rt, control.ByCPUSet, func(t *testing.T, batch *runtime.Pod) workload.MilliCPU {
		t.Helper()
		cpus, err := batch.Container("c").CPUs()
		must(t, err)
		return workload.MilliCPU(cpus.Size() * 1000)
	})
}

// testSqueeze checks that batch work gives up CPU for a service's load and gets back what the
// service leaves, and that the service's own files stay. In the end everything is restored.
func testSqueeze(t *testing.T, rt *runtime.Runtime, by control.Mechanism, given func(*testing.T, *runtime.Pod) workload.MilliCPU) {
	online := service(t, rt, "online", runtime.Resources{CPURequest: 1000, CPULimit: 2000})
	batch := hog(t, rt, "batch")
	before, err := rt.Dump()
	must(t, err)
	own, err := online.Settings()
	must(t, err)
	s := loopSluice(t, rt, squeeze(control.On, by))

	calm := workload.MilliCPU(1200)
	if by == control.ByCPUSet {
		calm = 2000 // a number of whole CPUs
	}
	isCalm := func() bool { now := given(t, batch); return now > calm-150 && now <= calm }
	await(t, "batch has what a calm service leaves", isCalm)
	least := calm
	load(t, online)
	givesWay := func() bool {
		now := given(t, batch)
		if now > 0 { // the container has no limit otherwise
			least = min(least, now)
		}
		return now > 0 && now <= calm-300
	}
	await(t, "batch gives way", givesWay)
	if rt.Systemd() && by == control.ByQuota { // systemd then writes its own values to the slices
		must(t, rt.DaemonReload())
		await(t, "what systemd has undone is repaired, and told", func() bool {
			return strings.Contains(s.Log(), `setting=cpu.quota suspect="systemd: `) && givesWay()
		})
	}
	unchanged(t, "under load", online, own)
	unload(t, online)
	await(t, "batch has back what the service leaves", isCalm)
	unchanged(t, "after load", online, own)
	t.Logf("batch had %s CPUs beside a calm service, and %s or less under load", calm, least)
	for _, action := range []string{"squeeze", "grow"} {
		entries := decided(t, s, "batch", action)
		if len(entries) == 0 {
			t.Errorf("sluice log tells of no decision to %s", action)
		}
		for _, e := range entries {
			if e.Mode != control.On || !strings.ContainsFunc(e.Why, unicode.IsDigit) || len(e.Facts) == 0 || e.To == "" {
				t.Errorf("sluice log tells without its numbers: %+v", e)
			}
		}
	}
	told, err := s.DecisionText()
	must(t, err)
	for _, part := range []string{"node: squeeze, ", "node: grow, ", "batch: online work and the system use ", "capacity "} {
		if !strings.Contains(told, part) {
			t.Errorf("sluice log lacks %q:\n%s", part, told)
		}
	}
	sound(t, s)
	restores(t, rt, s, before)
}

// restores ends the plugin and restores what it has changed: everything is as it was, also after
// the failsafe has ended.
func restores(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice, before runtime.Dump) {
	t.Helper()
	must(t, s.Stop())
	told, err := s.Restore()
	must(t, err)
	same := func(when string) {
		t.Helper()
		after, err := rt.Dump()
		must(t, err)
		if changed := before.Differences(after); len(changed) > 0 {
			t.Errorf("%s, sluice restore has left changed:\n%s\nIt told:\n%s", when, strings.Join(changed, "\n"), told)
		}
	}
	same("at once")
	noFailsafe(t, s)
	same("after the failsafe's end")
}

// noFailsafe waits until the plugin's failsafes have ended.
func noFailsafe(t *testing.T, s *runtime.Sluice) {
	t.Helper()
	await(t, "the failsafe has ended", func() bool {
		pids, err := s.Failsafes()
		must(t, err)
		return len(pids) == 0
	})
}

// testPreview checks that the loop decides all the time and writes nothing.
func testPreview(t *testing.T, rt *runtime.Runtime) {
	online := service(t, rt, "online", runtime.Resources{CPURequest: 100, CPULimit: 1000})
	hog(t, rt, "batch")
	s := loopSluice(t, rt, squeeze(control.Preview, control.ByBoth))
	await(t, "the loop decides", func() bool { return len(decided(t, s, "batch", "squeeze")) > 0 })
	before, err := rt.Dump()
	must(t, err)
	squeezed := len(decided(t, s, "batch", "squeeze"))
	load(t, online)
	await(t, "preview squeezes", func() bool { return len(decided(t, s, "batch", "squeeze")) > squeezed })
	unload(t, online)
	grown := len(decided(t, s, "batch", "grow"))
	await(t, "preview grows", func() bool { return len(decided(t, s, "batch", "grow")) > grown })
	all, err := s.Decisions()
	must(t, err)
	for _, e := range all {
		if e.Mode != control.Preview {
			t.Errorf("decided in mode %s: %+v", e.Mode, e)
		}
	}
	after, err := rt.Dump()
	must(t, err)
	if changed := before.Differences(after); len(changed) > 0 {
		t.Errorf("after %d decisions in preview: %q", len(all), changed)
	}
	t.Logf("%d decisions, none of %d files changed", len(all), len(before))
	if pids, err := s.Failsafes(); err != nil || len(pids) > 1 {
		t.Errorf("%d failsafes, %v", len(pids), err)
	}
	sound(t, s)
}
