package workload

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestParseTier(t *testing.T) {
	t.Parallel()
	for _, tier := range []Tier{TierFree, TierBatch, TierMid} {
		var read Tier
		if err := read.UnmarshalText([]byte(tier.String())); err != nil || read != tier {
			t.Errorf("%s is read as %s, %v", tier, read, err)
		}
	}
	for _, text := range []string{"", "Mid", "koord-mid", "prod", "mid "} {
		if got, err := ParseTier(text); err == nil || got != TierBatch || err.Error() != "must be mid, batch or free" {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

func TestTierOfPriority(t *testing.T) {
	t.Parallel()
	for priority, want := range map[int32]string{
		3000: "free", 3999: "free", 5000: "batch", 5999: "batch", 7000: "mid", 7999: "mid",
		-1500: "free", -1000: "batch", -500: "batch", -250: "mid",
		0: "", -1: "", 2999: "", 4000: "", 4999: "", 6000: "", 6999: "", 8000: "", 9000: "", math.MaxInt32: "", math.MinInt32: "",
	} {
		got, known := TierOfPriority(priority)
		if known != (want != "") || known && got.String() != want || !known && got != TierBatch {
			t.Errorf("priority %d: %s, %v, want %q", priority, got, known, want)
		}
	}
}

func TestTierWeight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tier      Tier
		grant     MilliCPU
		ungranted int
		want      int64
	}{
		{TierBatch, 2000, 0, 2000}, {TierMid, 2000, 0, 8000}, {TierFree, 2000, 0, 200},
		{TierBatch, 0, 1, 100}, {TierMid, 0, 1, 400}, {TierFree, 0, 1, 10},
		{TierBatch, 0, 4, 25}, {TierFree, 0, 1000, 1}, {TierBatch, -5, -5, 100}, {TierMid, math.MaxInt64, 0, 4_000_000},
	} {
		if got := c.tier.Weight(c.grant, c.ungranted); got != c.want {
			t.Errorf("%s with a grant of %d, one of %d: %d, want %d", c.tier, c.grant, c.ungranted, got, c.want)
		}
	}
}

// A higher tier and a larger grant never weigh less, and pods without a grant together no more than one
// of them, as far as whole numbers go.
func TestTierWeightIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tier := Tier(rapid.IntRange(int(TierFree), int(TierMid)).Draw(t, "tier"))
		grants := rapid.Int64Range(-10, 1<<40)
		a, b := MilliCPU(grants.Draw(t, "grant")), MilliCPU(grants.Draw(t, "other grant"))
		a, b = min(a, b), max(a, b)
		if tier.Weight(a, 0) > tier.Weight(b, 0) || tier.Weight(a, 0) < 1 {
			t.Fatalf("%s: %d weighs %d, %d weighs %d", tier, a, tier.Weight(a, 0), b, tier.Weight(b, 0))
		}
		if tier < TierMid && tier.Weight(a, 0) > (tier+1).Weight(a, 0) {
			t.Fatalf("%d weighs more in %s than in %s", a, tier, tier+1)
		}
		n := rapid.IntRange(1, 2000).Draw(t, "pods")
		if together := int64(n) * tier.Weight(0, n); together > max(tier.Weight(0, 1), int64(n)) {
			t.Fatalf("%d pods without a grant weigh %d, one weighs %d", n, together, tier.Weight(0, 1))
		}
	})
}
