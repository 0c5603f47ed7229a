package selling

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
)

// acting is the status of a node that sells 4 CPUs and 4 GiB.
func acting() *status.Status {
	return &status.Status{
		Mode: status.ModeOn, Runtime: status.Runtime{Connected: true},
		Loop: &status.Loop{
			MeasuredAt: time.Unix(1, 0), Interval: time.Second,
			Controllers: []status.Controller{{Name: "pools", Mode: control.Off}, {Name: "batch", Mode: control.On}, {Name: "memory", Mode: control.On}},
			Batch:       status.Batch{State: status.BatchOpen},
			Offer:       control.Offer{Known: true, ShortTerm: control.Amount{CPU: 4000, MemoryBytes: 4 << 30}, LongTerm: control.Amount{CPU: 2000, MemoryBytes: 2 << 30}},
		},
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change    func(*status.Status)
		notActing string
		closed    string
		short     string
		cpu       int64
	}{
		"it sells": {func(*status.Status) {}, "", "", "", 4000},
		"exclusive pools": {func(s *status.Status) {
			s.Loop.Controllers[0].Mode, s.Loop.Controllers[1].Mode = control.On, control.Off
		}, "", "", "", 4000},
		"preview":               {func(s *status.Status) { s.Mode = status.ModePreview }, Preview, "", "", 4000},
		"no loop":               {func(s *status.Status) { s.Loop = nil }, LoopOff, "", "", 0},
		"a loop that fails":     {func(s *status.Status) { s.Loop.Problem = "no cgroups" }, LoopOff, "", "", 4000},
		"the loop in preview":   {func(s *status.Status) { s.Loop.Controllers[1].Mode = control.Preview }, Preview, "", "", 4000},
		"memory is not bounded": {func(s *status.Status) { s.Loop.Controllers[2].Mode = control.Off }, LoopOff, "", "", 4000},
		"no controllers":        {func(s *status.Status) { s.Loop.Controllers = nil }, LoopOff, "", "", 4000},
		"switched off": {func(s *status.Status) {
			s.Loop.Batch.State, s.Loop.Batch.Switch.State = status.BatchClosed, control.SwitchOff
		}, "", Switch, "", 4000},
		"the fleet is switched off": {func(s *status.Status) {
			s.Loop.Batch.State, s.Loop.Batch.FleetSwitch = status.BatchClosed, &status.Switch{State: control.SwitchOff}
		}, "", Switch, "", 4000},
		"the fleet was switched off until earlier": {func(s *status.Status) {
			s.Loop.Batch.State, s.Loop.Batch.FleetSwitch = status.BatchClosed, &status.Switch{State: control.SwitchOff, EndsAt: s.Loop.MeasuredAt}
		}, "", Window, "", 4000},
		"a fleet's switch with a mistake": {func(s *status.Status) {
			s.Loop.Batch.FleetSwitch = &status.Switch{Problem: "ConfigMap sluice-switch: the key batch is missing"}
		}, "", "", ConfigRefused, 4000},
		"a window": {func(s *status.Status) { s.Loop.Batch.State = status.BatchNoNew }, "", Window, "", 4000},
		"a forecast": {func(s *status.Status) {
			s.Loop.Batch.State, s.Loop.Notices.Active = status.BatchNoNew, &control.Notice{Kind: control.NoticeSqueeze, Cause: control.NoticeByForecast}
		}, "", Forecast, "", 4000},
		"a window that evicts": {func(s *status.Status) { s.Loop.Batch.State = status.BatchEvicting }, "", Window, "", 4000},
		"a window that squeezes": {func(s *status.Status) {
			s.Loop.Batch.State, s.Loop.Batch.KeptPercent = status.BatchSqueezed, 25
		}, "", "", "", 1000},
		"bounds of services": {func(s *status.Status) { s.Loop.Batch.BoundsPercent = 70 }, "", "", "", 2800},
		"a cool-down": {func(s *status.Status) {
			s.Loop.Refusal = &status.Refusal{NewBatch: true, EndsAt: time.Unix(9, 0)}
		}, "", CoolDown, "", 4000},
		"a rule":               {func(s *status.Status) { s.Loop.Refusal = &status.Refusal{NewBatch: true} }, "", Rule, "", 4000},
		"one pod is refused":   {func(s *status.Status) { s.Loop.Refusal = &status.Refusal{PodUIDs: []string{"1"}} }, "", "", "", 4000},
		"an unknown offer":     {func(s *status.Status) { s.Loop.Offer.Known = false }, "", OfferUnknown, "", 4000},
		"a refused config":     {func(s *status.Status) { s.Config.Problem = "line 1" }, "", "", ConfigRefused, 4000},
		"a static CPU manager": {func(s *status.Status) { s.Neighbours = []peers.Neighbour{{Kind: peers.CPUManager, Fix: "x"}} }, "", "", StaticCPUManager, 4000},
	} {
		s := acting()
		test.change(s)
		r, err := NewReport(s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, c := range []struct {
			got  *Reason
			want string
		}{{r.NotActing, test.notActing}, {r.Closed, test.closed}, {r.Shortcomings, test.short}} {
			got := ""
			if c.got != nil {
				got = c.got.Word
				if c.got.Text == "" || strings.HasSuffix(c.got.Text, "..") || !strings.HasSuffix(c.got.Text, ".") {
					t.Errorf("%s: %q is no sentence", name, c.got.Text)
				}
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
		if r.Offer[BatchCPU] != test.cpu || !r.Connected {
			t.Errorf("%s: offers %v", name, r.Offer)
		}
	}
}

// A loop that measures seldom does not stall between two measurements.
func TestSlowLoop(t *testing.T) {
	t.Parallel()
	s := acting()
	s.Loop.Interval = time.Minute
	if r, err := NewReport(s); err != nil || r.Stall != 3*time.Minute {
		t.Errorf("%+v, %v", r, err)
	}
}

// A status with amounts that cannot be counts for nothing, and the error names them.
func TestImpossibleOffers(t *testing.T) {
	t.Parallel()
	for _, amount := range []int64{-1, Most + 1} {
		s := acting()
		s.Loop.Offer.LongTerm.MemoryBytes = amount
		if r, err := NewReport(s); err == nil || !strings.Contains(err.Error(), "loop.offer") {
			t.Errorf("%d: %+v, %v", amount, r, err)
		}
	}
}

func TestDialects(t *testing.T) {
	t.Parallel()
	for _, d := range Dialects() {
		if got, err := ParseDialect(string(d)); err != nil || got != d {
			t.Errorf("%s: %s, %v", d, got, err)
		}
		if names := d.Names(); len(names) != 4 && (d != Katalyst || len(names) != 2) {
			t.Errorf("%s has the names %v", d, names)
		}
	}
	if _, err := ParseDialect("volcano"); err == nil || !strings.Contains(err.Error(), "koordinator") {
		t.Errorf("volcano: %v", err)
	}
}

// Whatever a status says, a seller neither panics nor publishes an impossible amount.
func FuzzReport(f *testing.F) {
	data, err := json.Marshal(acting())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Add(`{"mode":"preview","loop":{"offer":{"known":true,"shortTerm":{"milliCPU":-1}},"batch":{"state":"squeezed","keptPercent":-9}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s status.Status
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		r, err := NewReport(&s)
		if err != nil {
			return
		}
		w := newWorld(r)
		out := w.seller.Step(&w.in)
		if out.Publish == nil {
			return
		}
		for kind, amount := range out.Publish.Amounts {
			if amount < 0 || amount > Most {
				t.Errorf("kind %d: %d of %s", kind, amount, text)
			}
		}
	})
}
