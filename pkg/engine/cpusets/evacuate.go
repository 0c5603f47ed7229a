package cpusets

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// evacuationTime is how long a new pin waits for a kernel that is busy: far less than the 2 s that
// containerd gives a plugin to answer.
const evacuationTime = 500 * time.Millisecond

// Evacuate moves all other containers off a pin's CPUs, except from those that both have by a claim.
// If one can't be moved, Evacuate fails only if the kernel shows that container on them. While the kernel is busy with other
// changes of cpusets, Evacuate waits for up to evacuationTime, because such a write still takes effect. The plugin's own container
// is moved by the runtime if it has a cgroup namespace of its own; its threads also leave with the next pass.
func (w *Writer) Evacuate(pin *node.Container) error {
	stuck := w.Apply(pin.ID)
	h, ok := w.Ledger.Holder(pin.ID)
	if stuck == nil || !ok || h.CPUs.IsEmpty() {
		return nil
	}
	patience := time.Duration(0)
	if errors.Is(stuck, cgroupfs.ErrBusy) {
		patience = evacuationTime
	}
	for _, c := range w.Order {
		if c == pin || !w.SetsCPUs(c) {
			continue
		}
		others := cpuset.Difference(h.CPUs, w.Ledger.Common(pin.ID, c.ID))
		now, err := w.on(c, others)
		for ; err == nil && !now.IsEmpty() && patience > 0; patience -= evacuationTime / 50 {
			time.Sleep(evacuationTime / 50)
			now, err = w.on(c, others)
		}
		w.Observe(c, knobs.CPUs) // the kernel may have moved it since the write failed
		if err == nil && !now.IsEmpty() {
			err = stuck
		}
		if err != nil {
			return fmt.Errorf("CPUs %s can't be cleared: container %s: %w", h.CPUs, c.Ref, err)
		}
	}
	return nil
}

// ConfirmLeft fails unless the kernel shows that no other container's set includes a CPU of the
// pin, except those that both have by a claim. late is the set of CPUs that a pending update of the runtime's record may still give
// back to another container.
func (w *Writer) ConfirmLeft(pin *node.Container, late cpuset.Set) error {
	h, ok := w.Ledger.Holder(pin.ID)
	if !ok || h.CPUs.IsEmpty() || !w.Authority().Cpusets {
		return nil
	}
	if late.Overlaps(h.CPUs) {
		return fmt.Errorf("CPUs %s: an update of another container that names them is still on its way through the runtime; the kubelet will start this container again",
			cpuset.Intersect(late, h.CPUs))
	}
	for _, c := range w.Order {
		if c == pin || !w.SetsCPUs(c) {
			continue
		}
		if err := w.vacate(c, cpuset.Difference(h.CPUs, w.Ledger.Common(pin.ID, c.ID))); err != nil {
			return err
		}
	}
	return nil
}

// vacate moves one container off cpus if the kernel shows it there.
func (w *Writer) vacate(c *node.Container, cpus cpuset.Set) error {
	now, err := w.on(c, cpus)
	if err != nil || now.IsEmpty() {
		return err
	}
	want, ok := w.Ledger.Assignment(c.ID)
	if !ok {
		return nil // its grant was released: its process has ended, or has not begun
	}
	w.Counters.Drift++
	c.Drift++
	w.Log.WithFields(map[string]any{"container": c.Ref, "cpus": knobs.CPUSet(now).String(), "want": want.CPUs.String()}).
		Warn("Container was back on a pin's CPUs, moved away again (a late runtime update, or another writer)")
	w.Touch(c)
	c.Has.CPUs = now
	_, applied := w.Reconciler.Write(Changes(c, want, true))
	still, err := w.on(c, cpus)
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

// on returns the container's set in the kernel if it includes some of cpus, and an empty set
// otherwise or if the cgroup is gone.
func (w *Writer) on(c *node.Container, cpus cpuset.Set) (cpuset.Set, error) {
	value, err := w.Kernel.Read(c.Path, knobs.CPUs)
	if errors.Is(err, cgroupfs.ErrGone) {
		return cpuset.Set{}, nil
	}
	if err != nil {
		return cpuset.Set{}, fmt.Errorf("container %s: %w", c.Ref, err)
	}
	now := cpuset.Set(value.(knobs.CPUSet))
	if now.IsEmpty() {
		now = w.Ledger.Machine().Online
	}
	if !now.Overlaps(cpus) {
		return cpuset.Set{}, nil
	}
	return now, nil
}
