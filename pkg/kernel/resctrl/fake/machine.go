// Package fake is a resctrl tree in memory for tests. It accepts and refuses what the kernel does,
// with the same errno and the same text in info/last_cmd_status, by the rules of
// fs/resctrl/ctrlmondata.c and fs/resctrl/rdtgroup.c (6.16).
package fake

import (
	"maps"
	"slices"
	"sync"
)

// Cache describes a cache that can be divided.
type Cache struct {
	IDs       []int
	Mask      uint64
	MinBits   int
	Sparse    bool
	Shareable uint64 // ways that other hardware uses as well
	CDP       bool   // with code and data prioritization
}

// Bandwidth describes memory bandwidth that can be limited.
type Bandwidth struct {
	IDs            []int
	Min, Max, Gran uint64
	Linear         bool // true on Intel, false on AMD
	MBps           bool // mounted with the option mba_MBps
}

// Machine describes the hardware.
type Machine struct {
	L2, L3   *Cache
	MB, SMBA *Bandwidth
	CLOSIDs  int
	RMIDs    int      // 0 if the machine can't monitor
	Events   []string // monitoring events of each L3 cache
}

func events() []string { return []string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"} }

// Intel returns a two-socket Xeon: caches of 11 ways, and bandwidth in percent.
func Intel() Machine {
	ids := []int{0, 1}
	return Machine{
		L3:      &Cache{IDs: ids, Mask: 0x7ff, MinBits: 1, Shareable: 0x600},
		MB:      &Bandwidth{IDs: ids, Min: 10, Max: 100, Gran: 10, Linear: true},
		CLOSIDs: 8, RMIDs: 64, Events: events(),
	}
}

// CDP returns a Xeon whose L3 is mounted with code and data prioritization, which halves the
// number of CLOSIDs. It can divide L2 as well.
func CDP() Machine {
	m := Intel()
	m.L3.CDP, m.CLOSIDs = true, 4
	m.L2 = &Cache{IDs: []int{0, 1, 2, 3}, Mask: 0xffff, MinBits: 1}
	return m
}

// Haswell returns a machine whose masks need at least two adjacent ways, and which can't limit
// bandwidth.
func Haswell() Machine {
	return Machine{L3: &Cache{IDs: []int{0}, Mask: 0xfffff, MinBits: 2}, CLOSIDs: 4}
}

// AMD returns an EPYC: one cache per core complex, gaps in the cache ids and allowed in masks,
// bandwidth in 1/8 GB/s, and slow memory.
func AMD() Machine {
	ids := []int{0, 1, 4, 12}
	return Machine{
		L3:      &Cache{IDs: ids, Mask: 0xffff, MinBits: 1, Sparse: true},
		MB:      &Bandwidth{IDs: ids, Max: 2048, Gran: 1},
		SMBA:    &Bandwidth{IDs: ids, Max: 2048, Gran: 1},
		CLOSIDs: 16, RMIDs: 256, Events: events(),
	}
}

// MBps returns Intel mounted with the option mba_MBps.
func MBps() Machine {
	m := Intel()
	m.MB.MBps = true
	return m
}

// schema describes a line of schemata files.
type schema struct {
	name      string
	cache     *Cache
	bandwidth *Bandwidth
}

func (s *schema) ids() []int {
	if s.cache != nil {
		return s.cache.IDs
	}
	return s.bandwidth.IDs
}

func (m *Machine) schemas() []schema {
	var all []schema
	caches := []struct {
		name string
		c    *Cache
	}{{"L3", m.L3}, {"L2", m.L2}}
	for _, x := range caches {
		switch {
		case x.c == nil:
		case x.c.CDP:
			all = append(all, schema{name: x.name + "CODE", cache: x.c}, schema{name: x.name + "DATA", cache: x.c})
		default:
			all = append(all, schema{name: x.name, cache: x.c})
		}
	}
	if m.MB != nil {
		all = append(all, schema{name: "MB", bandwidth: m.MB})
	}
	if m.SMBA != nil {
		all = append(all, schema{name: "SMBA", bandwidth: m.SMBA})
	}
	return all
}

// most returns the bandwidth of a group without a limit.
func (b *Bandwidth) most() uint64 {
	if b.MBps {
		return 1<<32 - 1
	}
	return b.Max
}

// Kernel is a mounted resctrl with the processes of the machine. It is safe for concurrent use and
// implements resctrl.Files.
type Kernel struct {
	machine Machine

	mu     sync.Mutex
	groups map[string]*group // by name; "" is the default group
	tasks  map[int]task      // by thread ID
	procs  map[int][]int     // thread IDs by process ID
	limbo  int               // RMIDs of removed groups that are not free yet
	dirty  bool              // a removed group leaves its RMID in limbo
	status string
	writes []string // each write to a schemata file, for example "group: L3:0=f\n"
}

// task says which groups a thread is in.
type task struct{ group, watch string }

type group struct {
	exclusive bool
	values    map[string]map[int]uint64
	watches   map[string]map[string]string // counters of each monitoring group, by name, for example "mon_L3_00/llc_occupancy"
}

// New returns a machine with resctrl mounted.
func New(m Machine) *Kernel {
	k := &Kernel{machine: m, groups: map[string]*group{}, tasks: map[int]task{}, procs: map[int][]int{}}
	root := &group{values: map[string]map[int]uint64{}, watches: map[string]map[string]string{}}
	for _, s := range m.schemas() {
		root.values[s.name] = map[int]uint64{}
		for _, id := range s.ids() {
			if s.cache != nil {
				root.values[s.name][id] = s.cache.Mask
			} else {
				root.values[s.name][id] = s.bandwidth.most()
			}
		}
	}
	k.groups[""] = root
	return k
}

// Start adds a process with these threads to the default group.
func (k *Kernel) Start(pid int, tids ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.procs[pid] = append(k.procs[pid], tids...)
	for _, tid := range tids {
		k.tasks[tid] = task{}
	}
}

// Clone adds a thread to a process, in the groups of the thread that created it.
func (k *Kernel) Clone(pid, parent, tid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.procs[pid] = append(k.procs[pid], tid)
	k.tasks[tid] = k.tasks[parent]
}

// End ends threads. Their process still lists them, as a list does that was read before.
func (k *Kernel) End(tids ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, tid := range tids {
		delete(k.tasks, tid)
	}
}

// Of returns the group and the monitoring group of a thread.
func (k *Kernel) Of(tid int) (group, watch string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tasks[tid].group, k.tasks[tid].watch
}

// Groups lists the control groups except the default one.
func (k *Kernel) Groups() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := slices.Sorted(maps.Keys(k.groups))
	return names[1:]
}

// Limbo says whether data of removed groups stays in the cache, so that their RMIDs are not free.
func (k *Kernel) Limbo(stay bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dirty = stay; !stay {
		k.limbo = 0
	}
}

// Count sets a counter of a monitoring group to the text that the kernel would show, for example
// "4096" or "Unavailable".
func (k *Kernel) Count(group, watch, counter, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.groups[group].watches[watch][counter] = text
}

// Writes returns and forgets what was written to schemata files, accepted or not, for example
// "group: L3:0=f\n".
func (k *Kernel) Writes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	writes := k.writes
	k.writes = nil
	return writes
}
