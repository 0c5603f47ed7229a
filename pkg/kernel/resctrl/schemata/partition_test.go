package schemata

import (
	"fmt"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

func TestResolveInPartition(t *testing.T) {
	t.Parallel()
	intel := func(mask uint64, least int) *Info {
		return &Info{
			Caches:     map[Resource]CacheInfo{L3: {Mask: mask, MinBits: least, IDs: []int{0, 1}}},
			Bandwidths: map[Resource]BandwidthInfo{MB: {Min: 10, Gran: 10, Max: 100, IDs: []int{0, 1}}},
		}
	}
	cdp := &Info{Caches: map[Resource]CacheInfo{
		L3Code: {Mask: 0x3ff, MinBits: 1, IDs: []int{0}}, L3Data: {Mask: 0x3ff, MinBits: 1, IDs: []int{0}},
	}}
	amd := &Info{
		Caches:     map[Resource]CacheInfo{L3: {Mask: 0xffff, MinBits: 1, Sparse: true, IDs: []int{0}}},
		Bandwidths: map[Resource]BandwidthInfo{MB: {Unit: EighthGBps, Gran: 1, Max: 2048, IDs: []int{0}}},
	}
	all := func(from, to int) map[int]Cache { return map[int]Cache{All: {Range: Range{From: from, To: to}}} }
	mask := func(m uint64) map[int]Cache { return map[int]Cache{All: {Range: Range{Mask: m}}} }
	split := map[int]Cache{All: {Code: Range{To: 40}, Data: Range{From: 40, To: 100}}}
	mb := func(b Bandwidth) map[int]Bandwidth { return map[int]Bandwidth{All: b} }
	percent := func(n int) map[int]Bandwidth { return mb(Bandwidth{Percent: n}) }
	rate := func(n int) map[int]Bandwidth { return mb(Bandwidth{MBps: n}) }
	tests := map[string]struct {
		info  *Info
		part  Partition
		class Class
		most  int
		want  string
		err   string
	}{
		"half of 6 ways of 10":       {intel(0x3ff, 1), Partition{L3: all(0, 60)}, Class{L3: all(0, 50)}, 0, "L3:0=7;1=7\n", ""},
		"the other half":             {intel(0x3ff, 1), Partition{L3: all(0, 60)}, Class{L3: all(50, 100)}, 0, "L3:0=38;1=38\n", ""},
		"of the upper partition":     {intel(0x3ff, 1), Partition{L3: all(60, 100)}, Class{L3: all(0, 50)}, 0, "L3:0=c0;1=c0\n", ""},
		"less than a way, at top":    {intel(0x3ff, 1), Partition{L3: all(0, 60)}, Class{L3: all(99, 100)}, 0, "L3:0=20;1=20\n", ""},
		"fewer than needed":          {intel(0x3ff, 2), Partition{L3: all(60, 100)}, Class{L3: all(0, 10)}, 0, "L3:0=c0;1=c0\n", ""},
		"without a share":            {intel(0x3ff, 1), Partition{L3: all(0, 60), MB: percent(80)}, Class{}, 0, "L3:0=3f;1=3f\nMB:0=80;1=80\n", ""},
		"a mask inside":              {intel(0x3ff, 1), Partition{L3: all(0, 60)}, Class{L3: mask(0x30)}, 0, "L3:0=30;1=30\n", ""},
		"a mask outside":             {intel(0x3ff, 1), Partition{L3: all(0, 60)}, Class{L3: mask(0x40)}, 0, "L3:0=3f;1=3f\n", "ways that its partition hasn't: these are 0x3f; it has all of its partition"},
		"half of a mask":             {intel(0x3ff, 1), Partition{L3: mask(0xf0)}, Class{L3: all(50, 100)}, 0, "L3:0=c0;1=c0\n", ""},
		"one cache differs":          {intel(0x3ff, 1), Partition{L3: map[int]Cache{All: {Range: Range{To: 60}}, 1: {Range: Range{To: 20}}}}, Class{L3: all(0, 50)}, 0, "L3:0=7;1=1\n", ""},
		"a cache that isn't":         {intel(0x3ff, 1), Partition{L3: map[int]Cache{4: {Range: Range{To: 60}}}}, Class{L3: all(0, 50)}, 0, "", "no cache with id 4"},
		"a class' cache that isn't":  {intel(0x3ff, 1), Partition{L3: all(0, 60)}, Class{L3: map[int]Cache{4: {Range: Range{To: 60}}}}, 0, "L3:0=3f;1=3f\n", "no cache with id 4"},
		"too small":                  {intel(0xf, 1), Partition{L3: all(30, 40)}, Class{}, 0, "L3:0=4;1=4\n", "its partition's 30-40% is less than the 1 ways that this processor needs; it has 0x4"},
		"no such cache":              {amd, Partition{L2: all(0, 50)}, Class{}, 0, "", "don't have it"},
		"both under CDP":             {cdp, Partition{L3: all(0, 60)}, Class{L3: all(0, 50)}, 0, "L3CODE:0=7\nL3DATA:0=7\n", ""},
		"code and data of both":      {cdp, Partition{L3: all(0, 50)}, Class{L3: split}, 0, "L3CODE:0=3\nL3DATA:0=1c\n", ""},
		"both of code and data":      {cdp, Partition{L3: split}, Class{L3: all(0, 50)}, 0, "L3CODE:0=3\nL3DATA:0=70\n", ""},
		"code and data without CDP":  {intel(0x3ff, 1), Partition{L3: all(0, 60)}, Class{L3: split}, 0, "L3:0=3f;1=3f\n", "option cdp"},
		"a partition without CDP":    {intel(0x3ff, 1), Partition{L3: split}, Class{}, 0, "", "option cdp"},
		"a partition with a gap":     {amd, Partition{L3: mask(0x5)}, Class{L3: all(0, 50)}, 0, "", "its partition's mask 0x5 has a gap"},
		"a class with a gap":         {amd, Partition{L3: mask(0xf)}, Class{L3: mask(0x5)}, 0, "L3:0=5\n", ""},
		"a partition beyond":         {intel(0x3ff, 1), Partition{L3: mask(0xc00)}, Class{}, 0, "", "its partition: mask 0xc00 has ways that the cache hasn't"},
		"50 % of 80 %":               {intel(0x3ff, 1), Partition{MB: percent(80)}, Class{MB: percent(50)}, 0, "MB:0=40;1=40\n", ""},
		"85 % of 80 %, rounded up":   {intel(0x3ff, 1), Partition{MB: percent(80)}, Class{MB: percent(85)}, 0, "MB:0=70;1=70\n", ""},
		"at least the minimum":       {intel(0x3ff, 1), Partition{MB: percent(20)}, Class{MB: percent(10)}, 0, "MB:0=10;1=10\n", ""},
		"50 % of an amount":          {amd, Partition{MB: rate(4000)}, Class{MB: percent(50)}, 0, "MB:0=16\n", ""},
		"an amount":                  {amd, Partition{MB: rate(4000)}, Class{MB: rate(1000)}, 0, "MB:0=8\n", ""},
		"an amount beyond":           {amd, Partition{MB: rate(4000)}, Class{MB: rate(9000)}, 0, "MB:0=32\n", ""},
		"an amount beyond a percent": {amd, Partition{MB: percent(50)}, Class{MB: rate(9000)}, 8000, "MB:0=32\n", ""},
		"a percent of nobody knows":  {amd, Partition{MB: percent(50)}, Class{MB: percent(50)}, 0, "", "set it in the config"},
		"a bad limit":                {intel(0x3ff, 1), Partition{MB: percent(80)}, Class{MB: percent(-1)}, 0, "MB:0=80;1=80\n", "no memory bandwidth; it has all of its partition"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.class.Partition = test.part
			got, err := test.info.Resolve(&test.class, test.most)
			if got.String() != test.want || !says(err, test.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		a, b Range
		want bool
	}{
		"that meet":       {Range{To: 60}, Range{From: 60, To: 100}, false},
		"in part":         {Range{To: 60}, Range{From: 59, To: 100}, true},
		"inside":          {Range{To: 60}, Range{From: 20, To: 30}, true},
		"all":             {Range{}, Range{From: 20, To: 30}, true},
		"all, of a mask":  {Range{Mask: 1}, Range{}, true},
		"masks apart":     {Range{Mask: 0xf}, Range{Mask: 0xf0}, false},
		"masks":           {Range{Mask: 0x1f}, Range{Mask: 0xf0}, true},
		"mask and share":  {Range{Mask: 0x1}, Range{From: 90, To: 100}, true},
		"share and share": {Range{From: 40, To: 50}, Range{To: 40}, false},
	}
	for name, test := range tests {
		if got := test.a.Overlaps(test.b); got != test.want || test.b.Overlaps(test.a) != test.want {
			t.Errorf("%s: %v overlaps %v: %v", name, test.a, test.b, got)
		}
	}
}

// Partitions that don't overlap have no way in common and leave no way unused. Their classes never
// leave them, and get masks that the kernel accepts. A partition of the whole machine changes
// nothing.
func TestPartitionsContain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ways := rapid.IntRange(1, 32).Draw(t, "ways")
		c := CacheInfo{Mask: 1<<ways - 1, MinBits: rapid.IntRange(0, min(3, ways)).Draw(t, "least"), IDs: []int{0}}
		b := BandwidthInfo{Min: uint64(rapid.IntRange(1, 20).Draw(t, "min")), Gran: uint64(rapid.IntRange(1, 25).Draw(t, "gran")), Max: 100, IDs: []int{0}}
		info := &Info{Caches: map[Resource]CacheInfo{L3: c}, Bandwidths: map[Resource]BandwidthInfo{MB: b}}
		part := rapid.Custom(func(t *rapid.T) Range {
			from := rapid.IntRange(0, 99).Draw(t, "from")
			return Range{From: from, To: rapid.IntRange(from+1, 100).Draw(t, "to")}
		})
		cut := rapid.IntRange(1, 99).Draw(t, "cut")
		share := map[int]Cache{All: {Range: part.Draw(t, "class")}}
		limit := map[int]Bandwidth{All: {Percent: rapid.IntRange(1, 100).Draw(t, "limit")}}
		most := map[int]Bandwidth{All: {Percent: rapid.IntRange(1, 100).Draw(t, "most")}}
		var taken uint64
		roomy := true
		for _, r := range []Range{{To: cut}, {From: cut, To: 100}} {
			p := Partition{L3: map[int]Cache{All: {Range: r}}, MB: most}
			whole, err := info.Resolve(&Class{Partition: p}, 0)
			class, err2 := info.Resolve(&Class{Partition: p, L3: share, MB: limit}, 0)
			if (err == nil) != (err2 == nil) {
				t.Fatalf("%v, %v", err, err2)
			}
			roomy = roomy && err == nil
			has := class[L3][0]
			if has&^whole[L3][0] != 0 || c.check(has) != nil {
				t.Errorf("%#x in partition %#x: %v", has, whole[L3][0], c.check(has))
			}
			if class[MB][0] > whole[MB][0] || class[MB][0] < b.Min {
				t.Errorf("bandwidth %d in partition %d", class[MB][0], whole[MB][0])
			}
			if roomy && taken&whole[L3][0] != 0 {
				t.Errorf("partitions cut at %d%% have %#x in common", cut, taken&whole[L3][0])
			}
			taken |= whole[L3][0]
		}
		if taken != c.Mask {
			t.Errorf("partitions cut at %d%% have %#x of %#x", cut, taken, c.Mask)
		}
		full := Partition{Name: "p", L3: map[int]Cache{All: {Range: Range{To: 100}}}, MB: map[int]Bandwidth{All: {Percent: 100}}}
		in, err := info.Resolve(&Class{Partition: full, L3: share, MB: limit}, 0)
		alone, err2 := info.Resolve(&Class{L3: share, MB: limit}, 0)
		if in.String() != alone.String() || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Errorf("%v in all is %q, %v, and alone %q, %v", share, in, err, alone, err2)
		}
	})
}

// Adjacent classes of a partition neither overlap nor leave a gap in it.
func TestRangesTileAPartition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ways := rapid.IntRange(2, 32).Draw(t, "ways")
		c := CacheInfo{Mask: 1<<ways - 1, MinBits: 1, IDs: []int{0}}
		at := rapid.IntRange(0, ways-1).Draw(t, "at")
		whole := uint64(1)<<rapid.IntRange(at+1, ways).Draw(t, "end") - 1<<at
		cut := rapid.IntRange(1, 99).Draw(t, "cut")
		low, err1 := c.maskIn(whole, Range{To: cut})
		high, err2 := c.maskIn(whole, Range{From: cut, To: 100})
		n := bits.OnesCount64(whole)
		if err1 != nil || err2 != nil || low|high != whole || n > 1 && (n*cut+99)/100 < n && low&high != 0 {
			t.Errorf("%d%% of %#x: %#x and %#x, %v, %v", cut, whole, low, high, err1, err2)
		}
	})
}
