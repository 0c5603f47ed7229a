package vm

import "fmt"

// topology describes the guest's machine, in which every die is a NUMA node.
type topology struct {
	sockets, dies, cores, threads int // dies per socket, cores per die, threads per core
	memory                        int // MiB per node; 0 for the default
}

// parseTopology parses "2x2x2": sockets, dies per socket, and cores per die, which have two
// threads.
func parseTopology(text string) (topology, error) {
	t := topology{threads: 2}
	if n, err := fmt.Sscanf(text+".", "%dx%dx%d.", &t.sockets, &t.dies, &t.cores); n != 3 || err != nil || min(t.sockets, t.dies, t.cores) < 1 {
		return t, fmt.Errorf("TOPO=%q is not sockets x dies x cores, as in 2x2x2", text)
	}
	// QEMU's q35 without an IOMMU supports 255 CPUs.
	if cpus := t.cpus(); cpus > 255 {
		return t, fmt.Errorf("TOPO=%q has %d CPUs, more than QEMU's 255", text, cpus)
	}
	return t, nil
}

func (t topology) nodes() int { return t.sockets * t.dies }
func (t topology) cpus() int  { return t.nodes() * t.cores * t.threads }

// memoryPerNode returns the MiB per node. A guest with one node has its root folder in that node's
// memory.
func (t topology) memoryPerNode() int {
	switch {
	case t.memory > 0:
		return t.memory
	case t.nodes() == 1:
		return 2048
	}
	return 1024
}

// flags returns QEMU's flags. Distances are 10 within a node, 12 within a socket and 21 between
// sockets.
func (t topology) flags() []string {
	flags := []string{
		"-m", fmt.Sprintf("%dM", t.nodes()*t.memoryPerNode()),
		"-smp", fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", t.cpus(), t.sockets, t.dies, t.cores, t.threads),
	}
	for node := range t.nodes() {
		flags = append(flags,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", node, t.memoryPerNode()),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=m%d", node, node))
	}
	for node := range t.nodes() {
		cpus := fmt.Sprintf("cpu,node-id=%d,socket-id=%d", node, node/t.dies)
		if t.dies > 1 { // QEMU refuses the ID of an only die
			cpus += fmt.Sprintf(",die-id=%d", node%t.dies)
		}
		flags = append(flags, "-numa", cpus)
		for other := range node {
			distance := 21
			if other/t.dies == node/t.dies {
				distance = 12
			}
			flags = append(flags, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", other, node, distance))
		}
	}
	return flags
}

func (t topology) String() string { return fmt.Sprintf("%dx%dx%d", t.sockets, t.dies, t.cores) }
