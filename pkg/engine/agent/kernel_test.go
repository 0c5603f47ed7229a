package agent

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// fakeKernel is a cgroup v1 tree in memory. An empty set stands for the parent's set, which is all
// CPUs online. CPUs that went offline do not return to sets.
type fakeKernel struct {
	mu     sync.Mutex
	online cpuset.Set
	nodes  cpuset.Set
	groups map[string]*group
	refuse func(knobs.Change) error // returns errors to inject; may panic
	writes []string
	pids   []int // process IDs in every cgroup
}

type group struct {
	cpus, mems cpuset.Set
	quota      knobs.CPUQuota
	others     map[knobs.Knob]knobs.Value
	empty      bool // the cgroup has no process
}

// value returns what the kernel shows for a knob that was never written.
func (g *group) value(knob knobs.Knob) knobs.Value {
	if v, ok := g.others[knob]; ok {
		return v
	}
	switch knob {
	case knobs.Burst:
		return knobs.CPUBurst(0)
	case knobs.Weight:
		return knobs.Shares(1024)
	case knobs.MemoryMax, knobs.MemoryHigh, knobs.SoftLimit:
		return knobs.Max
	case knobs.MemoryMin, knobs.MemoryLow:
		return knobs.Bytes(0)
	case knobs.IOMax, knobs.IOWeight, knobs.BFQWeight:
		return knobs.PerDevice("")
	}
	return knobs.Number(0)
}

func (*fakeKernel) Same(_ knobs.Knob, want, have knobs.Value) bool { return want == have }

func (*fakeKernel) Forget(string) {}

func (k *fakeKernel) Processes(string) ([]int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.pids), nil
}

// Nest does nothing, because there are no nested cgroups.
func (*fakeKernel) Nest(string) {}

// Rejoin does nothing, because processes stay in their container's cgroup.
func (*fakeKernel) Rejoin(string) (int, error) { return 0, nil }

func (k *fakeKernel) Apply(changes []knobs.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, c := range changes {
		if kind, err := k.apply(c); err != nil {
			errs = append(errs, &cgroupfs.ChangeError{Change: c, Kind: kind, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (k *fakeKernel) apply(c knobs.Change) (kind, err error) {
	if k.refuse != nil {
		if err := k.refuse(c); err != nil {
			return cgroupfs.ErrOrder, err
		}
	}
	g := k.groups[c.Object.Path]
	if g == nil {
		return cgroupfs.ErrGone, errors.New("no such folder")
	}
	k.writes = append(k.writes, fmt.Sprintf("%s %s=%s", c.Object.Path, c.Knob, c.To))
	switch to := c.To.(type) {
	case knobs.CPUQuota:
		g.quota = to
	case knobs.CPUSet:
		set, all, file := cpuset.Set(to), k.online, &g.cpus
		if parent := k.groups[path.Dir(c.Object.Path)]; parent != nil {
			all = parent.cpus
		}
		if c.Knob == knobs.Mems {
			all, file = k.nodes, &g.mems
		}
		if set.IsEmpty() {
			set = all
		}
		if !set.SubsetOf(all) {
			return cgroupfs.ErrOrder, fmt.Errorf("%s is more than the parent's %s", set, all)
		}
		*file = set
	default:
		if g.others == nil {
			g.others = map[knobs.Knob]knobs.Value{}
		}
		g.others[c.Knob] = to
	}
	return nil, nil
}

func (k *fakeKernel) Read(dir string, knob knobs.Knob) (knobs.Value, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[dir]
	switch {
	case g == nil:
		return nil, cgroupfs.ErrGone
	case knob == knobs.CPUs:
		return knobs.CPUSet(g.cpus), nil
	case knob == knobs.Mems:
		return knobs.CPUSet(g.mems), nil
	case knob == knobs.Quota:
		return g.quota, nil
	}
	return g.value(knob), nil
}

func (k *fakeKernel) Populated(dir string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[dir]
	return g != nil && !g.empty, nil
}

func (k *fakeKernel) GiveBack(dir string, cpus cpuset.Set) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ; dir != "/"; dir = path.Dir(dir) {
		if g := k.groups[dir]; g != nil {
			g.cpus = cpuset.Union(g.cpus, cpuset.Intersect(cpus, k.online))
		}
	}
	return nil
}

// make makes a cgroup; an empty set stands for all.
func (k *fakeKernel) make(path string, cpus, mems cpuset.Set, quota knobs.CPUQuota) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if cpus.IsEmpty() {
		cpus = k.online
	}
	if mems.IsEmpty() {
		mems = k.nodes
	}
	k.groups[path] = &group{cpus: cpus, mems: mems, quota: quota}
}

// change acts as another writer or as an update by the runtime.
func (k *fakeKernel) change(path string, how func(*group)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g := k.groups[path]; g != nil {
		how(g)
	}
}

// unplug takes CPUs offline as the v1 kernel does.
func (k *fakeKernel) unplug(online cpuset.Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.online = online
	for _, g := range k.groups {
		g.cpus = cpuset.Intersect(g.cpus, online)
	}
}

func (k *fakeKernel) remove(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, path)
}

func (k *fakeKernel) refusing(refuse func(knobs.Change) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = refuse
}

// took returns the writes since the last call.
func (k *fakeKernel) took() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	writes := k.writes
	k.writes = nil
	return writes
}

func (k *fakeKernel) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(k.groups)) {
		g := k.groups[path]
		fmt.Fprintf(&text, "%s cpus %s mems %s quota %d\n", path, g.cpus, g.mems, g.quota.Quota)
	}
	return text.String()
}
