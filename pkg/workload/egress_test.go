package workload

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestEgressOf(t *testing.T) {
	t.Parallel()
	const mega = 1_000_000
	for name, c := range map[string]struct {
		of         Egress
		link, want int64
	}{
		"none":                         {Egress{}, 1000 * mega, 0},
		"bits":                         {Egress{Bits: 200 * mega}, 1000 * mega, 200 * mega},
		"bits, no link":                {Egress{Bits: 200 * mega}, 0, 200 * mega},
		"bits above the link":          {Egress{Bits: 2000 * mega}, 1000 * mega, 2000 * mega},
		"a percentage":                 {Egress{Percent: 20}, 1000 * mega, 200 * mega},
		"all of the link":              {Egress{Percent: 100}, 1_234_567, 1_234_567},
		"a percentage of no link":      {Egress{Percent: 20}, 0, 0},
		"a percentage of a wrong link": {Egress{Percent: 20}, -1, 0},
		"a percentage, rounded down":   {Egress{Percent: 33}, 10_000_001, 3_300_000},
		"a percentage of a slow link":  {Egress{Percent: 1}, mega, LeastEgress},
		"a percentage of the most":     {Egress{Percent: 99}, math.MaxInt64, math.MaxInt64/100*99 + 6},
		"both, bits below":             {Egress{Bits: 100 * mega, Percent: 20}, 1000 * mega, 100 * mega},
		"both, percentage below":       {Egress{Bits: 300 * mega, Percent: 20}, 1000 * mega, 200 * mega},
		"both, no link":                {Egress{Bits: 300 * mega, Percent: 20}, 0, 300 * mega},
	} {
		if got := c.of.Of(c.link); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// On every link, the ceiling of a pod is the smallest of its containers'.
func TestEgressTighten(t *testing.T) {
	t.Parallel()
	ceiling := rapid.Custom(func(t *rapid.T) Egress {
		var e Egress
		if rapid.Bool().Draw(t, "in bits") {
			e.Bits = rapid.Int64Range(LeastEgress, MostEgress).Draw(t, "bits")
		}
		if rapid.Bool().Draw(t, "in percent") {
			e.Percent = rapid.IntRange(1, 100).Draw(t, "percent")
		}
		return e
	})
	rapid.Check(t, func(t *rapid.T) {
		link := rapid.Int64Range(0, 2*MostEgress).Draw(t, "link")
		var pod Egress
		var smallest int64
		for range rapid.IntRange(0, 4).Draw(t, "containers") {
			container := ceiling.Draw(t, "container")
			pod.Tighten(container)
			if of := container.Of(link); of > 0 && (smallest == 0 || of < smallest) {
				smallest = of
			}
		}
		if got := pod.Of(link); got != smallest {
			t.Fatalf("%+v of %d is %d, want %d", pod, link, got, smallest)
		}
	})
}
