package slices

import (
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// A claim is unused if no container has any of its CPUs, of whichever part. Without certainty none is.
func TestUnused(t *testing.T) {
	t.Parallel()
	runs := func(class workload.Class, cpus cpuset.Set) status.Container {
		return status.Container{Class: class, CPUs: cpus}
	}
	fast, wide := Reserved{"u-1", "shop", "fast"}, Reserved{"u-2", "shop", "wide"}
	for name, test := range map[string]struct {
		change func(*status.Status)
		want   []Reserved
	}{
		"no container": {func(*status.Status) {}, []Reserved{fast, wide}},
		"others": {func(s *status.Status) {
			s.Containers = []status.Container{runs(workload.LS, cpuset.Of(0, 1)), runs(workload.BE, cpuset.Set{})}
		}, []Reserved{fast, wide}},
		"one of its CPUs":        {func(s *status.Status) { s.Containers = []status.Container{runs(workload.LSE, cpuset.Of(3))} }, []Reserved{wide}},
		"one of its parts":       {func(s *status.Status) { s.Containers = []status.Container{runs(workload.LSE, cpuset.Of(6, 7))} }, []Reserved{fast}},
		"a pin without CPUs":     {func(s *status.Status) { s.Containers = []status.Container{runs(workload.LSE, cpuset.Set{})} }, nil},
		"CPUs are offline":       {func(s *status.Status) { s.Claims.Reserved[0].Problem = "lacks CPU 2" }, []Reserved{wide}},
		"all CPUs are offline":   {func(s *status.Status) { s.Claims.Reserved[2].CPUs = cpuset.Set{} }, []Reserved{fast}},
		"no runtime":             {func(s *status.Status) { s.Runtime.Connected = false }, nil},
		"containers are unknown": {func(s *status.Status) { s.Claims = nil }, nil},
		"another form":           {func(s *status.Status) { s.Claims.Reserved[0].Ref = "fast" }, []Reserved{wide}},
		"no number of the part":  {func(s *status.Status) { s.Claims.Reserved[0].ID = "u" }, []Reserved{wide}},
	} {
		s := &status.Status{Runtime: status.Runtime{Connected: true}, Claims: &status.Claims{Reserved: []status.Claim{
			{ID: "u-1-0", Ref: "claim shop/fast", CPUs: cpuset.Of(2, 3)},
			{ID: "u-2-0", Ref: "claim shop/wide", CPUs: cpuset.Of(4, 5)},
			{ID: "u-2-1", Ref: "claim shop/wide", CPUs: cpuset.Of(6, 7)},
		}}}
		test.change(s)
		if got := Unused(s); !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
