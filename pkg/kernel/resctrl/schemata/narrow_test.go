package schemata

import (
	"math/bits"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestNarrow(t *testing.T) {
	t.Parallel()
	l3 := func(r Range) map[int]Cache { return map[int]Cache{All: {Range: r}} }
	for name, test := range map[string]struct {
		class Class
		want  Class
	}{
		"nothing given":   {Class{}, Class{L2: map[int]Cache{}, L3: map[int]Cache{}, MB: map[int]Bandwidth{}, SMBA: map[int]Bandwidth{}}},
		"half of a range": {Class{L3: l3(Range{From: 20, To: 60}), MB: map[int]Bandwidth{All: {Percent: 40}}}, Class{L3: l3(Range{From: 20, To: 40}), MB: map[int]Bandwidth{All: {Percent: 20}}}},
		"half of a mask":  {Class{L3: l3(Range{Mask: 0xf8}), MB: map[int]Bandwidth{1: {MBps: 1}}}, Class{L3: l3(Range{Mask: 0x38}), MB: map[int]Bandwidth{1: {MBps: 1}}}},
		"code and data": {
			Class{L3: map[int]Cache{0: {Code: Range{To: 10}, Data: Range{From: 10, To: 20}}}},
			Class{L3: map[int]Cache{0: {Code: Range{To: 5}, Data: Range{From: 10, To: 15}}}},
		},
	} {
		got := Narrow(test.class, 50, 50)
		if len(got.L3) != len(test.want.L3) || !reflect.DeepEqual(got.L3, orEmpty(test.want.L3)) || len(test.want.MB) > 0 && !reflect.DeepEqual(got.MB, test.want.MB) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func orEmpty(m map[int]Cache) map[int]Cache {
	if m == nil {
		return map[int]Cache{}
	}
	return m
}

// A narrowed share is a non-empty run of adjacent ways within the original share.
func TestNarrowStaysInside(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		percent := rapid.IntRange(1, 100).Draw(t, "percent")
		low, n := rapid.IntRange(0, 15).Draw(t, "low"), rapid.IntRange(1, 16).Draw(t, "ways")
		mask := Range{Mask: (1<<n - 1) << low}.lowest(percent).Mask
		if mask == 0 || mask&^((1<<n-1)<<low) != 0 || bits.OnesCount64(mask) != bits.Len64(mask)-bits.TrailingZeros64(mask) {
			t.Fatalf("%#x of %d ways from %d", mask, n, low)
		}
		from := rapid.IntRange(0, 99).Draw(t, "from")
		to := rapid.IntRange(from+1, 100).Draw(t, "to")
		r := Range{From: from, To: to}.lowest(percent)
		if r.From != from || r.To <= from || r.To > to {
			t.Fatalf("%v of %d-%d", r, from, to)
		}
	})
}
