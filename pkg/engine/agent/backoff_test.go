package agent

import (
	"testing"
	"time"
)

// TestBackoff: who writes once a minute is repaired at once for ever, who
// writes every second is waited for longer and longer.
func TestBackoff(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	var minutely, secondly backoff
	for minute := range 100 {
		now := start.Add(time.Duration(minute) * time.Minute)
		if minutely.waits(now) || minutely.often(now, fights()) {
			t.Fatalf("a change once a minute counts as a fight after %d", minute)
		}
		minutely.again(now, fights())
	}
	repairs := 0
	for second := range 3600 {
		if now := start.Add(time.Duration(second) * time.Second); !secondly.waits(now) {
			secondly.again(now, fights())
			repairs++
		}
	}
	if repairs < 10 || repairs > 20 {
		t.Errorf("a change every second is repaired %d times in an hour", repairs)
	}
}
