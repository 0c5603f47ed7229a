package sim

import (
	"testing"
	"time"
)

// A node's day takes 24 times the reported time. The floor is the node's model alone, without an
// agent.
func BenchmarkHour(b *testing.B) {
	for _, p := range Policies() {
		b.Run(string(p), func(b *testing.B) {
			text, err := Text("daily-tide")
			if err != nil {
				b.Fatal(err)
			}
			s := parsed(b, string(text))
			s.Duration = time.Hour
			for b.Loop() {
				if _, err := Run(b.Context(), s, p, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
