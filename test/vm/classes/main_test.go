package main

import (
	"strings"
	"testing"
	"time"
)

func TestRunRefuses(t *testing.T) {
	good := plan{cost: time.Millisecond, slice: time.Second, repeat: 1, workers: 1}
	for levels, p := range map[string]plan{"0": good, "10,": good, "ten": good, "100": good, "10": {}} {
		if err := run(p, levels); err == nil || !strings.Contains(err.Error(), "-") {
			t.Errorf("levels %q, plan %+v: got error %v, want one that names the flag", levels, p, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{3: {3}, 2: {3, 1}, 5: {9, 5, 1}, 4: {1, 3, 5, 9}} {
		if got := median(values); got != want {
			t.Errorf("median of %v: got %v, want %v", values, got, want)
		}
	}
}
