package observe

import (
	"testing"
	"time"
)

func TestByteRate(t *testing.T) {
	t.Parallel()
	type reading struct {
		ms    int
		bytes uint64
		want  BitRate // in kbit/s; -1 for unknown
	}
	for name, c := range map[string]struct {
		lazy     time.Duration
		readings []reading
	}{
		"steady":          {0, []reading{{0, 1000, -1}, {250, 2000, 32}, {500, 2000, 0}, {750, 3000, 32}}},
		"counter resets":  {0, []reading{{0, 1000, -1}, {250, 10, -1}, {500, 1010, 32}}},
		"clock goes back": {0, []reading{{500, 1000, -1}, {250, 2000, -1}, {500, 3000, 32}}},
		"once a second":   {1500 * time.Millisecond, []reading{{0, 0, -1}, {1000, 4000, 32}, {1250, 4000, 32}, {2000, 8000, 32}, {3500, 8000, 32}, {3750, 8000, 0}, {4000, 9000, 32}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ByteRate{Lazy: c.lazy}
			for _, next := range c.readings {
				got, known := r.Add(time.UnixMilli(int64(next.ms)), next.bytes)
				if !known {
					got = -1000
				}
				if got != next.want*1000 {
					t.Errorf("at %d ms: %d, want %d kbit/s", next.ms, got, next.want)
				}
			}
		})
	}
}
