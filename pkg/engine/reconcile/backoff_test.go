package reconcile

import (
	"testing"
	"time"
)

// TestBackoff checks that a change once a minute is always repaired at once, and that changes
// every second are repaired at growing intervals.
func TestBackoff(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	var minutely, secondly Backoff
	for minute := range 100 {
		now := start.Add(time.Duration(minute) * time.Minute)
		if minutely.Waits(now) || minutely.Contested(now) {
			t.Fatalf("a change once a minute counts as a fight after %d", minute)
		}
		minutely.add(now, repairs())
	}
	counted := 0
	for second := range 3600 {
		if now := start.Add(time.Duration(second) * time.Second); !secondly.Waits(now) {
			secondly.add(now, repairs())
			counted++
		}
	}
	if counted < 10 || counted > 20 {
		t.Errorf("a change every second is repaired %d times in an hour", counted)
	}
}
