package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/engine/forecaststate"
	"github.com/sluice-dev/sluice/pkg/engine/notices"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/status"
)

// noticing returns a setup whose pods are told by files in a folder, with what was learned.
func noticing(t *testing.T, dir, config string, learned *predict.Set) knobSetup {
	t.Helper()
	return knobSetup{config: config, options: func(_ *knobNode, o *Options) {
		folder, err := notices.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { folder.Close() })
		o.Notices = folder
		if learned != nil {
			if err := forecaststate.Write(dir, learned.Encode()); err != nil {
				t.Fatal(err)
			}
			o.StateDir = dir
		}
	}}
}

// reads returns what a pod reads; "" if it has no file.
func reads(dir, pod string) string {
	text, _ := os.ReadFile(filepath.Join(dir, "notices", pod, notices.File))
	return string(text)
}

func told(t *testing.T, dir, pod, want string) {
	t.Helper()
	if text := reads(dir, pod); !strings.Contains(text, want) || want == "" && text != "" {
		t.Errorf("at %s, %s reads %q, want %q", time.Now().Format(time.TimeOnly), pod, text, want)
	}
}

func notified(name, value string) ask {
	a := batch(name)
	a.annotations["notice.sluice.dev"] = value
	return a
}

// Pods that ask for it are told before a window begins and when it has ended, over a restart of the
// plugin, until they end. Others have no folder.
func TestNoticeOfAWindow(t *testing.T) {
	dir := t.TempDir()
	onLoop(t, fakekernel.MainlineV2(), noticing(t, dir, "control: {mode: on}", nil), func(t *testing.T, h *loopNode) {
		begin := time.Now().Truncate(time.Minute).Add(15 * time.Minute)
		window := "control: {mode: on, windows: [{from: \"" + begin.Format("15:04") + "\", to: \"" + begin.Add(time.Hour).Format("15:04") + "\"}]}"
		h.restart(window)
		web := service("web/c", 1000)
		web.annotations["notice.sluice.dev"] = "file"
		h.run(notified("job/c", "file"), notified("none/c", "none"), batch("other/c"), web)
		h.steps(2 * time.Second)
		told(t, dir, "job", `{"kind":"none"}`)
		for _, pod := range []string{"none", "other", "web"} {
			told(t, dir, pod, "")
		}
		h.steps(8 * time.Minute)
		told(t, dir, "job", `"kind":"squeeze","beginsAt":"`+begin.UTC().Format(time.RFC3339)+`","endsAt":"`+begin.Add(time.Hour).UTC().Format(time.RFC3339)+`","why":"window `)
		h.run(notified("late/c", "file"))
		told(t, dir, "late", "squeeze")
		h.restart(window)
		told(t, dir, "job", "squeeze")
		h.end("late/c")
		if err := h.agent.RemovePod("sandbox-late", "late"); err != nil {
			t.Fatal(err)
		}
		told(t, dir, "late", "")
		h.steps(70 * time.Minute)
		told(t, dir, "job", "none")
		h.end("job/c")
		delete(h.pods, "job")
		h.restart(window) // it has ended while the plugin was away
		h.steps(time.Second)
		told(t, dir, "job", "")
	})
}

// full returns what was learned of a node whose services used all of its CPUs for two days.
func full(now time.Time) *predict.Set {
	set := predict.NewSet(predict.DefaultConfig())
	for before := 48 * time.Hour; before > 0; before -= time.Minute {
		set.Add(now.Add(-before), predict.Key{Kind: predict.Node, Resource: predict.CPU}, fakekernel.CPUs)
	}
	return set
}

// A forecast closes the node for new batch work and offers nothing, and changes nothing for what runs.
// In preview of the loop or of the forecasts, pods are told nothing.
func TestNoticeOfAForecast(t *testing.T) {
	t.Parallel()
	const on, preview = "{mode: on, prediction: {mode: on}}", "{mode: on, prediction: {mode: preview}}"
	for config, acts := range map[string]bool{on: true, preview: false, "{mode: preview, prediction: {mode: on}}": false} {
		t.Run(config, func(t *testing.T) {
			dir := t.TempDir()
			learned := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when virtual time begins
			onLoop(t, fakekernel.MainlineV2(), noticing(t, dir, "control: "+config, full(learned)), func(t *testing.T, h *loopNode) {
				h.run(notified("job/c", "file"))
				h.uses["job/c"] = 2
				h.steps(20 * time.Second)
				told(t, dir, "job", "none")
				h.steps(20 * time.Second)
				before := h.quotaOf("/kubepods/besteffort")
				if h.steps(20 * time.Second); h.quotaOf("/kubepods/besteffort") != before {
					t.Error("the notice changes the budget")
				}
				err := h.create(batch("new/c"))
				text := reads(dir, "job")
				var s *status.Loop
				h.loop(func() {
					h.agent.loop.Failures = func() []status.Failure { return nil } // there is a sampler
					s = h.agent.loop.Status()
				})
				if !acts {
					if err != nil || !strings.Contains(text, "none") || (s.Notices.Active == nil) != (config == preview) {
						t.Errorf("%v, %s, %+v", err, text, s.Notices)
					}
					return
				}
				const why = "all others are expected to need 9.2 CPUs"
				if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(text, why) {
					t.Errorf("a new pod: %v; told %s", err, text)
				}
				if s.Batch.State != status.BatchNoNew || s.Offer.ShortTerm.CPU != 0 || s.Notices.Active == nil || s.Notices.Active.Cause != control.NoticeByForecast || s.Notices.Counts.Given != 1 {
					t.Errorf("batch %+v, offer %+v, notices %+v", s.Batch, s.Offer, s.Notices)
				}
				if n := h.audit.has("notices", "give"); n != 1 {
					t.Errorf("%d decisions", n)
				}
			})
		})
	}
}

// A folder that can't be made costs a pod the notices, and not its start.
func TestNoNoticesFolder(t *testing.T) {
	dir := t.TempDir()
	onLoop(t, fakekernel.MainlineV2(), noticing(t, dir, "control: {mode: on}", nil), func(t *testing.T, h *loopNode) {
		if err := notices.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		h.run(notified("job/c", "file"))
		if got := strings.Join(h.container("job/c").Warnings, " "); !strings.Contains(got, "it gets no notices") {
			t.Errorf("warnings: %q", got)
		}
	})
}
