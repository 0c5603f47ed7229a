// Package schemata computes the lines of a resctrl group's schemata file from shares in percent,
// masks and rates, in the units and by the rules of the machine. The package is pure.
//
// The rules come from Documentation/filesystems/resctrl.rst.
package schemata

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// All is a cache id that stands for every cache without an entry of its own.
const All = -1

// Class is a class of service. Its containers share one group.
type Class struct {
	Name      string
	Partition Partition         // the machine's part to which the shares below refer, except for SMBA
	L2, L3    map[int]Cache     // by cache id, or All; caches without an entry are used in full
	MB, SMBA  map[int]Bandwidth // memory bandwidth by cache id, or All; SMBA is AMD's limit for slow (CXL) memory
}

// Partition is a part of the machine that several classes divide and never leave. The zero value
// is the whole machine.
type Partition struct {
	Name   string
	L2, L3 map[int]Cache     // adjacent ways, by cache id, or All
	MB     map[int]Bandwidth // upper bound for each of its classes, by cache id, or All
}

// Cache is a share of a cache.
type Cache struct {
	Range // share of the whole cache
	// Code and Data replace the share above with code and data prioritization. Either both or none
	// are set.
	Code, Data Range
}

// Range is a part of a cache's ways. The zero value is all of them.
type Range struct {
	From, To int    // percentages of the ways: from From up to, but not including, To
	Mask     uint64 // these ways in place of a percentage; 0 for none
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

// Overlaps reports whether two ranges of a cache may have a way in common. It returns true for a
// mask and a percentage, because the answer depends on the machine.
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

// ParseRange parses "0-30%", "30%" (the lowest 30 percent) or a mask such as "0x7f".
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

// Bandwidth is a limit on memory bandwidth, as a percentage or a rate. The zero value is no limit.
type Bandwidth struct {
	Percent int
	// MBps is megabytes per second in the kernel's definition: with mba_MBps the kernel's own
	// number (2^20 bytes), on AMD 10^6 bytes.
	MBps int
}

// Unlimited reports whether there is no limit.
func (b Bandwidth) Unlimited() bool { return b == Bandwidth{} || b.Percent >= 100 }

// of returns the limit within a partition whose limit is b: a percentage refers to b, a rate stays
// as it is.
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

// ParseBandwidth parses "85%" or "5000MBps".
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
