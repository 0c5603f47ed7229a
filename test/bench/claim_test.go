package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/test/protocol"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// BenchmarkClaim measures the life of a container whose CPUs a resource claim has reserved before.
func BenchmarkClaim(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("cpus=%d/containers=%d", size.cpus, size.containers), func(b *testing.B) {
			prepared := claim.Claim{UID: "measured", Namespace: "default", Name: "measured", Devices: []claim.Device{{
				Domain: claim.Domain{Kind: claim.NUMA}, CPUs: 4, Class: workload.LSE, Reserved: cpuset.Of(2, 3, size.cpus/2+2, size.cpus/2+3), // with their siblings
			}}}
			floor := newSide(b, size.containers, nil, "guaranteed")
			floor.launch(b, "")
			ours := newSide(b, size.containers, nil, "guaranteed")
			ours.launchWithClaim(b, size.machine, &prepared)
			alternate(b, floor, ours, protocol.Requests{CPU: 4000, Memory: 1 << 30, CDIDevices: []string{claim.CDIName(prepared.ID(0))}})
			s, err := ours.plugin.Status()
			if err != nil || s.Claims == nil || len(s.Claims.Reserved) != 1 || s.Counters.Refused > 0 {
				b.Fatalf("the claim is not used: %+v, %v; the log: %s", s, err, ours.plugin.Log)
			}
			report(b, "create", creates(floor.took), creates(ours.took)) // first, since report sorts
			report(b, "total", floor.total, ours.total)
			report(b, "handler", floor.took, ours.took)
		})
	}
}

// launchWithClaim starts sluice where a claim was prepared by an earlier process.
func (s *side) launchWithClaim(b *testing.B, machine string, prepared *claim.Claim) {
	b.Helper()
	dir := b.TempDir()
	spec, err := prepared.Spec()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, claim.FileOf(prepared.UID)), spec, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	s.plugin = s.Sluice(b, sluice, s.Host(b, machine), "", "--cdi-dir", dir)
}
