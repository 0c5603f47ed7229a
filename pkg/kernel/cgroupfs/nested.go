package cgroupfs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// A container may have two levels of cgroups: with the systemd driver on v2, crun puts
// its processes into <scope>/container (run.oci.systemd.subgroup in crun(1)). The lower of
// both levels' limits counts, and of memory that is protected, too, so that Apply writes,
// and Read compares, both. But a limit that the outer level hasn't is left out there: crun
// 1.8 writes limits to the inner level alone, also when it updates them, and one above
// would still hold when nobody wants it any more.

// innerLevels are the inner levels of containers, by the container's cgroup; "" is none.
type innerLevels struct {
	mu    sync.RWMutex
	inner map[string]string
	asked map[string]map[knobs.Knob]knobs.Value // last, of both levels, by the container's cgroup
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
func (d *Driver) innerOf(o knobs.Object) string {
	if o.Level != knobs.ContainerLevel {
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

// applyNested makes a change to a container's cgroup and to its inner level. The outer
// one goes first: it bounds the inner one meanwhile. v1 refuses an outer quota below the
// inner one, so that it is tried again after that. A limit, which a cgroup has none of by
// default, stays out of an outer one that has none.
func (d *Driver) applyNested(h *hierarchy, s *Spec, c knobs.Change, inner string) error {
	write := func(dir string) error { return h.with(dir, func(in *cgroup) error { return s.write(in, s, c) }) }
	if unlimited(s.Default) && d.levels.askedOf(c.Object.Path, c.Knob) == nil {
		free := false
		err := h.with(c.Object.Path, func(in *cgroup) error {
			has, err := s.read(in, s)
			free = err == nil && unlimited(has)
			return err
		})
		if free || errors.Is(err, ErrGone) {
			return errors.Join(err, write(inner))
		}
	}
	d.levels.ask(c)
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
func (l *innerLevels) ask(c knobs.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		l.asked = map[string]map[knobs.Knob]knobs.Value{}
	}
	if l.asked[c.Object.Path] == nil {
		l.asked[c.Object.Path] = map[knobs.Knob]knobs.Value{}
	}
	l.asked[c.Object.Path][c.Knob] = c.To
}

// askedOf is what both levels of a container were asked for last, nil for nothing.
func (l *innerLevels) askedOf(dir string, knob knobs.Knob) knobs.Value {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.asked[dir][knob]
}

// readNested is what a container has by both of its levels, where the outer one, dir, has
// v. Where they differ it is that of the one that has not what was asked for: somebody
// else has changed it. Where both were asked for nothing it is the lower one's.
func (d *Driver) readNested(h *hierarchy, s *Spec, dir string, knob knobs.Knob, v knobs.Value, inner string) knobs.Value {
	below := v
	err := h.with(inner, func(c *cgroup) (err error) {
		below, err = s.read(c, s)
		return err
	})
	if err != nil || d.Same(knob, v, below) {
		return v
	}
	asked := d.levels.askedOf(dir, knob)
	if asked == knobs.Value(knobs.CPUSet{}) { // all that the parent has is no set to compare with
		asked = nil
	}
	if asked != nil && !d.Same(knob, asked, v) || asked == nil && lower(v, below) {
		return v
	}
	return below
}

// unlimited reports whether a limit limits nothing.
func unlimited(v knobs.Value) bool {
	q, _ := v.(knobs.CPUQuota)
	return q.Unlimited() || v == knobs.Value(knobs.Max)
}

// lower reports whether the outer level's value is the one that counts. A set does where
// the kernel can't follow all of the inner one's.
func lower(outer, inner knobs.Value) bool {
	switch o := outer.(type) {
	case knobs.CPUSet:
		i, _ := inner.(knobs.CPUSet)
		return !cpuset.Set(i).SubsetOf(cpuset.Set(o))
	case knobs.CPUQuota:
		i, _ := inner.(knobs.CPUQuota)
		return o.Compare(i) < 0
	case knobs.CPUBurst:
		i, _ := inner.(knobs.CPUBurst)
		return o < i
	case knobs.Bytes:
		i, _ := inner.(knobs.Bytes)
		return o.Compare(i) < 0
	}
	return false
}
