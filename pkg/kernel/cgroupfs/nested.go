package cgroupfs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// A container may have two levels of cgroups: with the systemd driver on v2, crun puts its
// processes into <scope>/container (run.oci.systemd.subgroup in crun(1)). The lower of both
// levels' limits applies, also to protected memory, so Apply writes both levels and Read
// compares them. However, Apply doesn't add a limit to an outer level that has none: crun 1.8
// writes limits to the inner level alone, also when it updates them, so a limit on the outer
// level would remain in force after the container's limit is raised.

// innerLevels records the inner level of each container, by the container's cgroup; "" means
// that it has none.
type innerLevels struct {
	mu      sync.RWMutex
	inner   map[string]string
	applied map[string]map[knobs.Knob]knobs.Value // the last values that Apply was given for both levels, by the container's cgroup
}

// Nest finds out whether the runtime has put the container's processes into a cgroup below the
// container's own. The answer is certain between the container's creation and its first
// instruction. Later, the only nested cgroup may be one that the container has created: setting
// the container's limits on it as well does no harm, as it is bound by them anyway.
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

// inner returns a container's inner level, "" if it has none; looked reports whether Nest has
// checked.
func (d *Driver) inner(dir string) (inner string, known bool) {
	d.levels.mu.RLock()
	defer d.levels.mu.RUnlock()
	inner, known = d.levels.inner[dir]
	return inner, known
}

// innerOf returns the inner level of the container that a change is for. It calls Nest first if
// nothing has.
func (d *Driver) innerOf(o knobs.Object) string {
	if o.Level != knobs.ContainerLevel {
		return ""
	}
	inner, known := d.inner(o.Path)
	if !known {
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
	delete(d.levels.applied, dir)
	d.levels.mu.Unlock()
	if inner != "" {
		d.Forget(inner)
	}
}

// applyNested makes a change to a container's cgroup and to its inner level. It writes the
// outer level first, which bounds the inner one meanwhile. v1 refuses an outer quota below the
// inner one, so applyNested then retries the outer level after the inner one. It doesn't add a
// limit to an outer level that has none.
func (d *Driver) applyNested(h *hierarchy, s *Spec, c knobs.Change, inner string) error {
	write := func(dir string) error { return h.with(dir, func(in *cgroup) error { return s.write(in, s, c) }) }
	if Unlimited(s.Default) && d.levels.appliedTo(c.Object.Path, c.Knob) == nil {
		free := false
		err := h.with(c.Object.Path, func(in *cgroup) error {
			has, err := s.read(in, s)
			free = err == nil && Unlimited(has)
			return err
		})
		if free || errors.Is(err, ErrGone) {
			return errors.Join(err, write(inner))
		}
	}
	d.levels.note(c)
	err := write(c.Object.Path)
	if errors.Is(err, ErrGone) {
		return err
	}
	switch below := write(inner); {
	case errors.Is(below, ErrGone), errors.Is(below, ErrUnsupported): // the inner level lacks that controller
	case below != nil:
		return errors.Join(err, fmt.Errorf("nested cgroup %s: %w", inner, below))
	}
	if k := kind(err); errors.Is(k, ErrConstraint) || errors.Is(k, ErrOrder) {
		return write(c.Object.Path)
	}
	return err
}

// note records the value that Apply was given for both levels of a container.
func (l *innerLevels) note(c knobs.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.applied == nil {
		l.applied = map[string]map[knobs.Knob]knobs.Value{}
	}
	if l.applied[c.Object.Path] == nil {
		l.applied[c.Object.Path] = map[knobs.Knob]knobs.Value{}
	}
	l.applied[c.Object.Path][c.Knob] = c.To
}

// appliedTo returns the last value that Apply was given for both levels of a container, nil if
// there was none.
func (l *innerLevels) appliedTo(dir string, knob knobs.Knob) knobs.Value {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.applied[dir][knob]
}

// readNested returns the value that a container has on both levels, where v is the value of the
// outer level, dir. If the levels differ, it returns the one that Apply did not write, because
// another program has changed that level. If Apply has written neither, it returns the lower
// one.
func (d *Driver) readNested(h *hierarchy, s *Spec, dir string, knob knobs.Knob, v knobs.Value, inner string) knobs.Value {
	below := v
	err := h.with(inner, func(c *cgroup) (err error) {
		below, err = s.read(c, s)
		return err
	})
	if err != nil || d.Same(knob, v, below) {
		return v
	}
	applied := d.levels.appliedTo(dir, knob)
	if applied == knobs.Value(knobs.CPUSet{}) { // the empty set means the parent's whole set, and can't be compared
		applied = nil
	}
	if applied != nil && !d.Same(knob, applied, v) || applied == nil && lower(v, below) {
		return v
	}
	return below
}

// Unlimited reports whether a value is a limit that has no effect.
func Unlimited(v knobs.Value) bool {
	q, _ := v.(knobs.CPUQuota)
	return q.Unlimited() || v == knobs.Value(knobs.Max)
}

// lower reports whether the outer level's value is the one in force. For a set, it is if the
// outer set doesn't contain the whole inner set.
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
