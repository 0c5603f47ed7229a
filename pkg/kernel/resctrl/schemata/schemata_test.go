package schemata

import (
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMaskOf(t *testing.T) {
	t.Parallel()
	ways := func(mask uint64, least int) CacheInfo { return CacheInfo{Mask: mask, MinBits: least} }
	sparse := CacheInfo{Mask: 0xffff, MinBits: 1, Sparse: true}
	tests := map[string]struct {
		cache CacheInfo
		part  Range
		want  uint64
		err   string
	}{
		"10-80 of 10 ways":          {ways(0x3ff, 1), Range{From: 10, To: 80}, 0xfe, ""},
		"10-50 of 11 ways":          {ways(0x7ff, 1), Range{From: 10, To: 50}, 0x3c, ""},
		"0-30 of 10 ways":           {ways(0x3ff, 1), Range{From: 0, To: 30}, 0x7, ""},
		"all":                       {ways(0x7ff, 1), Range{}, 0x7ff, ""},
		"0-100":                     {ways(0x7ff, 1), Range{To: 100}, 0x7ff, ""},
		"less than a way":           {ways(0xf, 1), Range{From: 30, To: 40}, 0x4, ""},
		"less than a way, at top":   {ways(0xf, 1), Range{From: 99, To: 100}, 0x8, ""},
		"fewer than needed":         {ways(0xfffff, 2), Range{From: 0, To: 5}, 0x3, ""},
		"fewer than needed, at top": {ways(0xfffff, 2), Range{From: 95, To: 100}, 0xc0000, ""},
		"32 ways":                   {ways(0xffffffff, 1), Range{To: 100}, 0xffffffff, ""},
		"mask":                      {ways(0x7ff, 1), Range{Mask: 0x70}, 0x70, ""},
		"mask beyond":               {ways(0x7ff, 1), Range{Mask: 0x1800}, 0x1800, "ways that the cache hasn't"},
		"mask with a gap":           {ways(0x7ff, 1), Range{Mask: 0x5}, 0x5, "has a gap"},
		"mask with a gap, allowed":  {sparse, Range{Mask: 0x5}, 0x5, ""},
		"mask too small":            {ways(0xfffff, 2), Range{Mask: 0x1}, 0x1, "too few ways"},
		"upside down":               {ways(0x7ff, 1), Range{From: 80, To: 10}, 0, "no part"},
		"too much":                  {ways(0x7ff, 1), Range{From: 80, To: 110}, 0, "no part"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.cache.MaskOf(test.part)
			if got != test.want || !says(err, test.err) {
				t.Errorf("got %#x, %v; want %#x, %q", got, err, test.want, test.err)
			}
		})
	}
}

func says(err error, text string) bool {
	if text == "" || err == nil {
		return text == "" && err == nil
	}
	return strings.Contains(err.Error(), text)
}

// Adjacent ranges of a cache neither overlap nor leave a gap, and the kernel accepts every mask.
func TestRangesTile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ways := rapid.IntRange(1, 32).Draw(t, "ways")
		c := CacheInfo{Mask: 1<<ways - 1, MinBits: rapid.IntRange(0, min(2, ways)).Draw(t, "least")}
		cut := rapid.IntRange(1, 99).Draw(t, "cut")
		low, err1 := c.MaskOf(Range{To: cut})
		high, err2 := c.MaskOf(Range{From: cut, To: 100})
		if err1 != nil || err2 != nil || c.check(low) != nil || c.check(high) != nil {
			t.Fatalf("%#x and %#x: %v, %v", low, high, err1, err2)
		}
		if low|high != c.Mask {
			t.Errorf("0-%d%% and %d-100%% of %#x are %#x and %#x, which leaves a gap", cut, cut, c.Mask, low, high)
		}
		least := max(1, c.MinBits)
		if at := (ways*cut + 99) / 100; low&high != 0 && at >= least && ways-at >= least {
			t.Errorf("0-%d%% and %d-100%% of %#x are %#x and %#x, which overlap", cut, cut, c.Mask, low, high)
		}
	})
}

func TestBandwidth(t *testing.T) {
	t.Parallel()
	intel := BandwidthInfo{Unit: Percent, Min: 10, Gran: 10, Max: 100}
	mbps := BandwidthInfo{Unit: MiBps, Min: 10, Gran: 10, Max: maxMiBps}
	amd := BandwidthInfo{Unit: EighthGBps, Gran: 1, Max: 2048}
	tests := map[string]struct {
		info BandwidthInfo
		want Bandwidth
		most int // the machine's bandwidth in MB/s
		out  uint64
		err  string
	}{
		"85 at granularity 10":     {intel, Bandwidth{Percent: 85}, 0, 90, ""},
		"least":                    {intel, Bandwidth{Percent: 3}, 0, 10, ""},
		"96 is rounded to all":     {intel, Bandwidth{Percent: 96}, 0, 100, ""},
		"least off the steps":      {BandwidthInfo{Min: 5, Gran: 10, Max: 100}, Bandwidth{Percent: 1}, 0, 10, ""},
		"all":                      {intel, Bandwidth{}, 0, 100, ""},
		"rate in percent":          {intel, Bandwidth{MBps: 5000}, 20000, 30, ""},
		"rate above the machine's": {intel, Bandwidth{MBps: 50000}, 20000, 100, ""},
		"rate, unknown machine":    {intel, Bandwidth{MBps: 5000}, 0, 0, "can't be turned into percent"},
		"MiB/s":                    {mbps, Bandwidth{MBps: 5003}, 0, 5003, ""},
		"percent in MiB/s":         {mbps, Bandwidth{Percent: 33}, 10000, 3300, ""},
		"percent, unknown":         {mbps, Bandwidth{Percent: 33}, 0, 0, "MiB/s"},
		"all in MiB/s":             {mbps, Bandwidth{Percent: 100}, 0, 4294967295, ""},
		"2 GB/s on AMD":            {amd, Bandwidth{MBps: 2000}, 0, 16, ""},
		"rounded up on AMD":        {amd, Bandwidth{MBps: 2001}, 0, 17, ""},
		"percent on AMD":           {amd, Bandwidth{Percent: 50}, 100000, 400, ""},
		"percent on AMD, unknown":  {amd, Bandwidth{Percent: 50}, 0, 0, "1/8 GB/s"},
		"all on AMD":               {amd, Bandwidth{Percent: 100}, 0, 2048, ""},
		"more than AMD can say":    {amd, Bandwidth{MBps: 1000000}, 0, 2048, ""},
		"negative":                 {intel, Bandwidth{Percent: -1}, 0, 0, "no memory bandwidth"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.info.Value(test.want, test.most)
			if got != test.out || !says(err, test.err) {
				t.Errorf("got %d, %v; want %d, %q", got, err, test.out, test.err)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	plain := Info{
		Caches:     map[Resource]CacheInfo{L3: {Mask: 0x7ff, MinBits: 1, IDs: []int{0, 4}}},
		Bandwidths: map[Resource]BandwidthInfo{MB: {Min: 10, Gran: 10, Max: 100, IDs: []int{0, 4}}},
	}
	cdp := Info{Caches: map[Resource]CacheInfo{
		L3Code: {Mask: 0x7ff, MinBits: 1, IDs: []int{0}}, L3Data: {Mask: 0x7ff, MinBits: 1, IDs: []int{0}},
	}}
	amd := Info{Bandwidths: map[Resource]BandwidthInfo{
		MB: {Unit: EighthGBps, Gran: 1, Max: 2048, IDs: []int{0, 4}}, SMBA: {Unit: EighthGBps, Gran: 1, Max: 2048, IDs: []int{0, 4}},
	}}
	part := func(from, to int) Cache { return Cache{Range: Range{From: from, To: to}} }
	split := Cache{Code: Range{To: 20}, Data: Range{From: 20, To: 100}}
	rate := map[int]Bandwidth{All: {MBps: 1000}, 4: {MBps: 2000}}
	tests := map[string]struct {
		info  *Info
		class Class
		want  string
		err   string
	}{
		"nothing":                {&plain, Class{}, "", ""},
		"every cache":            {&plain, Class{L3: map[int]Cache{All: part(0, 30)}}, "L3:0=f;4=f\n", ""},
		"one cache":              {&plain, Class{L3: map[int]Cache{4: part(0, 30)}}, "L3:0=7ff;4=f\n", ""},
		"one and the rest":       {&plain, Class{L3: map[int]Cache{All: part(0, 50), 4: part(50, 100)}}, "L3:0=3f;4=7c0\n", ""},
		"cache and bandwidth":    {&plain, Class{L3: map[int]Cache{All: part(0, 30)}, MB: map[int]Bandwidth{All: {Percent: 41}}}, "L3:0=f;4=f\nMB:0=50;4=50\n", ""},
		"a cache that isn't":     {&plain, Class{L3: map[int]Cache{1: part(0, 30)}, MB: map[int]Bandwidth{All: {Percent: 40}}}, "MB:0=40;4=40\n", "no cache with id 1"},
		"a kind that isn't":      {&plain, Class{Name: "be", L2: map[int]Cache{All: part(0, 30)}, L3: map[int]Cache{All: part(0, 30)}}, "L3:0=f;4=f\n", "RDT class be, L2"},
		"code and data":          {&cdp, Class{L3: map[int]Cache{All: split}}, "L3CODE:0=7\nL3DATA:0=7f8\n", ""},
		"both the same":          {&cdp, Class{L3: map[int]Cache{All: part(0, 50)}}, "L3CODE:0=3f\nL3DATA:0=3f\n", ""},
		"code and data, no CDP":  {&plain, Class{L3: map[int]Cache{All: split}}, "", "takes a mount with the option cdp"},
		"a fallback for no CDP":  {&plain, Class{L3: map[int]Cache{All: {Range: Range{To: 50}, Code: split.Code, Data: split.Data}}}, "L3:0=3f;4=3f\n", ""},
		"AMD":                    {&amd, Class{MB: rate, SMBA: rate}, "MB:0=8;4=16\nSMBA:0=8;4=16\n", ""},
		"bad data beside code":   {&cdp, Class{L3: map[int]Cache{All: {Code: Range{To: 20}, Data: Range{Mask: 5}}}}, "", "has a gap"},
		"no bandwidth limit":     {&cdp, Class{MB: rate}, "", "MB"},
		"AMD without its maxima": {&amd, Class{MB: map[int]Bandwidth{All: {Percent: 50}}}, "", "set it in the config"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.info.Resolve(&test.class, 0)
			if got.String() != test.want || !says(err, test.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}

func TestParseInfo(t *testing.T) {
	t.Parallel()
	// These are the files of a kernel before 6.7, without sparse_masks.
	files := map[string]string{
		"L3/num_closids": "16\n", "L3/cbm_mask": "7ff\n", "L3/min_cbm_bits": "1\n", "L3/shareable_bits": "600\n",
		"MB/num_closids": "8\n", "MB/min_bandwidth": "10\n", "MB/bandwidth_gran": "10\n", "MB/delay_linear": "1\n",
		"L3_MON/num_rmids": "176\n", "L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_total_bytes_config\n",
	}
	reader := func(change map[string]string) func(string) (string, bool) {
		return func(file string) (string, bool) {
			if text, ok := change[file]; ok {
				return text, text != ""
			}
			text, ok := files[file]
			return text, ok
		}
	}
	root := Schemata{L3: {0: 0x7ff, 8: 0x7ff}, MB: {0: 100, 8: 100}}
	info, err := ParseInfo(reader(nil), root, false)
	if c := info.Caches[L3]; err != nil || info.CLOSIDs != 8 || info.RMIDs != 176 || len(info.Events) != 3 ||
		c.Mask != 0x7ff || c.Shareable != 0x600 || c.Sparse || len(c.IDs) != 2 || c.IDs[1] != 8 {
		t.Errorf("got %+v, %v", info, err)
	}
	if b := info.Bandwidths[MB]; b.Unit != Percent || b.Max != 100 || b.Min != 10 || b.Gran != 10 {
		t.Errorf("bandwidth is %+v", b)
	}
	if info, err = ParseInfo(reader(nil), root, true); err != nil || info.Bandwidths[MB].Unit != MiBps {
		t.Errorf("with mba_MBps: %+v, %v", info.Bandwidths, err)
	}
	amd := map[string]string{"MB/delay_linear": "0", "MB/min_bandwidth": "0", "MB/bandwidth_gran": "1"}
	root[MB] = map[int]uint64{0: 4096, 8: 16}
	if info, err = ParseInfo(reader(amd), root, false); err != nil || info.Bandwidths[MB].Unit != EighthGBps || info.Bandwidths[MB].Max != 4096 {
		t.Errorf("AMD: %+v, %v", info.Bandwidths, err)
	}
	for name, change := range map[string]map[string]string{
		"text for a number": {"MB/min_bandwidth": "ten"}, "no mask": {"L3/cbm_mask": "0"},
		"a missing file": {"L3/min_cbm_bits": ""}, "a mask with a gap": {"L3/cbm_mask": "5"},
	} {
		if info, err := ParseInfo(reader(change), root, false); err == nil {
			t.Errorf("%s is taken: %+v", name, info)
		}
	}
	if info, err = ParseInfo(func(string) (string, bool) { return "", false }, Schemata{}, false); err != nil || info.CLOSIDs != 0 {
		t.Errorf("nothing: %+v, %v", info, err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want, err string }{
		"padded":            {"    MB:0= 100;1=  50\n    L3:0=7ff;1=00f\n", "L3:0=7ff;1=f\nMB:0=100;1=50\n", ""},
		"gaps in ids":       {"L3:0=f;12=f\nSMBA:0=2048\n", "L3:0=f;12=f\nSMBA:0=2048\n", ""},
		"unknown":           {"MB_HLIM:0=1\nL2:3=1\n", "L2:3=1\n", ""},
		"empty":             {"", "", ""},
		"no colon":          {"L3 0=f\n", "", "no colon"},
		"no value":          {"L3:0\n", "", "no new cache id"},
		"locked":            {"L3:uninitialized\n", "", "no new cache id"},
		"twice a cache":     {"L3:0=1;0=2\n", "", "no new cache id"},
		"twice a line":      {"L3:0=1\nL3:0=2\n", "", "twice"},
		"more than 32 bits": {"L3:0=1ffffffff\n", "", "no new cache id"},
	}
	for name, test := range tests {
		got, err := Parse(test.text)
		if !says(err, test.err) || err == nil && got.String() != test.want {
			t.Errorf("%s: got %q, %v; want %q, %q", name, got, err, test.want, test.err)
		}
	}
}

func TestBeyond(t *testing.T) {
	t.Parallel()
	want := Schemata{L3: {0: 1, 1: 3, 2: 7}, MB: {0: 50}, L2: {0: 1}}
	now := Schemata{L3: {0: 1, 1: 1}, MB: {0: 50}}
	if got := want.Beyond(now).String(); got != "L3:1=3\n" {
		t.Errorf("got %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("    MB:0= 100;1=  50\n    L3:0=7ff;1=00f\n")
	f.Add("L3:uninitialized\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil {
			t.Fatalf("%q became %q: %v", text, s, err)
		}
		if !maps.EqualFunc(s, again, maps.Equal[map[int]uint64, map[int]uint64]) {
			t.Errorf("%q became %q", s, again)
		}
	})
}

func FuzzParseRange(f *testing.F) {
	for _, text := range []string{"0-30%", "30%", "0x7f", "-1-5%", "100-100%", "0x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRange(text)
		if err != nil {
			return
		}
		if again, err := ParseRange(r.String()); err != nil || again != r {
			t.Errorf("%q is %+v, which reads as %+v, %v", text, r, again, err)
		}
		if r.Mask == 0 {
			if mask, err := (CacheInfo{Mask: 0x7ff, MinBits: 1}).MaskOf(r); err != nil || mask == 0 {
				t.Errorf("%q gives %#x, %v", text, mask, err)
			}
		}
	})
}

func FuzzParseBandwidth(f *testing.F) {
	for _, text := range []string{"85%", "5000MBps", "0%", "101%", "MBps", "-5%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBandwidth(text)
		if err != nil {
			return
		}
		if again, err := ParseBandwidth(b.String()); err != nil || again != b {
			t.Errorf("%q is %+v, which reads as %+v, %v", text, b, again, err)
		}
	})
}
