package schemata

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Resource is a resource's name in a schemata file.
type Resource string

// These are the resources. With code and data prioritization (mount options cdp and cdpl2), a
// cache's code and data resources replace the first.
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

// Info describes what a machine can control and monitor.
type Info struct {
	Caches     map[Resource]CacheInfo
	Bandwidths map[Resource]BandwidthInfo
	CLOSIDs    int      // maximum number of control groups, including the default group
	RMIDs      int      // maximum number of monitoring groups; 0 if the machine can't monitor
	Events     []string // monitoring events of a group, for example llc_occupancy and mbm_total_bytes
}

// CacheInfo describes a kind of cache.
type CacheInfo struct {
	Mask      uint64 // all ways, as a mask of the lowest bits
	MinBits   int    // minimum number of adjacent ways of a group
	Sparse    bool   // a mask may have gaps
	Shareable uint64 // ways that other hardware uses as well
	IDs       []int  // sorted cache ids, which may have gaps
}

// BandwidthInfo describes a kind of memory bandwidth.
type BandwidthInfo struct {
	Unit Unit
	Min  uint64
	Gran uint64 // the kernel rounds up to a multiple of this
	Max  uint64 // value for no limit
	IDs  []int
}

// Unit is the unit of a bandwidth.
type Unit uint8

// These are the units.
const (
	Percent    Unit = iota // Intel and MPAM
	MiBps                  // with the mount option mba_MBps
	EighthGBps             // AMD: multiples of 1/8 GB/s
)

var unitNames = [...]string{"percent", "MiB/s", "1/8 GB/s"}

func (u Unit) String() string { return unitNames[u] }

// MarshalText returns the unit's name.
func (u Unit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// The maxima are MBA_MAX_MBPS of fs/resctrl/internal.h and, for AMD's processors until Zen 4,
// MAX_MBA_BW_AMD (5.x), which info/ doesn't show.
const (
	maxMiBps      = 1<<32 - 1
	maxEighthGBps = 2048
)

// ParseInfo parses the files of the info folder. read returns a file's text, for example that of
// "L3/cbm_mask", and whether the file exists. root is the default group's schemata, and mbps says
// whether resctrl is mounted with mba_MBps, which no file in info shows.
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
			// AMD's bandwidth is not linear (__rdt_get_mem_config_amd), and the kernel refuses
			// limits where Intel's is not (bw_validate).
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

// fields parses numbers and keeps the first error.
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

// may parses a file that older kernels lack: sparse_masks exists since 6.7.
func (f *fields) may(file string, base int) uint64 {
	text, ok := f.read(file)
	if !ok {
		return 0
	}
	return f.number(file, text, base)
}
