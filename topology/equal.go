package topology

import (
	"slices"
)

// Equal reports whether both machines are the same in every respect.
func (m *Machine) Equal(o *Machine) bool {
	return m.Online == o.Online && m.Offline == o.Offline &&
		m.Isolated == o.Isolated && m.NoHzFull == o.NoHzFull &&
		slices.Equal(m.CPUs, o.CPUs) &&
		slices.Equal(m.Cores, o.Cores) &&
		slices.Equal(m.Clusters, o.Clusters) &&
		slices.Equal(m.L2s, o.L2s) &&
		slices.Equal(m.L3s, o.L3s) &&
		slices.Equal(m.Dies, o.Dies) &&
		slices.Equal(m.Packages, o.Packages) &&
		slices.EqualFunc(m.Nodes, o.Nodes, func(a, b Node) bool {
			return a.ID == b.ID && a.CPUs == b.CPUs && a.MemoryBytes == b.MemoryBytes && a.Tier == b.Tier &&
				slices.Equal(a.Distances, b.Distances)
		}) &&
		slices.Equal(m.Devices, o.Devices)
}
