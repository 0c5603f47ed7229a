package schemata

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Resource is the name of a line of a schemata file.
type Resource string

// The resources. With code and data prioritization (mount options cdp, cdpl2), the
// latter two of a cache are there in place of the first.
const (
	L2     Resource = "L2"
	L2Code Resource = "L2CODE"
	L2Data Resource = "L2DATA"
	L3     Resource = "L3"
	L3Code Resource = "L3CODE"
	L3Data Resource = "L3DATA"
	MB     Resource = "MB"
	SMBA   Resource = "SMBA"
)

// Caches lists the resources that are masks of cache ways.
func Caches() []Resource { return []Resource{L2, L2Code, L2Data, L3, L3Code, L3Data} }

// Bandwidths lists the resources that are memory bandwidth.
func Bandwidths() []Resource { return []Resource{MB, SMBA} }

// Info is what this machine can control and watch.
type Info struct {
	Caches     map[Resource]CacheInfo
	Bandwidths map[Resource]BandwidthInfo
	CLOSIDs    int      // control groups at once, the default group counted
	RMIDs      int      // groups watched at once; 0 where nothing can be
	Events     []string // what can be read of a group: llc_occupancy, mbm_total_bytes
}

// CacheInfo is a kind of cache.
type CacheInfo struct {
	Mask      uint64 // all ways: the lowest bits
	MinBits   int    // ways that a group must have in a row
	Sparse    bool   // gaps in a mask are allowed
	Shareable uint64 // ways that other hardware uses as well
	IDs       []int  // cache ids, sorted; may have gaps
}

// BandwidthInfo is a kind of memory bandwidth.
type BandwidthInfo struct {
	Unit Unit
	Min  uint64
	Gran uint64 // the kernel rounds up to a multiple of it
	Max  uint64 // no limit
	IDs  []int
}

// Unit is what a bandwidth is counted in.
type Unit uint8

// The units.
const (
	Percent    Unit = iota // Intel, and MPAM
	MiBps                  // mount option mba_MBps
	EighthGBps             // AMD: 1/8 GB/s
)

var unitNames = [...]string{"percent", "MiB/s", "1/8 GB/s"}

func (u Unit) String() string { return unitNames[u] }

// MarshalText writes the unit's name.
func (u Unit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// The maxima: MBA_MAX_MBPS of fs/resctrl/internal.h, and that of AMD's
// processors until Zen 4 (MAX_MBA_BW_AMD, 5.x), which info/ doesn't tell.
const (
	maxMiBps      = 1<<32 - 1
	maxEighthGBps = 2048
)

// ParseInfo reads the info folder by way of read, which returns a file's text, and
// whether it is there: "L3/cbm_mask". Schemata is the default group's and mbps is
// whether the mount has mba_MBps, which no file tells.
func ParseInfo(read func(file string) (string, bool), root Schemata, mbps bool) (Info, error) {
	info := Info{Caches: map[Resource]CacheInfo{}, Bandwidths: map[Resource]BandwidthInfo{}}
	f := fields{read: read}
	for _, r := range slices.Concat(Caches(), Bandwidths()) {
		dir := string(r) + "/"
		closids, ok := read(dir + "num_closids")
		if !ok {
			continue
		}
		if n := int(f.number(dir+"num_closids", closids, 10)); info.CLOSIDs == 0 || n < info.CLOSIDs {
			info.CLOSIDs = n
		}
		ids := root.ids(r)
		if slices.Contains(Caches(), r) {
			c := CacheInfo{Mask: f.must(dir+"cbm_mask", 16), MinBits: int(f.must(dir+"min_cbm_bits", 10)),
				Sparse: f.may(dir+"sparse_masks", 10) == 1, Shareable: f.may(dir+"shareable_bits", 16), IDs: ids}
			if f.err == nil && (c.Mask == 0 || c.Mask&(c.Mask+1) != 0 || c.MinBits > bits.OnesCount64(c.Mask)) {
				return Info{}, fmt.Errorf("info/%scbm_mask %x and min_cbm_bits %d don't make sense", dir, c.Mask, c.MinBits)
			}
			info.Caches[r] = c
			continue
		}
		b := BandwidthInfo{Min: f.must(dir+"min_bandwidth", 10), Gran: max(1, f.must(dir+"bandwidth_gran", 10)), Max: 100, IDs: ids}
		switch {
		case r == MB && mbps:
			b.Unit, b.Max = MiBps, maxMiBps
		case f.must(dir+"delay_linear", 10) == 0:
			// AMD's is not linear (__rdt_get_mem_config_amd), and the kernel
			// refuses Intel's that is not (bw_validate).
			b.Unit, b.Max = EighthGBps, maxEighthGBps
			for _, v := range root[r] {
				b.Max = max(b.Max, v)
			}
		}
		info.Bandwidths[r] = b
	}
	if rmids, ok := read("L3_MON/num_rmids"); ok {
		info.RMIDs = int(f.number("L3_MON/num_rmids", rmids, 10))
		events, _ := read("L3_MON/mon_features")
		info.Events = strings.Fields(events)
	}
	return info, f.err
}

// fields reads numbers; the first that fails is the error.
type fields struct {
	read func(string) (string, bool)
	err  error
}

func (f *fields) number(file, text string, base int) uint64 {
	v, err := strconv.ParseUint(strings.TrimSpace(text), base, 32)
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("info/%s: %w", file, err)
	}
	return v
}

func (f *fields) must(file string, base int) uint64 {
	text, _ := f.read(file)
	return f.number(file, text, base)
}

// may reads a file that older kernels don't have: sparse_masks came with 6.7.
func (f *fields) may(file string, base int) uint64 {
	text, ok := f.read(file)
	if !ok {
		return 0
	}
	return f.number(file, text, base)
}
