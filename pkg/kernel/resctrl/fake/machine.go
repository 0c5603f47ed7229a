// Package fake is resctrl in memory, for tests: a tree of files that takes and
// refuses what the kernel takes and refuses, with the same errno and the same text in
// info/last_cmd_status. The rules are those of fs/resctrl/ctrlmondata.c and
// fs/resctrl/rdtgroup.c (6.16).
package fake

import (
	"maps"
	"slices"
	"sync"
)

// Cache is a cache that can be divided.
type Cache struct {
	IDs       []int
	Mask      uint64
	MinBits   int
	Sparse    bool
	Shareable uint64 // ways that other hardware uses
	CDP       bool   // code and data apart
}

// Bandwidth is memory bandwidth that can be limited.
type Bandwidth struct {
	IDs            []int
	Min, Max, Gran uint64
	Linear         bool // Intel's; AMD's isn't
	MBps           bool // mount option mba_MBps
}

// Machine is the hardware.
type Machine struct {
	L2, L3   *Cache
	MB, SMBA *Bandwidth
	CLOSIDs  int
	RMIDs    int      // 0: can't watch
	Events   []string // of each L3 cache
}

func events() []string { return []string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"} }

// Intel is a two-socket Xeon: 11 ways, bandwidth in percent.
func Intel() Machine {
	ids := []int{0, 1}
	return Machine{
		L3:      &Cache{IDs: ids, Mask: 0x7ff, MinBits: 1, Shareable: 0x600},
		MB:      &Bandwidth{IDs: ids, Min: 10, Max: 100, Gran: 10, Linear: true},
		CLOSIDs: 8, RMIDs: 64, Events: events(),
	}
}

// CDP is a Xeon whose L3 is mounted with code and data apart, which halves the
// CLOSIDs, and that can divide L2 as well.
func CDP() Machine {
	m := Intel()
	m.L3.CDP, m.CLOSIDs = true, 4
	m.L2 = &Cache{IDs: []int{0, 1, 2, 3}, Mask: 0xffff, MinBits: 1}
	return m
}

// Haswell needs two ways in a row and can't limit bandwidth.
func Haswell() Machine {
	return Machine{L3: &Cache{IDs: []int{0}, Mask: 0xfffff, MinBits: 2}, CLOSIDs: 4}
}

// AMD is an EPYC: a cache for each complex, with gaps in the ids, masks with gaps,
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

// MBps is Intel with the mount option mba_MBps.
func MBps() Machine {
	m := Intel()
	m.MB.MBps = true
	return m
}

// schema is a line of schemata files.
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

// most is what a group has that isn't limited.
func (b *Bandwidth) most() uint64 {
	if b.MBps {
		return 1<<32 - 1
	}
	return b.Max
}

// Kernel is a mounted resctrl, with the processes of the machine. It may be used
// concurrently. Its methods named as those of resctrl.Files are these.
type Kernel struct {
	machine Machine

	mu     sync.Mutex
	groups map[string]*group // "" is the default
	tasks  map[int]task      // by thread
	procs  map[int][]int     // threads of a process
	limbo  int               // RMIDs of removed groups, not free yet
	dirty  bool              // removing a group leaves its RMID in limbo
	status string
	writes []string // what was written to schemata files: "group: L3:0=f\n"
}

// task is where a thread is.
type task struct{ group, watch string }

type group struct {
	exclusive bool
	values    map[string]map[int]uint64
	watches   map[string]map[string]string // counters of each monitoring group: "mon_L3_00/llc_occupancy"
}

// New mounts resctrl.
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

// Start lets a process run with threads, in the default group.
func (k *Kernel) Start(pid int, tids ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.procs[pid] = append(k.procs[pid], tids...)
	for _, tid := range tids {
		k.tasks[tid] = task{}
	}
}

// Clone lets a thread start another, which is where its parent is.
func (k *Kernel) Clone(pid, parent, tid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.procs[pid] = append(k.procs[pid], tid)
	k.tasks[tid] = k.tasks[parent]
}

// End ends threads. Their process still lists them, as one does that was read
// before.
func (k *Kernel) End(tids ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, tid := range tids {
		delete(k.tasks, tid)
	}
}

// Of tells the group and monitoring group of a thread.
func (k *Kernel) Of(tid int) (group, watch string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tasks[tid].group, k.tasks[tid].watch
}

// Groups lists the control groups, without the default.
func (k *Kernel) Groups() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := slices.Sorted(maps.Keys(k.groups))
	return names[1:]
}

// Limbo lets removed groups' data stay in the cache, so that their RMIDs are not free.
func (k *Kernel) Limbo(stay bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dirty = stay; !stay {
		k.limbo = 0
	}
}

// Count sets a counter of a monitoring group: its text as the kernel would show it,
// "4096" or "Unavailable".
func (k *Kernel) Count(group, watch, counter, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.groups[group].watches[watch][counter] = text
}

// Writes lists what was written to schemata files, "group: L3:0=f\n", right or
// wrong, and forgets it.
func (k *Kernel) Writes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	writes := k.writes
	k.writes = nil
	return writes
}
