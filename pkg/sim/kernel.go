package sim

import (
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Kernel holds the cgroups of the simulated node as values rather than texts. It behaves as
// mainline Linux 6.10 or later with cgroup v2 alone, and refuses wrong values of the files that
// the agent writes as the kernel would.
type Kernel struct {
	mu      sync.Mutex // the agent's goroutine writes, the node's reads
	online  cpuset.Set
	nodes   cpuset.Set
	groups  map[string]*group
	version uint64 // changes with each write, and whenever a cgroup or process comes or goes

	// moves counts changes of running containers' CPUs.
	moves Moves
}

// Moves counts changes of running containers' CPUs.
type Moves struct {
	Containers int // number of writes that changed a container's set
	CPUs       int // CPUs that sets gained; containers that move together count once
}

// group is one cgroup.
type group struct {
	path     string
	parent   *group
	children []*group // the oldest first
	values   knobs.Values
	pid      int     // of the cgroup's process; 0 for none
	saved    float64 // CPU seconds that a burst may use
}

func newKernel(m *topology.Machine) *Kernel {
	k := &Kernel{online: m.Online, nodes: m.MemoryNodes(), groups: map[string]*group{}}
	k.groups["/"] = &group{path: "/"}
	return k
}

// mainline lists the modelled knobs of mainline's cgroup v2.
func mainline() []knobs.Knob {
	return []knobs.Knob{
		knobs.CPUs, knobs.Mems, knobs.Quota, knobs.Burst, knobs.Weight, knobs.Idle,
		knobs.MemoryMax, knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.OOMGroup,
	}
}

// features returns what the agent's probes find.
func features() knobs.Features {
	f := knobs.Features{Reclaim: true}
	for knob := range knobs.Knobs {
		spec := cgroupfs.Describe(knob)
		f.Knobs[knob] = knobs.Feature{State: knobs.Unsupported, V2: true, Why: "the simulated node doesn't have it"}
		if slices.Contains(mainline(), knob) {
			f.Knobs[knob] = knobs.Feature{State: knobs.Supported, V2: true, File: spec.V2[0]}
		}
	}
	return f
}

// mkdir makes a cgroup and its missing parents.
func (k *Kernel) mkdir(dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.make(dir)
	k.version++
}

func (k *Kernel) make(dir string) *group {
	if g := k.groups[dir]; g != nil {
		return g
	}
	parent := k.make(path.Dir(dir))
	g := &group{path: dir, parent: parent}
	parent.children = append(parent.children, g)
	k.groups[dir] = g
	return g
}

// rmdir removes a cgroup and all below it.
func (k *Kernel) rmdir(dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[dir]
	if g == nil || g.parent == nil {
		return
	}
	g.parent.children = slices.DeleteFunc(g.parent.children, func(c *group) bool { return c == g })
	k.drop(g)
	k.version++
}

func (k *Kernel) drop(g *group) {
	delete(k.groups, g.path)
	for _, c := range g.children {
		k.drop(c)
	}
}

// run puts a process into a cgroup.
func (k *Kernel) run(dir string, pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.groups[dir].pid = pid
	k.version++
}

// set writes values as the kubelet and the runtime do. A value that the kernel refuses leaves the
// knob as it was.
func (k *Kernel) set(dir string, values map[knobs.Knob]knobs.Value) {
	for knob := range knobs.Knobs {
		if v := values[knob]; v != nil {
			k.Apply([]knobs.Change{{Object: knobs.Object{Path: dir, Name: dir}, Knob: knob, To: v}}) //nolint:errcheck // refused values have no effect, as documented above
		}
	}
}

// Apply makes changes, each of which may be refused.
func (k *Kernel) Apply(changes []knobs.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs refusals
	var moved []move
	for i := range changes {
		c := &changes[i]
		g := k.groups[c.Object.Path]
		var before cpuset.Set
		if g != nil && c.Knob == knobs.CPUs {
			before = k.effective(g, knobs.CPUs)
		}
		if err := k.write(g, c.Knob, c.To); err != nil {
			errs = append(errs, &cgroupfs.ChangeError{Change: *c, Kind: err, Err: err})
			continue
		}
		if c.Knob == knobs.CPUs && g.pid != 0 {
			moved = append(moved, move{before, k.effective(g, knobs.CPUs)})
		}
	}
	k.version++
	k.count(moved)
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// refusals are the errors of the changes that were refused.
type refusals []error

func (r refusals) Error() string {
	return fmt.Sprintf("%d changes refused, the first: %v", len(r), r[0])
}

// Unwrap returns the single errors.
func (r refusals) Unwrap() []error { return r }

type move struct{ from, to cpuset.Set }

func (k *Kernel) count(moved []move) {
	for i, m := range moved {
		if m.from == m.to {
			continue
		}
		k.moves.Containers++
		if !slices.Contains(moved[:i], m) {
			k.moves.CPUs += cpuset.Difference(m.to, m.from).Size()
		}
	}
}

func (k *Kernel) write(g *group, knob knobs.Knob, to knobs.Value) error {
	switch {
	case g == nil:
		return cgroupfs.ErrGone
	case !slices.Contains(mainline(), knob):
		return cgroupfs.ErrUnsupported
	}
	switch knob {
	case knobs.Weight: // sched_group_set_shares refuses it for an idle group
		if g.value(knobs.Idle) == knobs.Number(1) {
			return cgroupfs.ErrConstraint
		}
	case knobs.Idle: // sched_group_set_idle goes back to the default weight
		if to == knobs.Number(0) && g.value(knobs.Idle) == knobs.Number(1) {
			g.values[knobs.Weight] = nil
		}
	case knobs.Burst: // tg_set_cfs_bandwidth: burst + quota within bounds, burst at most the quota
		if q := g.quota(); !q.Unlimited() && to.(knobs.CPUBurst) > knobs.CPUBurst(q.Quota) {
			return cgroupfs.ErrConstraint
		}
	case knobs.Quota:
		if q := to.(knobs.CPUQuota); !q.Unlimited() && g.value(knobs.Burst).(knobs.CPUBurst) > knobs.CPUBurst(q.Quota) {
			return cgroupfs.ErrConstraint
		}
	}
	g.values[knob] = to
	if set, ok := to.(knobs.CPUSet); ok && g.parent != nil && (set != knobs.CPUSet{}) && !cpuset.Set(set).Overlaps(k.effective(g.parent, knob)) {
		return cgroupfs.ErrNotEffective
	}
	return nil
}

// value returns the value of a knob, or its default if it was never written.
func (g *group) value(knob knobs.Knob) knobs.Value {
	if v := g.values[knob]; v != nil {
		return v
	}
	return defaults[knob]
}

// defaults holds the knobs' values of a new cgroup.
var defaults = func() (all knobs.Values) {
	for knob := range knobs.Knobs {
		all[knob] = cgroupfs.Describe(knob).Default
	}
	return all
}()

func (g *group) quota() knobs.CPUQuota {
	if q, ok := g.values[knobs.Quota].(knobs.CPUQuota); ok {
		return q
	}
	return knobs.UnlimitedQuota()
}

// bytes returns an amount of memory, the largest int64 for no limit.
func (g *group) bytes(knob knobs.Knob) int64 {
	if b, ok := g.values[knob].(knobs.Bytes); ok {
		return int64(b)
	}
	b, _ := defaults[knob].(knobs.Bytes)
	return int64(b)
}

// effective returns the cpuset that the tasks follow (cpuset.cpus.effective): the parent's if the
// cgroup's own is empty or has no CPU of the parent's.
func (k *Kernel) effective(g *group, knob knobs.Knob) cpuset.Set {
	if g.parent == nil {
		if knob == knobs.Mems {
			return k.nodes
		}
		return k.online
	}
	up := k.effective(g.parent, knob)
	own, _ := g.values[knob].(knobs.CPUSet)
	if set := cpuset.Intersect(cpuset.Set(own), up); !set.IsEmpty() {
		return set
	}
	return up
}

// Read reads a knob. For an empty set it returns the effective one.
func (k *Kernel) Read(dir string, knob knobs.Knob) (knobs.Value, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[dir]
	switch {
	case g == nil:
		return nil, fmt.Errorf("cgroup %s: %w", dir, cgroupfs.ErrGone)
	case !slices.Contains(mainline(), knob):
		return nil, fmt.Errorf("%s of cgroup %s: %w", knob, dir, cgroupfs.ErrUnsupported)
	}
	v := g.value(knob)
	if v == knobs.Value(knobs.CPUSet{}) {
		v = knobs.CPUSet(k.effective(g, knob))
	}
	return v, nil
}

// Populated reports whether the cgroup has a process.
func (k *Kernel) Populated(dir string) (bool, error) {
	pids, err := k.Processes(dir)
	return len(pids) > 0, err
}

// Processes lists the processes of one cgroup.
func (k *Kernel) Processes(dir string) ([]int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch g := k.groups[dir]; {
	case g == nil:
		return nil, fmt.Errorf("cgroup %s: %w", dir, cgroupfs.ErrGone)
	case g.pid == 0:
		return nil, nil
	default:
		return []int{g.pid}, nil
	}
}

// GiveBack does nothing, because effective sets of cgroup v2 change by themselves.
func (k *Kernel) GiveBack(string, cpuset.Set) error { return nil }

// Nest does nothing, because the simulated runtime nests no cgroups.
func (k *Kernel) Nest(string) {}

// Rejoin does nothing, because in cgroup v2 no process leaves its cpuset.
func (k *Kernel) Rejoin(string) (int, error) { return 0, nil }

// Same compares values, which this kernel stores as they were written.
func (k *Kernel) Same(_ knobs.Knob, want, have knobs.Value) bool { return want == have }

// Forget does nothing, because this kernel keeps no files open.
func (k *Kernel) Forget(string) {}
