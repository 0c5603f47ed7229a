package nodestatus

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// claims is nil if the plugin reserves no CPUs for resource claims, or does not know the containers yet.
func (r *Reporter) claims() *status.Claims {
	if r.from.ClaimDevices == 0 || !r.Synced {
		return nil
	}
	m := r.Ledger.Machine()
	c := &status.Claims{}
	may := r.Authority().Cpusets
	for _, domain := range r.Ledger.Claimable(r.from.ClaimDevices) {
		if !may {
			domain.Claimable = 0
		}
		c.Devices = append(c.Devices, device(m, domain))
	}
	for _, h := range r.Ledger.Claims() {
		c.Reserved = append(c.Reserved, status.Claim{ID: h.ID, Ref: h.Ref, Device: h.Domain, Class: h.Request.Class, CPUs: h.CPUs, Problem: h.Short})
	}
	return c
}

func device(m *topology.Machine, domain placement.Domain) status.ClaimDevice {
	d := status.ClaimDevice{Device: domain.Domain, CPUs: domain.Claimable, Nodes: m.NodesOf(domain.CPUs), L3: topology.None, CoreKind: topology.Performance.String()}
	var l3s cpuset.Set
	for id := range domain.CPUs.All() {
		cpu, ok := m.CPU(id)
		if !ok {
			continue
		}
		if id == domain.CPUs.First() {
			d.CoreKind = cpu.Kind.String()
		}
		d.ThreadsPerCore = max(d.ThreadsPerCore, m.Cores[cpu.Core].CPUs.Size())
		d.L3Bytes = max(d.L3Bytes, m.L3s[cpu.L3].SizeBytes)
		l3s.Add(m.L3s[cpu.L3].CPUs.First())
	}
	if i := slices.IndexFunc(m.Nodes, func(n topology.Node) bool { return d.Nodes == cpuset.Of(n.ID) }); i >= 0 {
		d.Distances = m.Nodes[i].Distances
	}
	if l3s.Size() == 1 {
		d.L3 = l3s.First()
	}
	return d
}
