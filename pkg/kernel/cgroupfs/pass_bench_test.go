package cgroupfs

import (
	"fmt"
	"os"
	"testing"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// BenchmarkPass reads nine knobs (13 files) of 500 containers, as the agent does in each pass:
// with room for all files in the cache, with room for some, and by their paths.
func BenchmarkPass(b *testing.B) {
	k := realV1(b)
	read := []knobs.Knob{knobs.CPUs, knobs.Mems, knobs.Quota, knobs.Burst, knobs.Weight, knobs.Idle, knobs.MemoryMax, knobs.SoftLimit, knobs.IOMax}
	var dirs, files []string
	for i := range 500 {
		dir := fmt.Sprintf("%s/ctr%d", k.dir, i)
		for _, h := range k.trees {
			if h.v2 {
				continue
			}
			if err := h.tree.Mkdir(relative(dir)); err != nil {
				b.Fatal(err)
			}
		}
		dirs = append(dirs, dir)
		for _, knob := range read {
			files = append(files, k.filesOf(dir, knob)...)
		}
	}
	pass := func(b *testing.B) {
		for b.Loop() {
			for _, dir := range dirs {
				for _, knob := range read {
					if _, err := k.Read(dir, knob); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		b.ReportMetric(float64(k.cpu.all.open.Load()), "handles")
	}
	for _, limit := range []int64{1 << 20, maxHandles, 4096} {
		k.cpu.all.limit = limit
		for _, dir := range dirs {
			k.Forget(dir)
		}
		b.Run(fmt.Sprintf("limit %d", limit), pass)
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			for _, file := range files {
				if _, err := os.ReadFile(file); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
