package slices

import (
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// A device is unhealthy while a claim lacks CPUs of it, also one that is offered no more.
func TestHealth(t *testing.T) {
	t.Parallel()
	node := func(number int) claim.Domain { return claim.Domain{Kind: claim.NUMA, Number: number} }
	c := &status.Claims{
		Devices: []status.ClaimDevice{{Device: node(0), CPUs: 4}, {Device: node(1)}},
		Reserved: []status.Claim{
			{Ref: "claim a/x", Device: node(1)}, {Ref: "claim a/y", Device: node(1), Problem: "has 1 of 2 CPUs"},
			{Ref: "claim a/z", Device: claim.Domain{Kind: claim.Core, Number: 3}, Problem: "has 0 of 2 CPUs"}, {Ref: "claim b/y", Device: node(1), Problem: "has 3 of 4 CPUs"},
		},
	}
	want := []Health{
		{node(0), ""}, {node(1), "claim a/y has 1 of 2 CPUs; claim b/y has 3 of 4 CPUs"}, {claim.Domain{Kind: claim.Core, Number: 3}, "claim a/z has 0 of 2 CPUs"},
	}
	if got := HealthOf(c); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := HealthOf(nil); got != nil {
		t.Errorf("%+v of nothing", got)
	}
}
