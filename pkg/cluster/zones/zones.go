// Package zones decides what a node publishes in its NodeResourceTopology, and when: a zone for each
// NUMA node, with the CPUs that pins can have there.
package zones

import (
	"slices"
	"time"

	devices "github.com/sluice-dev/sluice/pkg/cluster/slices"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Zone is a NUMA node.
type Zone struct {
	Node  int   // number of the NUMA node
	CPUs  int   // that are online
	Pins  int   // CPUs that pins have there, and can have
	Free  int   // CPUs that one new pin can have there
	Costs []int // distances to the zones, in their order; empty if unknown
	Whole []Amount
}

// Amount is what the whole node has of a resource, as Kubernetes writes it. Each zone has all of it, since
// Sluice binds no pod that shares CPUs to a NUMA node.
type Amount struct{ Name, Quantity string }

// most is how many zones a scheduler can take. The plugin NodeResourceTopologyMatch of
// kubernetes-sigs/scheduler-plugins ends with a panic at a NUMA node 64 (createNUMANodeList in
// pkg/noderesourcetopology/pluginhelpers.go, v0.33.5).
const most = 64

// Of lists the zones of a machine, in the order of their numbers. promised is how many CPUs pods request as
// pins that they do not have yet: nobody knows where they will have them, so that each zone lacks all of them.
//
// The numbers have no gaps, since that plugin takes a NUMA node's number for an index into the zones
// (scoreForEachNUMANode in score.go): a number without a NUMA node is a zone without CPUs.
func Of(m *status.Machine, promised int64, whole []Amount) []Zone {
	var zones []Zone
	for i := range m.NUMANodes {
		n := &m.NUMANodes[i]
		if n.ID < len(zones) || n.ID >= most {
			continue
		}
		for len(zones) < n.ID {
			zones = append(zones, Zone{Node: len(zones), Whole: whole})
		}
		z := Zone{Node: n.ID, CPUs: n.CPUs.Size(), Whole: whole}
		z.Pins = min(z.CPUs, max(0, n.PinnableCPUs)+cpuset.IntersectSize(n.CPUs, m.Pinned))
		z.Free = int(max(0, min(int64(z.Pins), int64(n.PinnableCPUs))-max(0, promised)))
		zones = append(zones, z)
	}
	costs(m, zones)
	return zones
}

// costs sets the distances of the zones, if the machine has those of all of them.
func costs(m *status.Machine, zones []Zone) {
	for i := range m.NUMANodes {
		if n := &m.NUMANodes[i]; n.ID != i || len(n.Distances) != len(m.NUMANodes) {
			return
		}
	}
	for i := range zones {
		zones[i].Costs = m.NUMANodes[i].Distances[:len(zones)]
	}
}

// Due reports whether zones are to be published in place of others that have been published for so
// long. What a node no longer has goes at once.
func Due(published, now []Zone, since time.Duration) bool {
	return !slices.EqualFunc(published, now, equal) && (devices.Calm(since) || falls(published, now))
}

func equal(x, y Zone) bool {
	return x.Node == y.Node && x.CPUs == y.CPUs && x.Pins == y.Pins && x.Free == y.Free && slices.Equal(x.Costs, y.Costs) && slices.Equal(x.Whole, y.Whole)
}

// falls reports whether some zone has fewer free CPUs than before, or is gone.
func falls(before, now []Zone) bool {
	return slices.ContainsFunc(before, func(b Zone) bool { return b.Node >= len(now) || now[b.Node].Free < b.Free })
}
