package agent

import (
	"path"
	"testing"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// BenchmarkPassRefused measures a pass over 500 containers for each of which the kernel refuses
// two settings: CPUs that the pod lacks, and a burst above the quota. The baseline is
// BenchmarkPass, in which no setting is wrong.
func BenchmarkPassRefused(b *testing.B) {
	h := newBed(b, benchKnobs, 500)
	for _, c := range h.Order {
		want, _ := h.Ledger.Assignment(c.ID)
		other := cpuset.Difference(h.Ledger.Machine().Online, want.CPUs)
		if want.CPUs.IsEmpty() || other.IsEmpty() {
			b.Skip("SKIPPED: takes a machine with two cores")
		}
		h.tree.Write(c.Path, "cpuset.cpus", other.String())
		h.tree.Write(c.Path, "cpu.cfs_burst_us", "0")
		h.tree.Write(c.Path, "cpu.cfs_quota_us", "50000")
	}
	for _, c := range h.Order {
		if now, err := h.Kernel.Read(c.Path, knobs.CPUs); err == nil {
			h.tree.Write(path.Dir(c.Path), "cpuset.cpus", now.String())
		}
	}
	pass := func() {
		if err := h.events.Do("pass", func() error { h.pass(); return nil }); err != nil {
			b.Fatal(err)
		}
	}
	pass()
	if got := h.refused(); got < 2*len(h.Order) {
		b.Fatalf("%d writes are refused, want %d at least", got, 2*len(h.Order))
	}
	used, refused := processor(b), h.refused()
	for b.Loop() {
		pass()
	}
	b.ReportMetric(float64((processor(b)-used).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
	b.ReportMetric(float64(h.refused()-refused)/float64(b.N), "refused/op")
	b.ReportAllocs()
}
