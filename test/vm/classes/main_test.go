package main

import (
	"strings"
	"testing"
	"time"
)

func TestRunRefuses(t *testing.T) {
	good := plan{cost: time.Millisecond, slice: time.Second, repeat: 1, workers: 1}
	for _, levels := range []string{"0", "10,", "ten", "100"} {
		if err := run(good, levels); err == nil || !strings.Contains(err.Error(), "-levels") {
			t.Errorf("levels %q: got error %v, want one that names the flag", levels, err)
		}
	}
	if err := run(plan{}, "10"); err == nil || !strings.Contains(err.Error(), "-work") {
		t.Errorf("an empty plan: got error %v, want one that names the flags", err)
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{3: {3}, 2: {3, 1}, 5: {9, 5, 1}, 4: {1, 3, 5, 9}} {
		if got := median(values); got != want {
			t.Errorf("median of %v: got %v, want %v", values, got, want)
		}
	}
}
