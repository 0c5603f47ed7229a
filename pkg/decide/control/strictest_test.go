package control

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The node's own switch and the fleet's make one: off counts before on, and on before auto.
func TestStrictest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	past, soon, later := now.Add(-time.Second), now.Add(time.Hour), now.Add(2*time.Hour)
	for name, c := range map[string]struct{ own, fleet, want Switch }{
		"auto":                           {Switch{}, Switch{}, Switch{}},
		"the fleet is off":               {Switch{}, Switch{To: SwitchOff}, Switch{To: SwitchOff, Fleet: true}},
		"the fleet's off beats on":       {Switch{To: SwitchOn}, Switch{To: SwitchOff, Until: soon}, Switch{To: SwitchOff, Until: soon, Fleet: true}},
		"the node's off beats on":        {Switch{To: SwitchOff}, Switch{To: SwitchOn}, Switch{To: SwitchOff}},
		"the fleet is on":                {Switch{}, Switch{To: SwitchOn, Until: soon}, Switch{To: SwitchOn, Until: soon, Fleet: true}},
		"the fleet's off has ended":      {Switch{To: SwitchOn}, Switch{To: SwitchOff, Until: past}, Switch{To: SwitchOn}},
		"both have ended":                {Switch{To: SwitchOff, Until: now}, Switch{To: SwitchOff, Until: past}, Switch{}},
		"both are off, one evicts":       {Switch{To: SwitchOff}, Switch{To: SwitchOff, Evict: true}, Switch{To: SwitchOff, Evict: true}},
		"both are off, the later end":    {Switch{To: SwitchOff, Until: soon}, Switch{To: SwitchOff, Until: later}, Switch{To: SwitchOff, Until: later}},
		"both are off, one without end":  {Switch{To: SwitchOff, Until: soon}, Switch{To: SwitchOff}, Switch{To: SwitchOff}},
		"both are off, own without end":  {Switch{To: SwitchOff}, Switch{To: SwitchOff, Until: soon}, Switch{To: SwitchOff}},
		"an end that has passed is none": {Switch{To: SwitchOff, Until: soon}, Switch{To: SwitchOff, Evict: true, Until: past}, Switch{To: SwitchOff, Until: soon}},
	} {
		if got := Strictest(now, c.own, c.fleet); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Nothing that the fleet's switch says lets batch work run that the node's own stops, and the
// other way round.
func TestOffIsOff(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	drawn := rapid.Custom(func(t *rapid.T) Switch {
		s := Switch{To: rapid.SampledFrom([]SwitchState{SwitchAuto, SwitchOn, SwitchOff}).Draw(t, "to"), Evict: rapid.Bool().Draw(t, "evict")}
		if rapid.Bool().Draw(t, "ends") {
			s.Until = now.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "until")) * time.Hour)
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		own, fleet := drawn.Draw(t, "own"), drawn.Draw(t, "fleet")
		both := Strictest(now, own, fleet)
		off := own.inForce(now) == SwitchOff || fleet.inForce(now) == SwitchOff
		if (both.inForce(now) == SwitchOff) != off {
			t.Fatalf("%+v and %+v are %+v", own, fleet, both)
		}
	})
}
