package cgroupfs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// A container may have two levels of cgroups: with the systemd driver on v2, crun puts
// its processes into <scope>/container, and writes the same limits there and to the
// scope (run.oci.systemd.subgroup in crun(1)). A limit of the inner level holds however
// far the outer one is opened, so Apply writes, and Read compares, both.

// innerLevels are the inner levels of containers, by the container's cgroup; "" is none.
type innerLevels struct {
	mu    sync.RWMutex
	inner map[string]string
	asked map[string]map[plan.Knob]plan.Value // last, of both levels, by the container's cgroup
}

// Nest looks whether the runtime has put the container's processes into a cgroup below
// the container's own. That is certain between the container's creation and its first
// instruction. Later it may be a cgroup that the container has made itself, as its only
// one: then that has the container's limits too, under which it is anyway.
func (d *Driver) Nest(dir string) {
	inner := ""
	err := d.members().with(dir, func(c *cgroup) error {
		if c.folder.Childless() {
			return nil
		}
		procs, err := c.read("cgroup.procs")
		if err != nil || procs != "" {
			return err
		}
		children, err := c.children()
		if err == nil && len(children) == 1 {
			inner = children[0]
		}
		return err
	})
	d.levels.mu.Lock()
	defer d.levels.mu.Unlock()
	if err != nil {
		delete(d.levels.inner, dir)
		return
	}
	if d.levels.inner == nil {
		d.levels.inner = map[string]string{}
	}
	d.levels.inner[dir] = inner
}

// inner is a container's inner level, "" where it has none, and whether it was looked for.
func (d *Driver) inner(dir string) (inner string, looked bool) {
	d.levels.mu.RLock()
	defer d.levels.mu.RUnlock()
	inner, looked = d.levels.inner[dir]
	return inner, looked
}

// innerOf is the inner level of a change's container, looked for if nobody has.
func (d *Driver) innerOf(o plan.Object) string {
	if o.Level != plan.ContainerLevel {
		return ""
	}
	inner, looked := d.inner(o.Path)
	if !looked {
		d.Nest(o.Path)
		inner, _ = d.inner(o.Path)
	}
	return inner
}

// unnest forgets a container's inner level.
func (d *Driver) unnest(dir string) {
	inner, _ := d.inner(dir)
	d.levels.mu.Lock()
	delete(d.levels.inner, dir)
	delete(d.levels.asked, dir)
	d.levels.mu.Unlock()
	if inner != "" {
		d.Forget(inner)
	}
}

// eachLevel reports whether a knob limits, or protects, the processes of one level
// alone. The others rank a cgroup among its siblings, of which the inner level has none,
// or hold for all that is below.
func eachLevel(knob plan.Knob) bool {
	switch knob {
	case plan.CPUs, plan.Mems, plan.Quota, plan.Burst, plan.MemoryMax, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.OOMGroup:
		return true
	}
	return false
}

// applyNested makes a change to a container's cgroup and to its inner level. The outer
// one goes first: it bounds the inner one meanwhile. v1 refuses an outer quota below the
// inner one, so that it is tried again after that.
func (d *Driver) applyNested(h *hierarchy, s *Spec, c plan.Change, inner string) error {
	d.levels.ask(c)
	write := func(dir string) error { return h.with(dir, func(in *cgroup) error { return s.write(in, s, c) }) }
	err := write(c.Object.Path)
	if errors.Is(err, ErrGone) {
		return err
	}
	switch below := write(inner); {
	case errors.Is(below, ErrGone), errors.Is(below, ErrUnsupported): // without that controller
	case below != nil:
		return errors.Join(err, fmt.Errorf("nested cgroup %s: %w", inner, below))
	}
	if k := kind(err); errors.Is(k, ErrConstraint) || errors.Is(k, ErrOrder) {
		return write(c.Object.Path)
	}
	return err
}

// ask notes what both levels of a container are to have.
func (l *innerLevels) ask(c plan.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		l.asked = map[string]map[plan.Knob]plan.Value{}
	}
	if l.asked[c.Object.Path] == nil {
		l.asked[c.Object.Path] = map[plan.Knob]plan.Value{}
	}
	l.asked[c.Object.Path][c.Knob] = c.To
}

// readNested is what a container has by both of its levels, where the outer one, dir, has
// v. Where they differ it is that of the one that has not what was asked for: somebody
// else has changed it. Where nothing is known of that, it is the inner one's, but for sets
// of which the outer one leaves only a part, or none.
func (d *Driver) readNested(h *hierarchy, s *Spec, dir string, knob plan.Knob, v plan.Value, inner string) plan.Value {
	below := v
	err := h.with(inner, func(c *cgroup) (err error) {
		below, err = s.read(c, s)
		return err
	})
	if err != nil || d.Same(knob, v, below) {
		return v
	}
	d.levels.mu.RLock()
	asked := d.levels.asked[dir][knob]
	d.levels.mu.RUnlock()
	changed := asked != nil && !d.Same(knob, asked, v)
	if outer, isSet := v.(plan.CPUSet); isSet && (asked == nil || asked == plan.Value(plan.CPUSet{})) {
		set, _ := below.(plan.CPUSet)
		changed = !cpuset.Set(set).SubsetOf(cpuset.Set(outer))
	}
	if changed {
		return v
	}
	return below
}
