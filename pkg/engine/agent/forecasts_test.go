package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/engine/forecaststate"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
)

// usual returns what a plugin has learned of a pool that used 3 CPUs for two days.
func usual(now time.Time) *predict.Set {
	set := predict.NewSet(predict.DefaultConfig())
	for before := 48 * time.Hour; before > 0; before -= time.Minute {
		set.Add(now.Add(-before), predict.Key{Kind: predict.Pool, Name: "online", Resource: predict.CPU}, 3)
	}
	return set
}

func (h *loopNode) forecastOfOnline() (all []int64) {
	h.loop(func() {
		for _, f := range h.agent.loop.Controllers.Prediction.Report(&h.agent.loop.View.View) {
			if f.Object == "pool online" && f.Trusted {
				all = append(all, int64(f.Soon.CPU))
			}
		}
	})
	return all
}

// What was learned is found after a restart. In mode on, a pool keeps the CPUs that it will need
// while its load is low; as shipped, it does not.
func TestForecastsSurviveARestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"on", "preview"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			s := knobSetup{config: "control: {mode: on, prediction: {mode: " + mode + "}}\n" + apart, options: func(_ *knobNode, o *Options) {
				if err := forecaststate.Write(dir, usual(time.Now()).Encode()); err != nil {
					t.Fatal(err)
				}
				o.StateDir = dir
			}}
			onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
				h.run(service("web/c", 2000), batch("job/c"))
				h.uses["web/c"], h.uses["job/c"] = 0.2, 8
				h.steps(4 * time.Minute)
				if got := h.forecastOfOnline(); len(got) != 1 || got[0] < 3300 || got[0] > 3600 {
					t.Fatalf("%s: forecasts %v", mode, got)
				}
				if size := h.set("web/c").Size(); (size == 6) != (mode == "on") {
					t.Errorf("%s: the pool has %d CPUs; 3.4 are in its band with 6", mode, size)
				}
				h.steps(13 * time.Minute)
				set, err := forecaststate.Read(dir)
				if err != nil || !set.Has(predict.Key{Kind: predict.Node, Resource: predict.Memory}) {
					t.Errorf("%s: what was learned since is not saved: %v", mode, err)
				}
			})
		})
	}
}

// The log reports a damaged file once, and learning begins anew.
func TestDamagedForecasts(t *testing.T) {
	dir := t.TempDir()
	log, told := logtest.NewNullLogger()
	s := knobSetup{config: poolsOn, options: func(_ *knobNode, o *Options) {
		o.Log = log
		data := usual(time.Now()).Encode()
		if err := forecaststate.Write(dir, data[:len(data)/2]); err != nil {
			t.Fatal(err)
		}
		o.StateDir = dir
	}}
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 2000))
		h.steps(16 * time.Minute)
		if got := h.forecastOfOnline(); len(got) != 0 {
			t.Errorf("forecasts %v", got)
		}
		if _, err := forecaststate.Read(dir); err != nil {
			t.Errorf("the file was not replaced: %v", err)
		}
		count := 0
		for _, e := range told.AllEntries() {
			if err, _ := e.Data[logrus.ErrorKey].(error); strings.Contains(e.Message, "forecasts begin anew") && err != nil && strings.Contains(err.Error(), filepath.Join(dir, forecaststate.File)+": its checksum is wrong") {
				count++
			}
		}
		if count != 1 {
			t.Errorf("logged %d times that the file is damaged", count)
		}
		if _, err := os.Stat(filepath.Join(dir, forecaststate.File+".new")); err == nil {
			t.Error("a temporary file stays")
		}
	})
}
