// Package schemata computes what a resctrl group may use of caches and memory
// bandwidth: from shares in percent, masks and rates to the lines of its schemata
// file, in the units and under the rules of this machine. Pure.
//
// The rules are those of Documentation/filesystems/resctrl.rst.
package schemata

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// All is, as a cache id, each cache that isn't named itself.
const All = -1

// Class is a class of service: what its containers share.
type Class struct {
	Name      string
	Partition Partition         // what the shares below are parts of, but for SMBA
	L2, L3    map[int]Cache     // by cache id, or All; a cache of neither is theirs in full
	MB, SMBA  map[int]Bandwidth // memory bandwidth by cache id, or All; SMBA is AMD's, to slow (CXL) memory
}

// Partition is what several classes divide among them and never leave. The zero
// value is the whole machine.
type Partition struct {
	Name   string
	L2, L3 map[int]Cache     // ways in a row, by cache id, or All
	MB     map[int]Bandwidth // the most that each of its classes can have
}

// Cache is a share of a cache.
type Cache struct {
	Range // of the whole cache
	// With code and data prioritization, in place of the above. Both or none.
	Code, Data Range
}

// Range is a part of a cache's ways. The zero value is all of them.
type Range struct {
	From, To int    // percent of the ways: from below, to below
	Mask     uint64 // where not 0: these ways, in place of a percentage
}

func (r Range) String() string {
	switch {
	case r.Mask != 0:
		return fmt.Sprintf("%#x", r.Mask)
	case r == Range{}:
		return "0-100%"
	}
	return fmt.Sprintf("%d-%d%%", r.From, r.To)
}

// Overlaps reports whether two parts of a cache may have a way in common. Of a mask
// and a percentage only the machine could tell, so they do.
func (r Range) Overlaps(other Range) bool {
	all := Range{}
	switch {
	case r == all || other == all:
		return true
	case r.Mask != 0 && other.Mask != 0:
		return r.Mask&other.Mask != 0
	case r.Mask != 0 || other.Mask != 0:
		return true
	}
	return max(r.From, other.From) < min(r.To, other.To)
}

// ParseRange reads "0-30%", "30%" (the lowest 30 percent) or a mask "0x7f".
func ParseRange(text string) (Range, error) {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		mask, err := strconv.ParseUint(digits, 16, 32)
		if err != nil || mask == 0 {
			return Range{}, errors.New("is no mask of cache ways: it is to have 1 to 32 bits, one of them set")
		}
		return Range{Mask: mask}, nil
	}
	percents, ok := strings.CutSuffix(text, "%")
	from, to, ranged := strings.Cut(percents, "-")
	if !ranged {
		from, to = "0", percents
	}
	low, err1 := strconv.ParseUint(from, 10, 8)
	high, err2 := strconv.ParseUint(to, 10, 8)
	if !ok || err1 != nil || err2 != nil || low >= high || high > 100 {
		return Range{}, errors.New("is no part of a cache: write two percentages as in 20-80%, the first less than the second, or a mask as in 0x7f")
	}
	return Range{From: int(low), To: int(high)}, nil
}

// Bandwidth is a limit on memory bandwidth, in one of two units. The zero value is
// no limit.
type Bandwidth struct {
	Percent int
	// MBps is megabytes per second as the kernel counts them: in mode mba_MBps the
	// number is the kernel's own (2^20 bytes), on AMD it is 10^6 bytes.
	MBps int
}

// Unlimited reports whether it limits nothing.
func (b Bandwidth) Unlimited() bool { return b == Bandwidth{} || b.Percent >= 100 }

// of is a limit in a partition that has b: its percentage is one of b's. An amount
// stays as it is.
func (b Bandwidth) of(limit Bandwidth) Bandwidth {
	switch {
	case b.Unlimited() || limit.MBps != 0 || limit.Percent < 0:
		return limit
	case limit.Unlimited():
		return b
	case b.MBps != 0:
		return Bandwidth{MBps: int(ceilDiv(uint64(b.MBps)*uint64(limit.Percent), 100))}
	}
	return Bandwidth{Percent: (b.Percent*limit.Percent + 99) / 100}
}

func (b Bandwidth) String() string {
	switch {
	case b.Unlimited():
		return "100%"
	case b.MBps != 0:
		return strconv.Itoa(b.MBps) + "MBps"
	}
	return strconv.Itoa(b.Percent) + "%"
}

// ParseBandwidth reads "85%" or "5000MBps".
func ParseBandwidth(text string) (Bandwidth, error) {
	if digits, ok := strings.CutSuffix(text, "%"); ok {
		if percent, err := strconv.ParseUint(digits, 10, 8); err == nil && percent >= 1 && percent <= 100 {
			return Bandwidth{Percent: int(percent)}, nil
		}
	}
	if digits, ok := strings.CutSuffix(text, "MBps"); ok {
		if rate, err := strconv.ParseUint(digits, 10, 31); err == nil && rate >= 1 {
			return Bandwidth{MBps: int(rate)}, nil
		}
	}
	return Bandwidth{}, errors.New("is no memory bandwidth: write 1% to 100%, or a rate as in 5000MBps")
}
