package config

import (
	"strings"
	"testing"
)

// A part over the defaults is the configuration that it was taken from, as far as its keys go.
func TestPart(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(`
pools:
  mode: exclusive
  list:
  - {name: critical, band: 20-40%, set: {weight: 200%}}
  - {name: batch, rcf: 0-50%}
control: {mode: on, batch: {thresholdPercent: 80}, pools: {slowWindow: 2m}}
`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Part("pools.list[0].band", "control.batch.thresholdPercent", "control.pools.slowWindow", "control.none", "nothing")
	if err != nil {
		t.Fatal(err)
	}
	part, err := Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	want := Default()
	want.Pools.List, want.Control.Batch.ThresholdPercent, want.Control.Pools.SlowWindow = c.Pools.List, 80, c.Control.Pools.SlowWindow
	if changes := Compare(Values(want), Values(part)); len(changes) != 0 {
		t.Errorf("%+v in\n%s", changes, text)
	}
	if strings.Contains(string(text), "mode") || strings.Contains(string(text), "none") {
		t.Errorf("it has other keys:\n%s", text)
	}
}
