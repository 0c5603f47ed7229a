package config

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// RDT is cache and memory bandwidth, by Intel's name; AMD and Arm have the same.
// Without classes, PerPod and Monitor nothing is done.
type RDT struct {
	Mode    RDTMode             `yaml:"mode"`
	Classes map[string]RDTClass `yaml:"classes"`
	PerPod  bool                `yaml:"perPod"`  // pods that ask for a share of their own get a group of their own
	Monitor bool                `yaml:"monitor"` // count cache occupancy and bandwidth of each pod
}

// RDTMode is On, or Off: the resource groups are left alone.
type RDTMode string

// The RDT modes.
const (
	RDTOn  RDTMode = "on"
	RDTOff RDTMode = "off"
)

// UnmarshalText reads "on" or "off".
func (m *RDTMode) UnmarshalText(text []byte) error { return choose(m, text, RDTOn, RDTOff) }

// RDTClass is what the containers of a class share among them.
type RDTClass struct {
	L3     Cache     `yaml:"l3"`
	L3Code Cache     `yaml:"l3code"` // in place of L3, where code and data are apart (CDP)
	L3Data Cache     `yaml:"l3data"`
	L2     Cache     `yaml:"l2"`
	L2Code Cache     `yaml:"l2code"`
	L2Data Cache     `yaml:"l2data"`
	MB     Bandwidth `yaml:"mb"`
}

// Cache is a part of each cache of a level. The zero value is all of them.
type Cache struct {
	All  CacheShare
	ByID map[int]CacheShare // of the caches with these ids, in place of All
}

// CacheShare is a part of a cache's ways: a range of percent, from below to below,
// or a mask. The zero value is all.
type CacheShare struct {
	From, To int
	Mask     uint64
}

// UnmarshalText reads "0-30%", "0x7f", or "0-30%, 1=0x7f" with other shares for
// caches by their ids.
func (c *Cache) UnmarshalText(text []byte) error {
	parsed, byID, err := byID(string(text), parseCacheShare)
	*c = Cache{All: parsed, ByID: byID}
	return err
}

func parseCacheShare(text string) (CacheShare, error) {
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		mask, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || mask == 0 {
			return CacheShare{}, errors.New("a mask must have a bit and at most 64, like 0x7f")
		}
		if low := bits.TrailingZeros64(mask); mask>>low&(mask>>low+1) != 0 {
			return CacheShare{}, errors.New("the bits of a mask must lie side by side")
		}
		return CacheShare{Mask: mask}, nil
	}
	span, percent := strings.CutSuffix(text, "%")
	first, last, two := strings.Cut(span, "-")
	from, err := strconv.ParseUint(first, 10, 8)
	to, err2 := strconv.ParseUint(last, 10, 8)
	if !percent || !two || err != nil || err2 != nil || from >= to || to > 100 {
		return CacheShare{}, errors.New("must be a range of percent like 0-30%, or a mask like 0x7f")
	}
	return CacheShare{From: int(from), To: int(to)}, nil
}

// Bandwidth is memory bandwidth. The zero value is all.
type Bandwidth struct {
	All  BandwidthShare
	ByID map[int]BandwidthShare // of the L3 caches with these ids, in place of All
}

// BandwidthShare is a part of the bandwidth, or an amount of it. The zero value is
// all.
type BandwidthShare struct {
	Percent int
	MBps    int // 10^6 bytes per second
}

// UnmarshalText reads "85%", "5000MBps", or "85%, 1=5000MBps" with other shares
// for caches by their ids.
func (b *Bandwidth) UnmarshalText(text []byte) error {
	parsed, byID, err := byID(string(text), parseBandwidth)
	*b = Bandwidth{All: parsed, ByID: byID}
	return err
}

func parseBandwidth(text string) (BandwidthShare, error) {
	const most = 10_000_000
	if number, ok := strings.CutSuffix(text, "MBps"); ok {
		if n, err := strconv.ParseUint(number, 10, 31); err == nil && n > 0 && n <= most {
			return BandwidthShare{MBps: int(n)}, nil
		}
	} else if number, ok := strings.CutSuffix(text, "%"); ok {
		if n, err := strconv.ParseUint(number, 10, 8); err == nil && n > 0 && n <= 100 {
			return BandwidthShare{Percent: int(n)}, nil
		}
	}
	return BandwidthShare{}, errors.New("must be 1% to 100%, or an amount like 5000MBps")
}

// byID reads a share for all and shares for some, "ALL, ID=SHARE, ...".
func byID[T any](text string, parse func(string) (T, error)) (all T, some map[int]T, err error) {
	parts := strings.Split(text, ",")
	for i, part := range parts {
		part = strings.TrimSpace(part)
		id, share, single := strings.Cut(part, "=")
		if !single {
			if i > 0 {
				return all, nil, fmt.Errorf("%s: after the first comes ID=SHARE for the cache of that id", quote(part))
			}
			all, err = parse(part)
		} else {
			var n uint64
			if n, err = strconv.ParseUint(id, 10, 16); err != nil {
				return all, nil, fmt.Errorf("%s: must be the number of a cache", quote(id))
			}
			if _, twice := some[int(n)]; twice {
				return all, nil, fmt.Errorf("cache %d is there twice", n)
			}
			if some == nil {
				some = map[int]T{}
			}
			some[int(n)], err = parse(share)
		}
		if err != nil && len(parts) > 1 {
			err = fmt.Errorf("%s: %w", quote(part), err)
		}
		if err != nil {
			return all, nil, err
		}
	}
	return all, some, nil
}

const maxRDTClasses = 64

func (d *decoder) checkRDT(c *Config) {
	if n := len(c.RDT.Classes); n > maxRDTClasses {
		d.fail("rdt.classes", "there are %d classes; there can be %d at most", n, maxRDTClasses)
	}
	for name, class := range c.RDT.Classes {
		at := "rdt.classes." + name
		if !poolName(name) || name == "info" {
			d.fail(at, "must be 1 to 63 small letters, digits and '-', and not info, which is the kernel's")
		}
		for _, level := range []struct {
			key              string
			both, code, data Cache
		}{{"l3", class.L3, class.L3Code, class.L3Data}, {"l2", class.L2, class.L2Code, class.L2Data}} {
			if level.both.some() && (level.code.some() || level.data.some()) {
				d.fail(at+"."+level.key, "is there beside %scode or %sdata; give the first, or the two others", level.key, level.key)
			}
			if level.code.some() != level.data.some() {
				d.fail(at, "%[1]scode and %[1]sdata go together; give both, or %[1]s", level.key)
			}
		}
	}
}

func (c *Cache) some() bool { return c.All != CacheShare{} || len(c.ByID) > 0 }

// rdtClasses are the names of the RDT classes.
func (c *Config) rdtClasses() []string {
	names := make([]string, 0, len(c.RDT.Classes))
	for name := range c.RDT.Classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
