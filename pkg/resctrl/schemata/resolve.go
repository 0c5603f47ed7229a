package schemata

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
)

// Resolve computes what a class' group gets on this machine: each resource that the
// class gives, for each cache. The error joins what can't be had; the rest is
// returned beside it. MaxMBps is the machine's memory bandwidth for one cache
// id, which no kernel tells: 0 unknown.
func (info *Info) Resolve(c *Class, maxMBps int) (Schemata, error) {
	s := Schemata{}
	var errs []error
	fail := func(kind string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("RDT class %s, %s: %w", c.Name, kind, err))
		}
	}
	fail("L2", info.caches(s, c.L2, L2, L2Code, L2Data))
	fail("L3", info.caches(s, c.L3, L3, L3Code, L3Data))
	fail("MB", info.bandwidths(s, c.MB, MB, maxMBps))
	fail("SMBA", info.bandwidths(s, c.SMBA, SMBA, maxMBps))
	return s, errors.Join(errs...)
}

// Unlimited is everything of everything.
func (info *Info) Unlimited() Schemata {
	s := Schemata{}
	for r, c := range info.Caches {
		s[r] = fill(c.IDs, c.Mask)
	}
	for r, b := range info.Bandwidths {
		s[r] = fill(b.IDs, b.Max)
	}
	return s
}

func fill(ids []int, v uint64) map[int]uint64 {
	values := make(map[int]uint64, len(ids))
	for _, id := range ids {
		values[id] = v
	}
	return values
}

var errNoControl = errors.New("this machine, or the options of its resctrl mount, don't have it; the class goes without")

func (info *Info) caches(s Schemata, want map[int]Cache, unified, code, data Resource) error {
	if len(want) == 0 {
		return nil
	}
	_, cdp := info.Caches[code]
	resources := []Resource{unified}
	if cdp {
		resources = []Resource{code, data}
	}
	if _, ok := info.Caches[resources[0]]; !ok {
		return errNoControl
	}
	pick := func(share Cache, r Resource) (Range, error) {
		split := share.Code != Range{} || share.Data != Range{}
		switch {
		case split && !cdp && share.Range == Range{}:
			return Range{}, fmt.Errorf("code and data have shares of their own, which takes a mount with the option cdp (of L2: cdpl2); give one for both")
		case !split || !cdp:
			return share.Range, nil
		case r == code:
			return share.Code, nil
		}
		return share.Data, nil
	}
	for _, r := range resources {
		err := each(s, r, info.Caches[r].IDs, want, func(share Cache) (uint64, error) {
			part, err := pick(share, r)
			if err != nil {
				return 0, err
			}
			return info.Caches[r].MaskOf(part)
		})
		if err != nil {
			delete(s, code)
			return err
		}
	}
	return nil
}

func (info *Info) bandwidths(s Schemata, want map[int]Bandwidth, r Resource, maxMBps int) error {
	if len(want) == 0 {
		return nil
	}
	b, ok := info.Bandwidths[r]
	if !ok {
		return errNoControl
	}
	return each(s, r, b.IDs, want, func(limit Bandwidth) (uint64, error) { return b.Value(limit, maxMBps) })
}

// each computes the values of a resource, or none of them. A cache that neither is
// named nor falls under All has all.
func each[T any](s Schemata, r Resource, ids []int, want map[int]T, value func(T) (uint64, error)) error {
	named := maps.Clone(want)
	values := map[int]uint64{}
	for _, id := range ids {
		w, ok := want[id]
		if !ok {
			w = want[All]
		}
		delete(named, id)
		v, err := value(w)
		if err != nil {
			return err
		}
		values[id] = v
	}
	delete(named, All)
	for id := range named {
		return fmt.Errorf("there is no cache with id %d here, only %v", id, ids)
	}
	s[r] = values
	return nil
}

// MaskOf is the ways of a part of the cache. Percentages become the mask
// (1<<ceil(ways×to)) − (1<<ceil(ways×from)), so that neighbouring ranges neither
// overlap nor leave a gap, widened to as many ways as a group must have.
func (c CacheInfo) MaskOf(r Range) (uint64, error) {
	if r.Mask != 0 {
		return r.Mask, c.check(r.Mask)
	}
	if r == (Range{}) {
		return c.Mask, nil
	}
	if r.From < 0 || r.From >= r.To || r.To > 100 {
		return 0, fmt.Errorf("%d-%d%% is no part of a cache", r.From, r.To)
	}
	ways := bits.Len64(c.Mask)
	ceil := func(percent int) int { return (ways*percent + 99) / 100 }
	from, to := ceil(r.From), ceil(r.To)
	if least := max(1, c.MinBits); to-from < least {
		to = min(ways, from+least)
		from = to - least
	}
	return 1<<to - 1<<from, nil
}

// check applies the kernel's rules (cbm_validate, fs/resctrl/ctrlmondata.c).
func (c CacheInfo) check(mask uint64) error {
	first := mask >> bits.TrailingZeros64(mask)
	run := bits.TrailingZeros64(^first)
	switch {
	case mask&^c.Mask != 0:
		return fmt.Errorf("mask %#x has ways that the cache hasn't: its mask is %#x", mask, c.Mask)
	case first>>run != 0 && !c.Sparse:
		return fmt.Errorf("mask %#x has a gap, which this processor doesn't allow: give ways in a row", mask)
	case run < c.MinBits:
		return fmt.Errorf("mask %#x has too few ways in a row: this processor needs %d", mask, c.MinBits)
	}
	return nil
}

// Value is a limit in this machine's unit, rounded up as the kernel does (bw_validate,
// fs/resctrl/ctrlmondata.c). A percentage where the kernel counts in rates, and a
// rate where it counts in percent, take the machine's bandwidth.
func (b BandwidthInfo) Value(limit Bandwidth, maxMBps int) (uint64, error) {
	if limit.Unlimited() {
		return b.Max, nil
	}
	if limit.Percent < 0 || limit.MBps < 0 {
		return 0, fmt.Errorf("%s is no memory bandwidth", limit)
	}
	if (b.Unit == Percent) != (limit.MBps == 0) && maxMBps <= 0 {
		return 0, fmt.Errorf("%s can't be turned into %s, the unit of this machine, without the memory bandwidth that one cache id has: set it in the config, or give the limit in that unit", limit, b.Unit)
	}
	rate := uint64(limit.MBps)
	if limit.MBps == 0 {
		rate = ceilDiv(uint64(limit.Percent)*uint64(max(0, maxMBps)), 100)
	}
	var v uint64
	switch {
	case b.Unit == Percent && limit.MBps == 0:
		v = uint64(limit.Percent)
	case b.Unit == Percent:
		v = ceilDiv(rate*100, uint64(maxMBps))
	case b.Unit == EighthGBps:
		v = ceilDiv(rate, 125)
	default:
		v = rate
	}
	v = max(v, b.Min, 1)
	if b.Unit != MiBps {
		v = ceilDiv(v, b.Gran) * b.Gran
	}
	return min(v, b.Max), nil
}

func ceilDiv(a, b uint64) uint64 { return (a + b - 1) / b }
