package controlloop

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/memorylimit"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestStatusTellsWhoMayStart checks that the status reports a refusal of new batch work exactly
// when there is one, with the same reason.
func TestStatusTellsWhoMayStart(t *testing.T) {
	for name, c := range map[string]struct {
		set func(l *Loop)
		why string // "" if the pod may start
	}{
		"open":         {func(*Loop) {}, ""},
		"switched off": {func(l *Loop) { l.batchSwitch = control.Switch{To: control.SwitchOff} }, "batch is switched off"},
		"switched off until earlier": {func(l *Loop) {
			l.batchSwitch = control.Switch{To: control.SwitchOff, Until: l.Now().Add(-time.Second)}
		}, ""},
		"closed": {func(l *Loop) { l.View.Batch = control.BatchState{Closed: true, Why: "the window"} }, "the window"},
		"closed in preview": {func(l *Loop) {
			l.Config.Control.Mode = control.Preview
			l.View.Batch = control.BatchState{Closed: true, Why: "the window"}
		}, ""},
		"a rule": {func(l *Loop) { l.ruleRefuses = "rule disk" }, "rule disk"},
		"after an eviction": {func(l *Loop) {
			l.Config.Control.Eviction.RefuseNew = true
			l.refusal = control.Refusal{Until: l.Now().Add(time.Minute), Why: "memory is short"}
		}, "memory is short"},
		"long after an eviction": {func(l *Loop) {
			l.Config.Control.Eviction.RefuseNew = true
			l.refusal = control.Refusal{Until: l.Now(), Why: "memory is short"}
		}, ""},
		"after an eviction, not refusing": {func(l *Loop) {
			l.Config.Control.Eviction.RefuseNew = false
			l.refusal = control.Refusal{Until: l.Now().Add(time.Minute), Why: "memory is short"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Mode, cfg.Control.Mode = config.On, control.On
			n := &node.Node{Config: cfg}
			l := New(t.Context(), n, Parts{Settings: podsettings.New(n, nil, false)}, memorylimit.Host{}, Options{})
			c.set(l)
			err := l.MayStart(&node.Container{Pod: &workload.Pod{UID: "new"}}, &workload.Request{Class: workload.BE})
			s := l.refusalStatus()
			if (err != nil) != (c.why != "") || (s != nil && s.NewBatch) != (c.why != "") {
				t.Errorf("it may start: %v; the status: %+v", err, s)
			} else if err != nil && (!strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), s.Why)) {
				t.Errorf("it may start: %v; the status: %s", err, s.Why)
			}
			if err := l.MayStart(&node.Container{Pod: &workload.Pod{UID: "new"}}, &workload.Request{Class: workload.LS}); err != nil {
				t.Errorf("a service: %v", err)
			}
		})
	}
}

// TestStatusShowsTheCoolDown: what is sold can fall before the eviction begins, also where the
// node itself refuses no new batch work.
func TestStatusShowsTheCoolDown(t *testing.T) {
	cfg := config.Default()
	cfg.Mode, cfg.Control.Mode, cfg.Control.Eviction.By = config.On, control.On, control.EvictKubernetes
	n := &node.Node{Config: cfg}
	l := New(t.Context(), n, Parts{Settings: podsettings.New(n, nil, false)}, memorylimit.Host{}, Options{EvictorProblem: func() string { return "nobody is there" }})
	if e := l.evictionStatus(); !e.CoolDownEndsAt.IsZero() || e.Problem != "nobody is there" {
		t.Errorf("without an eviction: %+v", e)
	}
	until := l.Now().Add(time.Minute)
	l.refusal = control.Refusal{Until: until, Why: "pod ns/p is being evicted"}
	if e := l.evictionStatus(); e.CoolDownEndsAt != until || e.CoolDownWhy != "pod ns/p is being evicted" {
		t.Errorf("while a pod is evicted: %+v", e)
	}
}
