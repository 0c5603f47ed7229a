package humanize

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		5 * time.Second: "5s", 65 * time.Second: "1m5s", 75 * time.Minute: "1h15m", 24 * time.Hour: "1d0h", 51 * time.Hour: "2d3h",
	} {
		if got := Lasting(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0 CPUs", 1: "1 CPU", 2: "2 CPUs"} {
		if got := Count(n, "CPU"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := Percent(0.456); got != "46%" {
		t.Error(got)
	}
}
