package boot

import "fmt"

// Topology describes the guest's machine, in which every die is a NUMA node.
type Topology struct {
	Sockets, Dies, Cores, Threads int // dies per socket, cores per die, threads per core
	Memory                        int // MiB per node; 0 for the default
}

// ParseTopology parses "2x2x2": sockets, dies per socket, and cores per die, which have two
// threads.
func ParseTopology(text string) (Topology, error) {
	t := Topology{Threads: 2}
	if n, err := fmt.Sscanf(text+".", "%dx%dx%d.", &t.Sockets, &t.Dies, &t.Cores); n != 3 || err != nil || min(t.Sockets, t.Dies, t.Cores) < 1 {
		return t, fmt.Errorf("TOPO=%q is not sockets x dies x cores, as in 2x2x2", text)
	}
	// QEMU's q35 without an IOMMU supports 255 CPUs.
	if cpus := t.cpus(); cpus > 255 {
		return t, fmt.Errorf("TOPO=%q has %d CPUs, more than QEMU's 255", text, cpus)
	}
	return t, nil
}

func (t Topology) nodes() int { return t.Sockets * t.Dies }
func (t Topology) cpus() int  { return t.nodes() * t.Cores * t.Threads }

// MemoryPerNode returns the MiB per node. A guest with one node has its root folder in that node's
// memory.
func (t Topology) MemoryPerNode() int {
	switch {
	case t.Memory > 0:
		return t.Memory
	case t.nodes() == 1:
		return 2048
	}
	return 1024
}

// flags returns QEMU's flags. Distances are 10 within a node, 12 within a socket and 21 between
// sockets.
func (t Topology) flags() []string {
	flags := []string{
		"-m", fmt.Sprintf("%dM", t.nodes()*t.MemoryPerNode()),
		"-smp", fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", t.cpus(), t.Sockets, t.Dies, t.Cores, t.Threads),
	}
	for node := range t.nodes() {
		flags = append(flags,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", node, t.MemoryPerNode()),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=m%d", node, node))
	}
	for node := range t.nodes() {
		cpus := fmt.Sprintf("cpu,node-id=%d,socket-id=%d", node, node/t.Dies)
		if t.Dies > 1 { // QEMU refuses the ID of an only die
			cpus += fmt.Sprintf(",die-id=%d", node%t.Dies)
		}
		flags = append(flags, "-numa", cpus)
		for other := range node {
			distance := 21
			if other/t.Dies == node/t.Dies {
				distance = 12
			}
			flags = append(flags, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", other, node, distance))
		}
	}
	return flags
}

func (t Topology) String() string { return fmt.Sprintf("%dx%dx%d", t.Sockets, t.Dies, t.Cores) }
