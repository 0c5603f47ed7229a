package nodestatus

import (
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology"
)

// claims is nil if the plugin reserves no CPUs for resource claims, or does not know the containers yet.
func (r *Reporter) claims() *status.Claims {
	if !r.from.Claims || !r.Synced {
		return nil
	}
	m := r.Ledger.Machine()
	c := &status.Claims{}
	claimable := r.Ledger.Claimable(nil)
	may := r.Authority().Cpusets
	for i := range m.Nodes {
		node := &m.Nodes[i]
		if node.CPUs.IsEmpty() {
			continue
		}
		n := status.ClaimNode{Node: node.ID, CPUs: claimable[i], ThreadsPerCore: m.ThreadsPerCore(), CoreKind: topology.Performance.String()}
		if cpu, ok := m.CPU(node.CPUs.First()); ok {
			n.CoreKind = cpu.Kind.String()
		}
		if !may {
			n.CPUs = 0
		}
		for j := range m.L3s {
			if m.L3s[j].CPUs.Overlaps(node.CPUs) {
				n.L3Bytes = max(n.L3Bytes, m.L3s[j].SizeBytes)
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, h := range r.Ledger.Claims() {
		c.Reserved = append(c.Reserved, status.Claim{ID: h.ID, Ref: h.Ref, Class: h.Request.Class, CPUs: h.CPUs, Problem: h.Short})
	}
	return c
}
