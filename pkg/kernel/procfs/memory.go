package procfs

import (
	"bytes"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// node holds the files of a NUMA node.
type node struct {
	id              int
	meminfo, vmstat file // vmstat's name is empty if it doesn't count direct reclaim
}

const nodesFolder = "sys/devices/system/node"

// Memory reads /proc/meminfo and /proc/vmstat, and the same files of the NUMA nodes that the
// last Discover found. It doesn't change Low. Totals exclude the pool of huge pages: no pod can
// use it as ordinary memory, and MemAvailable never includes it.
func (f *FS) Memory(into *observe.MemoryCounters) error {
	text, err := f.read(&f.meminfo, nil)
	if err != nil {
		return err
	}
	huge := parseMeminfo(text, into)
	into.HugePages = huge.all(huge.size)
	into.Total -= into.HugePages
	if text, err = f.read(&f.vmstat, nil); err != nil {
		return err
	}
	into.DirectScans, _ = parseDirect(text)
	into.SwapWritten = parseSwapOut(text) * int64(os.Getpagesize())
	into.SwapInMemory = len(f.zram) > 0 && !f.otherSwap
	into.SwapHeld = f.zramMemory()
	into.Nodes = into.Nodes[:0]
	for i := range f.nodes {
		n := &f.nodes[i]
		for len(into.Nodes) <= n.id {
			into.Nodes = append(into.Nodes, observe.NUMACounters{})
		}
		one := &into.Nodes[n.id]
		if text, err = f.read(&n.meminfo, nil); err != nil {
			if errors.Is(err, ErrUnsupported) { // the node's memory was removed
				continue
			}
			return err
		}
		var m observe.MemoryCounters
		pool := parseMeminfo(text, &m)
		one.Total, one.Free, one.Cache = m.Total-pool.all(huge.size), m.Free, m.Cache
		if n.vmstat.name != "" {
			if text, err = f.read(&n.vmstat, nil); err == nil {
				one.DirectScans, _ = parseDirect(text)
			}
		}
	}
	return nil
}

// Discover finds the NUMA nodes and the kind of the swap areas, and returns the sum of the zones'
// low watermarks in bytes. All change seldom, and /proc/zoneinfo is long: it has a paragraph for
// each CPU.
func (f *FS) Discover() (low int64, err error) {
	f.findDisks()
	text, err := f.read(&f.zoneinfo, nil)
	if err == nil {
		low = parseZoneinfo(text) * int64(os.Getpagesize())
	}
	f.zoneinfo.close()
	swaps, _ := f.read(&f.swaps, nil) // a kernel without swap lacks the file
	f.findZRAM(swaps)
	f.forgetNodes()
	folder, opened := f.root.Open(nodesFolder)
	if opened != nil {
		return low, err // the machine has no NUMA nodes
	}
	defer folder.Close()
	names, read := folder.Readdirnames(-1)
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, "node")
		id, number := strconv.Atoi(digits)
		if !ok || number != nil || id < 0 || id >= mostCPUs {
			continue
		}
		n := node{id: id, meminfo: file{name: nodesFolder + "/" + name + "/meminfo"}, vmstat: file{name: nodesFolder + "/" + name + "/vmstat"}}
		text, err := f.read(&n.vmstat, nil)
		if _, counted := parseDirect(text); err != nil || !counted {
			n.vmstat.close()
			n.vmstat.name = ""
		}
		f.nodes = append(f.nodes, n)
	}
	slices.SortFunc(f.nodes, func(a, b node) int { return a.id - b.id })
	return low, errors.Join(err, read)
}

func (f *FS) forgetNodes() {
	for i := range f.nodes {
		f.nodes[i].meminfo.close()
		f.nodes[i].vmstat.close()
	}
	f.nodes = f.nodes[:0]
}

// hugePages is the size of the pool of huge pages. The meminfo of a NUMA node shows only the
// number of huge pages of the default size, and not that size.
type hugePages struct {
	total int64 // bytes, of all sizes; 0 if the file doesn't show it (before Linux 4.16)
	pages int64 // number of huge pages of the default size
	size  int64 // default size in bytes
}

// all returns the size of the pool in bytes.
func (h *hugePages) all(size int64) int64 {
	if h.total > 0 || size <= 0 {
		return h.total
	}
	return min(h.pages, math.MaxInt64/size) * size
}

// parseMeminfo reads "MemFree: 123 kB", and a NUMA node's "Node 0 MemFree: 123 kB". Before
// Linux 3.14 there is no MemAvailable.
func parseMeminfo(text []byte, into *observe.MemoryCounters) (huge hugePages) {
	into.Available, into.Cache = -1, 0
	for len(text) > 0 {
		line, rest := cut(text)
		text = rest
		if after, ok := bytes.CutPrefix(line, []byte("Node ")); ok {
			_, line = number(after)
			line = bytes.TrimPrefix(line, []byte(" "))
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		n, _ := number(value)
		if string(name) == "HugePages_Total" { // this line is a number of pages
			huge.pages = n
			continue
		}
		n = min(n, math.MaxInt64/4096) * 1024
		switch string(name) {
		case "Hugetlb":
			huge.total = n
		case "Hugepagesize":
			huge.size = n
		case "MemTotal":
			into.Total = n
		case "MemFree":
			into.Free = n
		case "MemAvailable":
			into.Available = n
		case "SwapTotal":
			into.SwapTotal = n
		case "SwapFree":
			into.SwapFree = n
		case "AnonPages":
			into.Anon = n
		case "Active(file)", "Inactive(file)":
			into.Cache = min(into.Cache, math.MaxInt64-n) + n
		}
	}
	if into.Available < 0 {
		into.Available = min(into.Free, math.MaxInt64-into.Cache) + into.Cache
	}
	return huge
}

// parseDirect returns vmstat's count of pages that tasks scanned in direct reclaim, and whether
// vmstat has that count. Before Linux 4.8 there was a count for each zone.
func parseDirect(text []byte) (scans int64, counted bool) {
	for len(text) > 0 {
		line, rest := cut(text)
		text = rest
		if name, value, ok := bytes.Cut(line, []byte(" ")); ok && bytes.HasPrefix(name, []byte("pgscan_direct")) && string(name) != "pgscan_direct_throttle" {
			n, _ := number(value)
			scans, counted = min(scans, math.MaxInt64-n)+n, true
		}
	}
	return scans, counted
}

// parseSwapOut returns vmstat's count of pages that were written to swap areas.
func parseSwapOut(text []byte) (pages int64) {
	if _, rest, found := bytes.Cut(text, []byte("\npswpout ")); found {
		pages, _ = number(rest)
	}
	return min(pages, math.MaxInt64>>20)
}

// parseZoneinfo returns the sum of the zones' low watermarks, in pages.
func parseZoneinfo(text []byte) (low int64) {
	for len(text) > 0 {
		line, rest := cut(text)
		text = rest
		if after, ok := bytes.CutPrefix(bytes.TrimLeft(line, " "), []byte("low ")); ok {
			n, _ := number(after)
			low = min(low+n, math.MaxInt64>>20)
		}
	}
	return low
}
