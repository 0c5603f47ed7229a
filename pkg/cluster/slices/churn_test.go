package slices

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// TestChurn counts how often a node with 128 CPUs on four NUMA nodes publishes its devices in an hour in
// which something begins or ends there every two seconds. Claims alone publish nothing. Pins of other
// kinds and services publish what falls at once, and at most three times a minute that it rises.
func TestChurn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		claims bool
		most   int // publications in the hour
	}{{"claims", true, 1}, {"pins and services", false, 60 * 12}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, err := synth.Machine("2 packages 2 nodes 16 cores 2 threads memory 256G")
			if err != nil {
				t.Fatal(err)
			}
			l, now := placement.New(placement.Default(), m), time.Time{}
			random := rand.New(rand.NewPCG(1, 0))
			held := map[string]bool{}
			var published []Device
			var at time.Time
			publications := 0
			for second := range 3600 {
				now = now.Add(time.Second)
				if second%2 == 0 {
					begin(random, l, test.claims, held, now)
				}
				c := &status.Claims{}
				for _, d := range l.Claimable(claim.NUMA) {
					c.Devices = append(c.Devices, status.ClaimDevice{Device: d.Domain, CPUs: d.Claimable, ThreadsPerCore: 2})
				}
				devices := Devices(c)
				if Due(published, devices, now.Sub(at)) {
					published, at = slices.Clone(devices), now
					publications++
				}
			}
			t.Logf("%d publications, %.1f a minute", publications, float64(publications)/60)
			if publications < 1 || publications > test.most {
				t.Errorf("%d publications in an hour, want 1 to %d", publications, test.most)
			}
		})
	}
}

// begin lets one of 40 users of CPUs begin, or end if it is there.
func begin(random *rand.Rand, l *placement.Ledger, claims bool, held map[string]bool, now time.Time) {
	id := fmt.Sprint("user-", random.IntN(40))
	if held[id] {
		l.Unreserve(id)
		l.Release(id)
		delete(held, id)
		return
	}
	cpus := 2 * (1 + random.IntN(3))
	var err error
	if claims {
		node := random.IntN(4)
		free := l.Claimable(claim.NUMA)[node].Claimable
		for _, h := range l.Claims() {
			if h.CPUs.SubsetOf(l.Machine().Nodes[node].CPUs) {
				free -= h.CPUs.Size()
			}
		}
		if free < cpus {
			return // the scheduler knows what was published
		}
		_, err = l.Reserve(placement.Claim{ID: id, Class: workload.LSE, CPUs: cpus, Domain: numa(node)}, now)
	} else {
		r := workload.Request{Class: []workload.Class{workload.LSE, workload.LSR, workload.LS}[random.IntN(3)], CPUs: cpus, Milli: workload.MilliCPU(cpus) * 1000}
		_, err = l.Place(placement.Identity{ID: id, Pod: id}, r, cpuset.Set{}, now)
	}
	held[id] = err == nil
	if err != nil {
		delete(held, id)
	}
}
