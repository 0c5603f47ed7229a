package vm

import "fmt"

// topology is the guest's machine: every die is a NUMA node.
type topology struct {
	sockets, dies, cores, threads int // dies in a socket, cores in a die, threads of a core
	memory                        int // MiB of a node, 0 the usual
}

// parseTopology reads "2x2x2": sockets, dies in each, cores in each of those, which have
// two threads.
func parseTopology(text string) (topology, error) {
	t := topology{threads: 2}
	if n, err := fmt.Sscanf(text+".", "%dx%dx%d.", &t.sockets, &t.dies, &t.cores); n != 3 || err != nil || min(t.sockets, t.dies, t.cores) < 1 {
		return t, fmt.Errorf("TOPO=%q is not sockets x dies x cores, as in 2x2x2", text)
	}
	// QEMU's q35 without an IOMMU addresses 255 CPUs.
	if cpus := t.cpus(); cpus > 255 {
		return t, fmt.Errorf("TOPO=%q has %d CPUs, more than QEMU's 255", text, cpus)
	}
	return t, nil
}

func (t topology) nodes() int { return t.sockets * t.dies }
func (t topology) cpus() int  { return t.nodes() * t.cores * t.threads }

// memoryPerNode is in MiB. A guest of one node has its root folder in that node's memory.
func (t topology) memoryPerNode() int {
	switch {
	case t.memory > 0:
		return t.memory
	case t.nodes() == 1:
		return 2048
	}
	return 1024
}

// flags are QEMU's. Distances are 10 within a node, 12 within a socket and 21
// between sockets.
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
		if t.dies > 1 { // QEMU refuses the id of the only die
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
