// Package watermark raises the node's free-memory watermarks, so that background
// reclaim (kswapd) begins earlier and a sudden allocation seldom meets direct
// reclaim, and gives the originals back. No other package touches its two files in
// /proc/sys/vm.
//
// A zone has three marks (__setup_per_zone_wmarks, mm/page_alloc.c): below min a
// task reclaims for itself, below low kswapd wakes, and it works up to high. min
// is the zone's part of vm.min_free_kbytes; low and high are one and two steps
// above it, a step being vm.watermark_scale_factor / 10000 of the zone.
package watermark

// Values holds the two settings. A setting that this kernel doesn't have is 0.
type Values struct {
	ScaleFactor int64 `json:"scaleFactor"` // 0.01 % of memory; 10..1000, from Linux 5.18 10..3000
	MinFreeKB   int64 `json:"minFreeKB"`   // KiB
}

const (
	// These match Koordinator's default SystemStrategy (pkg/util/sloconfig): 1 % of memory for
	// min, 1.5 % for a step.
	minPerTenThousand  = 100
	stepPerTenThousand = 150

	// Allocation bursts grow with memory, but not without bound. kswapd works per NUMA node,
	// and a node with 4 GiB free, which is two steps, counts as out of danger. min is reserved
	// from everybody for allocations that can't wait; more than this costs memory and gains no
	// time (commit 795ae7a0de6b, "mm: scale kswapd watermarks in proportion to memory").
	mostStep = 2 << 30 // bytes a node
	mostMin  = 512 << 10

	leastScale = 10 // the kernel's default
)

// For returns the values for a machine with that much memory, in bytes, on that many NUMA nodes
// with memory. They are never below the original values.
func For(memory int64, nodes int, original Values) Values {
	nodes64 := int64(max(nodes, 1))
	step := min(memory/10000*stepPerTenThousand, nodes64*mostStep)
	want := Values{
		ScaleFactor: max(step/max(memory/10000, 1), leastScale),
		MinFreeKB:   min(memory/1024*minPerTenThousand/10000, nodes64*mostMin),
	}
	return Values{
		ScaleFactor: raise(original.ScaleFactor, want.ScaleFactor),
		MinFreeKB:   raise(original.MinFreeKB, want.MinFreeKB),
	}
}

func raise(original, want int64) int64 {
	if original == 0 {
		return 0
	}
	return max(original, want)
}

// Originals is the record for restoring the original values. It must be on disk before the kernel is
// written, so after a crash the kernel may show either Was or Now.
type Originals struct {
	Original Values `json:"original"`
	Was      Values `json:"was"` // before Sluice's last write
	Now      Values `json:"now"` // after Sluice's last write
}

// Plan returns the record to save durably, whose Now are the values to write then. kept is the
// zero value if there is no record. If a value differs from Sluice's last write, another
// program has changed it, and its value becomes the original.
func Plan(found Values, record Originals, memory int64, nodes int) Originals {
	next := Originals{Original: originals(found, record), Was: found}
	next.Now = For(memory, nodes, next.Original)
	return next
}

// Restore returns the values to write in order to leave: the originals, except for values that
// another program has changed since.
func Restore(found Values, record Originals) Values { return originals(found, record) }

func originals(found Values, record Originals) Values {
	return Values{
		ScaleFactor: original(found.ScaleFactor, record.Original.ScaleFactor, record.Was.ScaleFactor, record.Now.ScaleFactor),
		MinFreeKB:   original(found.MinFreeKB, record.Original.MinFreeKB, record.Was.MinFreeKB, record.Now.MinFreeKB),
	}
}

// original returns the value of a setting without Sluice.
func original(found, original, was, now int64) int64 {
	if found == was || found == now {
		return original
	}
	return found
}
