// Package compare measures the product beside other software with the same purpose.
package compare

import (
	"fmt"
	"testing"

	k8s "k8s.io/utils/cpuset"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// BenchmarkSet measures each operation beside that of k8s.io/utils/cpuset, on sets of whole cores
// as pins have them: every other core of a machine whose siblings are n and n+size/2.
func BenchmarkSet(b *testing.B) {
	for _, size := range []int{16, 256, 1024} {
		var s, t cpuset.Set
		for cpu := range size / 2 {
			if cpu%2 == 0 {
				s = cpuset.Union(s, cpuset.Of(cpu, cpu+size/2))
			} else {
				t = cpuset.Union(t, cpuset.Of(cpu, cpu+size/2))
			}
		}
		list := s.String()
		ks, err := k8s.Parse(list)
		if err != nil {
			b.Fatal(err)
		}
		kt, err := k8s.Parse(t.String())
		if err != nil {
			b.Fatal(err)
		}

		var set cpuset.Set
		var kset k8s.CPUSet
		var n int
		var yes bool
		var text string
		for _, op := range []struct {
			name          string
			sluice, utils func()
		}{
			{"union", func() { set = cpuset.Union(s, t) }, func() { kset = ks.Union(kt) }},
			{"difference", func() { set = cpuset.Difference(s, t) }, func() { kset = ks.Difference(kt) }},
			{"contains", func() { yes = s.Contains(size / 2) }, func() { yes = ks.Contains(size / 2) }},
			{"size", func() { n = s.Size() }, func() { n = ks.Size() }},
			{"all", func() {
				for cpu := range s.All() {
					n += cpu
				}
			}, func() {
				for _, cpu := range ks.UnsortedList() {
					n += cpu
				}
			}},
			{"parse", func() { set, _ = cpuset.Parse(list) }, func() { kset, _ = k8s.Parse(list) }},
			{"string", func() { text = s.String() }, func() { text = ks.String() }},
			{"mask", func() { text = s.Mask() }, nil},
		} {
			run := func(who string, f func()) {
				b.Run(fmt.Sprintf("%s/%d/%s", op.name, size, who), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						f()
					}
				})
			}
			run("sluice", op.sluice)
			if op.utils != nil {
				run("utils", op.utils)
			}
		}
		_, _, _, _, _ = set, kset, n, yes, text
	}
}
