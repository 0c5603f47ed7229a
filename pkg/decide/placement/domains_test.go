package placement

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func listed(l *Ledger, kind claim.DomainKind) string {
	var all []string
	for _, d := range l.Claimable(kind) {
		all = append(all, fmt.Sprintf("%s=%d", d, d.Claimable))
	}
	return strings.Join(all, " ")
}

// The names of devices with claims stay when their lowest CPU goes offline, and each name leads to the CPUs
// for which it stands. A ledger whose devices are of another kind keeps the claims, and lists what they leave.
func TestDomainsKeepTheirNames(t *testing.T) {
	t.Parallel()
	whole := machine(t, "1 packages 2 nodes 4 cores 2 threads l3 2 cores") // the cores of node 0 are CPUs 0 with 8, to 3 with 11
	l := New(Default(), whole)
	reserve := func(id string, d claim.Domain, cpus int, want cpuset.Set) {
		t.Helper()
		c := Claim{ID: id, Ref: "claim default/" + id, Class: workload.LSE, Domain: d, CPUs: cpus}
		if got, err := l.Reserve(c, start); err != nil || got != want {
			t.Fatalf("%s of %s has %v: %v", id, d, got, err)
		}
	}
	expect := func(kind claim.DomainKind, want string) {
		t.Helper()
		if got := listed(l, kind); got != want {
			t.Errorf("listed is %s, want %s", got, want)
		}
	}
	expect(claim.NUMA, "numa0=6 numa1=8")
	expect(claim.L3, "l3-0=2 l3-2=4 l3-4=4 l3-6=4")
	expect(claim.Core, "core0=0 core1=2 core2=2 core3=2 core4=2 core5=2 core6=2 core7=2")
	reserve("core", claim.Domain{Kind: claim.Core, Number: 3}, 0, cpuset.Of(3, 11))
	expect(claim.Core, "core0=0 core1=2 core2=2 core3=2 core4=2 core5=2 core6=2 core7=2")
	expect(claim.L3, "l3-0=2 l3-2=2 l3-4=4 l3-6=4")
	expect(claim.NUMA, "numa0=4 numa1=8")
	reserve("l3", claim.Domain{Kind: claim.L3, Number: 4}, 2, cpuset.Of(4, 12))
	reserve("numa", claim.Domain{Kind: claim.NUMA, Number: 1}, 2, cpuset.Of(5, 13))
	expect(claim.Core, "core0=0 core1=2 core2=2 core3=2 core4=0 core5=0 core6=2 core7=2")
	expect(claim.L3, "l3-0=2 l3-2=2 l3-4=2 l3-6=4")
	expect(claim.NUMA, "numa0=4 numa1=6")

	l.SetMachine(without(whole, cpuset.Of(2, 3, 4)))
	expect(claim.Core, "core0=0 core1=2 core10=1 core3=1 core5=0 core12=0 core6=2 core7=2")
	expect(claim.L3, "l3-0=2 l3-10=1 l3-4=2 l3-6=4")
	if again, err := l.Reserve(Claim{ID: "core", Class: workload.LSE, Domain: claim.Domain{Kind: claim.Core, Number: 3}}, start); err != nil || again != cpuset.Of(3, 11) {
		t.Errorf("prepared again, the claim has %v: %v", again, err)
	}
	reserve("late", claim.Domain{Kind: claim.Core, Number: 10}, 0, cpuset.Of(10))
	for _, taken := range []claim.Domain{{Kind: claim.Core, Number: 11}, {Kind: claim.Core, Number: 2}, {Kind: claim.L3, Number: 2}, {Kind: claim.Core, Number: 200}} {
		c := Claim{ID: "x", Ref: "claim default/x", Class: workload.LSE, Domain: taken, CPUs: 1}
		if got, err := l.Reserve(c, start); !IsShortage(err) || !strings.Contains(err.Error(), "claim default/x asks for CPUs of the ") {
			t.Errorf("%s is given as %v: %v", taken, got, err)
		}
	}
	l.SetMachine(whole)
	expect(claim.Core, "core0=0 core1=2 core10=2 core3=2 core4=0 core5=0 core6=2 core7=2")
	if h, _ := l.Claim("late"); h.CPUs != cpuset.Of(2, 10) || h.Request.CPUs != 1 {
		t.Errorf("the claim of half a core has %v, and asked for %d", h.CPUs, h.Request.CPUs)
	}
	l.Unreserve("late")
	expect(claim.Core, "core0=0 core1=2 core2=2 core3=2 core4=0 core5=0 core6=2 core7=2")
}
