package cgroupfs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-dev/sluice/pkg/plan"
)

// A container may have two levels of cgroups: with the systemd driver on v2, crun puts
// its processes into <scope>/container, and writes the same limits there and to the
// scope (run.oci.systemd.subgroup in crun(1)). A limit of the inner level holds however
// far the outer one is opened, so Apply writes, and Read compares, both.

// innerLevels are the inner levels of containers, by the container's cgroup; "" is none.
type innerLevels struct {
	mu    sync.RWMutex
	inner map[string]string
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

// readNested is what a container's inner level has where that is something else than
// v, which the outer one has.
func (d *Driver) readNested(h *hierarchy, s *Spec, knob plan.Knob, v plan.Value, inner string) plan.Value {
	below := v
	err := h.with(inner, func(c *cgroup) (err error) {
		below, err = s.read(c, s)
		return err
	})
	if err != nil || d.Same(knob, v, below) {
		return v
	}
	return below
}
