package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// A file that is refused is tried again when it is saved again, and by itself where the agent was
// busy. Other events in its folder do not repeat the refusal.
func TestRefusedFileIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := newPartsNode(t, "mode: preview\n")
	n.start()
	n.synchronize()
	r := n.s.reload
	tries := 0
	answers := func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		tries = 0
		r.reconfigure = func(to agent.Reload) ([]string, error) {
			tries++
			if err != nil {
				return nil, err
			}
			return n.a.Reconfigure(to)
		}
	}
	tried := func(what string, want int) {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		if tries != want {
			t.Errorf("%s: tried %d times, want %d", what, tries, want)
		}
		tries = 0
	}
	saved := time.Now()
	save := func() {
		n.write("mode: preview\ncontrol: {batch: {floorPercent: 5}}\n")
		saved = saved.Add(time.Second)
		if err := os.Chtimes(n.o.Config, saved, saved); err != nil {
			t.Fatal(err)
		}
	}
	const floor = "control.batch.floorPercent"

	answers(errors.New("it would move a pin"))
	save()
	r.read(false)
	tried("saved", 1)
	r.read(false)
	r.retryFile()
	tried("another file of the folder", 0)
	save()
	r.read(false)
	tried("saved again", 1)

	answers(agent.ErrMemoryBusy)
	save()
	r.read(false)
	r.read(false)
	tried("saved while memory is being reclaimed", 1)
	r.retryFile()
	tried("still being reclaimed", 1)
	n.has("still being reclaimed", "[]", "", floor, "default")
	answers(nil)
	r.retryFile()
	n.has("reclaimed", "[]", "", floor, "5")
	save()
	r.read(false)
	r.retryFile()
	tried("in force, and saved again", 1)
}

// The answer to what a file would change has the fleet's parts over the file, as a reload has.
func TestConfigDiffHasTheParts(t *testing.T) {
	t.Parallel()
	const own = "mode: preview\ncontrol: {batch: {floorPercent: 3}}\n"
	n := newPartsNode(t, own, "control")
	n.start()
	n.synchronize()
	n.send(policy.Part{Name: "night", Text: "control: {batch: {floorPercent: 5}}"})
	logFile := "log: {file: " + filepath.Join(n.root, "log") + "}\n" // as start sets it
	for text, want := range map[string]string{
		own: "[]",
		"mode: preview\ncontrol: {batch: {floorPercent: 5}}\n":                    "[]", // without the part it would take its place
		"mode: preview\ncontrol: {batch: {floorPercent: 4}}\ndriftInterval: 2s\n": "[{driftInterval 900ms 2s}]",
	} {
		var d *status.ConfigDiff
		await(t, func() (err error) {
			d, err = statusapi.NewClient(n.o.StatusSocket).ConfigDiff(t.Context(), []byte(text+logFile))
			return err
		})
		if got := fmt.Sprint(d.Keys); got != want || d.Problem != "" {
			t.Errorf("%q would change %s, %q, want %s", text, got, d.Problem, want)
		}
	}
	if d, err := n.s.reload.diff([]byte("mode: of\n")); err != nil || !strings.Contains(d.Problem, "line 1: mode") {
		t.Errorf("a mistake: %+v, %v", d, err)
	}
}
