package schemata

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Resolve computes what the group of a class gets on this machine: each resource that the class
// limits, for each cache. The error joins what the machine can't provide; the other values are
// returned beside it. A class in a partition gets all of the partition in place of what can't be
// provided. maxMBps is the machine's memory bandwidth for one cache id, which no kernel file
// shows; 0 if unknown.
func (info *Info) Resolve(c *Class, maxMBps int) (Schemata, error) {
	s := Schemata{}
	var errs []error
	fail := func(kind string, err error) {
		if err != nil {
			name := c.Name
			if c.Partition.Name != "" {
				name += " of partition " + c.Partition.Name
			}
			errs = append(errs, fmt.Errorf("RDT class %s, %s: %w", name, kind, err))
		}
	}
	p := &c.Partition
	fail("L2", info.caches(s, c.L2, p.L2, L2, L2Code, L2Data))
	fail("L3", info.caches(s, c.L3, p.L3, L3, L3Code, L3Data))
	fail("MB", info.bandwidths(s, c.MB, p.MB, MB, maxMBps))
	fail("SMBA", info.bandwidths(s, c.SMBA, nil, SMBA, maxMBps))
	return s, errors.Join(errs...)
}

// Unlimited returns the schemata of a group without limits.
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

func (info *Info) caches(s Schemata, want, within map[int]Cache, unified, code, data Resource) error {
	if len(want)+len(within) == 0 {
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
	var small error
	for _, r := range resources {
		cache := info.Caches[r]
		err := each(s, r, cache.IDs, want, within, func(share, partition Cache) (uint64, error) {
			whole, err := pick(partition, r)
			if err != nil {
				return 0, err
			}
			part, err := pick(share, r)
			if err != nil {
				return 0, err
			}
			ways, err := cache.partition(whole)
			if err != nil {
				return 0, err
			}
			if !cache.holds(whole) {
				small = fmt.Errorf("its partition's %s is less than the %d ways that this processor needs; it has %#x, which may be another's: give it more", whole, cache.least(), ways)
			}
			return cache.maskIn(ways, part)
		})
		if err != nil {
			delete(s, code)
			if len(want) > 0 && len(within) > 0 && info.caches(s, nil, within, unified, code, data) == nil {
				err = fmt.Errorf("%w; it has all of its partition", err)
			}
			return err
		}
	}
	return small
}

func (info *Info) bandwidths(s Schemata, want, within map[int]Bandwidth, r Resource, maxMBps int) error {
	if len(want)+len(within) == 0 {
		return nil
	}
	b, ok := info.Bandwidths[r]
	if !ok {
		return errNoControl
	}
	err := each(s, r, b.IDs, want, within, func(limit, most Bandwidth) (uint64, error) { return b.valueIn(most, limit, maxMBps) })
	if err != nil && len(want) > 0 && len(within) > 0 && info.bandwidths(s, nil, within, r, maxMBps) == nil {
		err = fmt.Errorf("%w; it has all of its partition", err)
	}
	return err
}

// each computes the values of a resource for all caches, or none, from the shares of a class and
// of its partition. A cache without an entry of its own or under All is unlimited.
func each[T any](s Schemata, r Resource, ids []int, want, within map[int]T, value func(share, partition T) (uint64, error)) error {
	values := map[int]uint64{}
	for _, id := range ids {
		v, err := value(at(want, id), at(within, id))
		if err != nil {
			return err
		}
		values[id] = v
	}
	for _, shares := range []map[int]T{want, within} {
		for id := range shares {
			if id != All && !slices.Contains(ids, id) {
				return fmt.Errorf("there is no cache with id %d here, only %v", id, ids)
			}
		}
	}
	s[r] = values
	return nil
}

// at returns the share of one cache.
func at[T any](shares map[int]T, id int) T {
	if share, ok := shares[id]; ok {
		return share
	}
	return shares[All]
}

// MaskOf returns a range's mask of ways. A percentage becomes the mask (1<<ceil(ways×to)) −
// (1<<ceil(ways×from)), so that adjacent ranges neither overlap nor leave a gap, widened to the
// minimum number of ways of a group.
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
	from, to := c.ways(r)
	if least := c.least(); to-from < least {
		to = min(bits.Len64(c.Mask), from+least)
		from = to - least
	}
	return 1<<to - 1<<from, nil
}

// ways returns the first way of a percentage and the first one behind it.
func (c CacheInfo) ways(r Range) (from, to int) {
	ways := bits.Len64(c.Mask)
	ceil := func(percent int) int { return (ways*percent + 99) / 100 }
	return ceil(r.From), ceil(r.To)
}

// least returns the minimum number of ways of a group.
func (c CacheInfo) least() int { return max(1, c.MinBits) }

// partition returns the mask of a partition, whose ways must be adjacent on every processor,
// because a part of it must be as well.
func (c CacheInfo) partition(r Range) (uint64, error) {
	if mask := r.Mask >> bits.TrailingZeros64(r.Mask); mask&(mask+1) != 0 {
		return 0, fmt.Errorf("its partition's mask %#x has a gap: give ways in a row", r.Mask)
	}
	mask, err := c.MaskOf(r)
	if err != nil {
		return 0, fmt.Errorf("its partition: %w", err)
	}
	return mask, nil
}

// holds reports whether a range need not be widened. Ranges that don't overlap then have no way in
// common.
func (c CacheInfo) holds(r Range) bool {
	from, to := c.ways(r)
	return r.To == 0 || to-from >= c.least()
}

// maskIn returns a class' mask in a partition with these ways: percentages refer to the partition,
// a mask to the cache.
func (c CacheInfo) maskIn(partition uint64, r Range) (uint64, error) {
	if r.Mask != 0 {
		if r.Mask&^partition != 0 {
			return 0, fmt.Errorf("mask %#x has ways that its partition hasn't: these are %#x", r.Mask, partition)
		}
		return c.MaskOf(r)
	}
	low := bits.TrailingZeros64(partition)
	mask, err := CacheInfo{Mask: partition >> low, MinBits: c.MinBits}.MaskOf(r)
	return mask << low, err
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

// valueIn returns a class' limit in a partition, which it never exceeds; see Value.
func (b BandwidthInfo) valueIn(partition, limit Bandwidth, maxMBps int) (uint64, error) {
	v, err := b.Value(partition.of(limit), maxMBps)
	if err != nil || limit.MBps == 0 || partition.Unlimited() {
		return v, err
	}
	most, err := b.Value(partition, maxMBps)
	return min(v, most), err
}

// Value returns a limit in this machine's unit, rounded up as the kernel does (bw_validate,
// fs/resctrl/ctrlmondata.c). It needs maxMBps to convert a percentage if the kernel counts in
// rates, and a rate if it counts in percent.
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
