package status

import (
	"slices"
	"testing"
)

func TestPartOf(t *testing.T) {
	t.Parallel()
	c := Config{Parts: []ConfigPart{{Name: "base", Keys: []string{"pools.list", "control.burst"}}, {Name: "night", Keys: []string{"control.windows", "control.batch.thresholdPercent"}}, {Name: "refused", Problem: "no"}}}
	for key, want := range map[string]string{
		"pools.list": "base", "pools.list.band": "base", "pools": "", "pools.mode": "",
		"control.burst.maxPercent": "base", "control.windows": "night", "control.window": "",
		"control.batch.thresholdPercent": "night", "control.batch.thresholdPercents": "", "control.batch": "", "control": "",
	} {
		if got := c.PartOf(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	for key, want := range map[string][]string{
		"control": {"control.windows", "control.batch.thresholdPercent"}, "control.batch": {"control.batch.thresholdPercent"},
		"control.windows.from": {"control.windows"}, "control.window": nil, "pools": nil,
	} {
		if got := c.Parts[1].Concerns(key); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}
