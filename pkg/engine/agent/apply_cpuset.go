package agent

import (
	"errors"
	"fmt"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// settle brings every container but skip to what the ledger assigns now, through
// its cgroup. The error names the containers that could not be moved; they are
// tried again at the next settle.
func (a *Agent) settle(skip string) error {
	return a.settleBut(func(c *node.Container, _ []knobs.Change) bool { return c.ID == skip })
}

// settleDue is settle for the passes: containers whose last try is too short a time
// ago are left as they are.
func (a *Agent) settleDue() error {
	waiting := false
	err := a.settleBut(func(c *node.Container, changes []knobs.Change) bool {
		held := len(a.heldOf(c, changes)) > 0
		waiting = waiting || held
		return held
	})
	if waiting {
		a.settled = 0
	}
	return err
}

// settleBut settles all containers with changes but those to skip.
func (a *Agent) settleBut(skip func(*node.Container, []knobs.Change) bool) error {
	if a.settled == a.Ledger.Version() || !a.Authority().Cpusets {
		return nil
	}
	var (
		moved   []*node.Container
		wants   []placement.Assignment
		changes []knobs.Change
	)
	for _, c := range a.Order {
		want, ok := a.Ledger.Assignment(c.ID)
		if !ok || !a.Reaches(c) {
			continue
		}
		if more := changesOf(c, want, false); len(more) > 0 && !skip(c, more) {
			a.touch(c) // whatever becomes of the writes, the pass compares it from now on
			moved, wants, changes = append(moved, c), append(wants, want), append(changes, more...)
		}
	}
	failed, err := a.Reconciler.Write(changes)
	for i, c := range moved {
		if failed.In(c.Path) {
			a.observe(c, knobs.CPUs, knobs.Mems, knobs.Quota)
			continue
		}
		c.Has, c.Attempts = wants[i], 0
	}
	if err == nil {
		a.settled = a.Ledger.Version()
	}
	return err
}

// updates is what the runtime must be told, in the reply to the present request,
// about containers that have no cgroup to write.
func (a *Agent) updates(skip string) []node.Update {
	if a.told == a.Ledger.Version() || !a.Authority().Cpusets {
		return nil
	}
	a.told = a.Ledger.Version()
	var updates []node.Update
	for _, c := range a.Order {
		want, ok := a.Ledger.Assignment(c.ID)
		if !ok || c.ID == skip || c.Uncontrolled || a.Reaches(c) || len(changesOf(c, want, false)) == 0 {
			continue
		}
		a.touch(c)
		c.Has, c.Recorded = want, a.settings(c, want)
		updates = append(updates, node.Update{ContainerID: c.ID, Settings: c.Recorded})
	}
	return updates
}

// touch notes that the container has settings of Sluice's from now on.
func (a *Agent) touch(c *node.Container) {
	c.Touched = true
	a.keep(c)
}

// assert writes a started container's whole desire, whatever it is believed to
// have: its spec and its cgroup may be older than the desire.
func (a *Agent) assert(c *node.Container) error {
	want, ok := a.Ledger.Assignment(c.ID)
	if !ok || !a.Reaches(c) || !a.Authority().Cpusets {
		return nil
	}
	changes := changesOf(c, want, true)
	if len(changes) == 0 {
		return nil
	}
	a.touch(c)
	a.widen(c)
	if _, err := a.Reconciler.Write(changes); err != nil {
		a.observe(c, knobs.CPUs, knobs.Mems, knobs.Quota)
		return fmt.Errorf("container %s can't be given its CPUs %s: %w", c.Ref, knobs.CPUSet(want.CPUs), err)
	}
	c.Has = want
	return nil
}

// evacuated makes sure, by the kernel's own word, that no other container's set
// has a CPU of the pin.
func (a *Agent) evacuated(pin *node.Container) error {
	h, ok := a.Ledger.Holder(pin.ID)
	if !ok || h.CPUs.IsEmpty() || !a.Authority().Cpusets {
		return nil
	}
	if late := a.inFlight(pin.ID); late.Overlaps(h.CPUs) {
		return fmt.Errorf("CPUs %s: an update of another container that names them is still on its way through the runtime; the kubelet will start this container again",
			cpuset.Intersect(late, h.CPUs))
	}
	for _, c := range a.Order {
		if c == pin || !a.Reaches(c) {
			continue
		}
		if err := a.vacate(c, h.CPUs); err != nil {
			return err
		}
	}
	return nil
}

// evacuate moves everyone else off a pin's CPUs. A container that can't be moved
// is in nobody's way unless the kernel shows it on them.
func (a *Agent) evacuate(pin *node.Container) error {
	stuck := a.settle(pin.ID)
	h, ok := a.Ledger.Holder(pin.ID)
	if stuck == nil || !ok || h.CPUs.IsEmpty() {
		return nil
	}
	for _, c := range a.Order {
		if c == pin || !a.Reaches(c) {
			continue
		}
		now, err := a.on(c, h.CPUs)
		if err == nil && !now.IsEmpty() {
			err = stuck
		}
		if err != nil {
			return fmt.Errorf("CPUs %s can't be cleared: container %s: %w", h.CPUs, c.Ref, err)
		}
	}
	return nil
}

// vacate makes one container leave cpus if the kernel shows it there.
func (a *Agent) vacate(c *node.Container, cpus cpuset.Set) error {
	now, err := a.on(c, cpus)
	if err != nil || now.IsEmpty() {
		return err
	}
	want, ok := a.Ledger.Assignment(c.ID)
	if !ok {
		return nil // its grant was freed: its process has ended, or has not begun
	}
	a.Counters.Drift++
	c.Drift++
	a.Log.WithFields(map[string]any{"container": c.Ref, "cpus": knobs.CPUSet(now).String(), "want": want.CPUs.String()}).
		Warn("Container was back on a pin's CPUs, moved away again (a late runtime update, or another writer)")
	a.touch(c)
	c.Has.CPUs = now
	_, applied := a.Reconciler.Write(changesOf(c, want, true))
	still, err := a.on(c, cpus)
	if err != nil {
		return err
	}
	if !still.IsEmpty() {
		return errors.Join(fmt.Errorf("container %s does not leave CPUs %s", c.Ref, cpuset.Intersect(still, cpus)), applied)
	}
	if applied == nil {
		c.Has = want
	}
	return nil
}

// on is the container's set in the kernel where it has some of cpus in it; a
// cgroup that is gone has none.
func (a *Agent) on(c *node.Container, cpus cpuset.Set) (cpuset.Set, error) {
	value, err := a.Kernel.Read(c.Path, knobs.CPUs)
	if errors.Is(err, cgroupfs.ErrGone) {
		return cpuset.Set{}, nil
	}
	if err != nil {
		return cpuset.Set{}, fmt.Errorf("container %s: %w", c.Ref, err)
	}
	now := cpuset.Set(value.(knobs.CPUSet))
	if now.IsEmpty() {
		now = a.Ledger.Machine().Online
	}
	if !now.Overlaps(cpus) {
		return cpuset.Set{}, nil
	}
	return now, nil
}
