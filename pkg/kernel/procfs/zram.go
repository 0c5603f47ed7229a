package procfs

import "bytes"

// findZRAM finds the swap areas in compressed memory among those that /proc/swaps lists. Its first
// line names the columns.
func (f *FS) findZRAM(swaps []byte) {
	f.forgetZRAM()
	_, areas := cut(swaps)
	for len(areas) > 0 {
		area, rest := cut(areas)
		areas = rest
		device, _, _ := bytes.Cut(area, []byte(" "))
		if name, ok := bytes.CutPrefix(bytes.TrimSpace(device), []byte("/dev/zram")); ok {
			f.zram = append(f.zram, file{name: "sys/block/zram" + string(name) + "/mm_stat"})
		} else {
			f.otherSwap = true
		}
	}
}

func (f *FS) forgetZRAM() {
	for i := range f.zram {
		f.zram[i].close()
	}
	f.zram, f.otherSwap = f.zram[:0], false
}

// zramMemory returns how many bytes of memory the areas occupy: the third number of mm_stat
// (mem_used_total in Documentation/admin-guide/blockdev/zram.rst).
func (f *FS) zramMemory() (bytes int64) {
	for i := range f.zram {
		text, err := f.read(&f.zram[i], nil)
		if err != nil {
			continue // the area has been removed
		}
		var n int64
		for range 3 {
			n, text = number(text)
		}
		bytes += min(n, 1<<50)
	}
	return bytes
}
