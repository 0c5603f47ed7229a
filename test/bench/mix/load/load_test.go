package load

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(0, 50).Draw(t, "d")) }), 1, 200).Draw(t, "samples")
		permille := rapid.IntRange(1, 1000).Draw(t, "permille")
		got := Quantile(slices.Clone(samples), float64(permille)/1000)
		atMost, less := 0, 0
		for _, s := range samples {
			if s <= got {
				atMost++
			}
			if s < got {
				less++
			}
		}
		if !slices.Contains(samples, got) || atMost*1000 < permille*len(samples) || less*1000 >= permille*len(samples) {
			t.Fatalf("the %d per mille of %v is %v", permille, samples, got)
		}
	})
	if got := Quantile(nil, 0.99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	phases := append([]Phase{{Rate: 0, For: time.Second}}, Steps(100, 1000, time.Second, 4500*time.Millisecond)...)
	due := Schedule(phases, 7)
	if !slices.IsSorted(due) || !slices.Equal(due, Schedule(phases, 7)) || slices.Equal(due, Schedule(phases, 8)) {
		t.Fatal("a schedule is in order, and follows from its seed")
	}
	var perSecond [6]int
	for _, at := range due {
		perSecond[at/time.Second]++
	}
	for second, want := range [6]int{0, 100, 1000, 100, 1000, 50} {
		if got := perSecond[second]; got < want*6/10 || got > want*14/10 {
			t.Errorf("second %d has %d requests, want about %d", second, got, want)
		}
	}
}
