package agent

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Restored is what Restore has done, in words: one line a setting.
type Restored struct {
	Changes []knobs.Change // given back
	Newer   []string       // left alone: somebody else has changed it since
	IRQs    int            // affinities given back
}

// Host is all that Restore writes; what is nil is not there.
type Host struct {
	Kernel     Kernel
	Affinities Affinities
	Watermarks Watermarks
	RDT        RDT
	Cores      interface{ Leave(pids ...int) error }
	Online     cpuset.Set
	Managers   []peers.Neighbour // the kubelet's static managers, which write some of the sets now
}

// kubelets reports whether a CPU or memory node set is the kubelet's now: its static CPU
// manager writes the CPUs of every container, its memory manager the nodes of Guaranteed
// pods' containers.
func (h *Host) kubelets(e *journal.Entry) bool {
	return slices.ContainsFunc(h.Managers, func(n peers.Neighbour) bool {
		switch n.Kind {
		case peers.CPUManager:
			return e.Knob == knobs.CPUs
		case peers.MemoryManager:
			pod := workload.Pod{CgroupParent: path.Dir(e.Object.Path)}
			return e.Knob == knobs.Mems && pod.QoS() == workload.Guaranteed
		}
		return false
	})
}

// Recall notes, of the failsafe's plan, what the kernel shows: the failsafe has written
// it in Sluice's place, so that it is nobody else's newer value.
func Recall(kernel Kernel, book *journal.Book, changes []knobs.Change) {
	for i := range changes {
		c := &changes[i]
		e, kept := book.Entry(c.Object.Path, c.Knob)
		if !kept || e.Wrote == nil || kernel == nil {
			continue
		}
		if have, err := kernel.Read(c.Object.Path, c.Knob); err == nil && kernel.Same(c.Knob, c.To, have) {
			book.Wrote(c.Object.Path, c.Knob, c.To)
		}
	}
}

// Restore gives back all that the book keeps, while no plugin runs. What failed
// stays in the book, and the error says why. With dry nothing is changed.
func Restore(host *Host, book *journal.Book, dry bool) (Restored, error) {
	var r Restored
	var unread []error
	for _, e := range book.All() {
		if host.Kernel == nil {
			break
		}
		if keptForIdle(book, e.Object.Path, e.Knob) {
			continue
		}
		if host.kubelets(&e) {
			r.Newer = append(r.Newer, fmt.Sprintf("%s of %s", e.Knob, e.Object.Name))
			continue
		}
		changes, newer, err := back(host.Kernel, book, e.Object, e.Knob)
		switch {
		case errors.Is(err, cgroupfs.ErrGone):
			book.Forget(e.Object.Path)
			continue
		case err != nil:
			unread = append(unread, err)
			continue
		}
		settledBy(book, e.Object.Path, e.Knob, changes)
		if newer {
			r.Newer = append(r.Newer, fmt.Sprintf("%s of %s", e.Knob, e.Object.Name))
		}
		r.Changes = append(r.Changes, changes...)
	}
	var kept irq.Kept
	if _, err := book.State(affinitiesState, &kept); err != nil {
		return r, fmt.Errorf("the original CPUs of IRQs: %w", err)
	}
	r.IRQs = len(kept)
	if dry {
		return r, errors.Join(unread...)
	}
	errs := unread
	if host.Kernel != nil {
		errs = append(errs, restoreCgroups(host.Kernel, book, r.Changes))
	}
	if len(kept) > 0 && host.Affinities != nil {
		errs = append(errs, restoreAffinities(host.Affinities, host.Online, kept, book))
	}
	if host.Watermarks != nil {
		errs = append(errs, restoreWatermarks(host.Watermarks, book))
	}
	if host.RDT != nil {
		errs = append(errs, restoreRDT(host.RDT, book))
	}
	errs = append(errs, restoreCores(host, book), book.Flush())
	return r, errors.Join(errs...)
}

func restoreCgroups(kernel Kernel, book *journal.Book, changes []knobs.Change) error {
	err := kernel.Apply(knobs.Order(changes))
	failed := failures{}
	for _, e := range unjoin(err) {
		if change, ok := errors.AsType[*cgroupfs.ChangeError](e); ok && !errors.Is(e, cgroupfs.ErrGone) {
			failed[placeOf(&change.Change)] = e
		}
	}
	for i := range changes {
		if at := placeOf(&changes[i]); failed[at] == nil {
			book.Drop(at.path, at.knob)
		}
	}
	var errs []error
	for _, e := range failed {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

func restoreAffinities(affinities Affinities, online cpuset.Set, kept irq.Kept, book *journal.Book) error {
	found, err := affinities.Read()
	want := irq.Desire{Online: online}
	kept, writes := irq.Plan(found, err == nil, kept, want)
	results := make([]irq.Result, len(writes))
	for i, w := range writes {
		cpus, failed := affinities.Write(w)
		results[i] = irq.Result{File: w.File, CPUs: cpus, Err: failed}
		err = errors.Join(err, failed)
	}
	kept = irq.Settle(kept, results, want)
	return errors.Join(err, keepAffinities(book, kept))
}

// back returns the changes that give a setting's original back, where the kernel
// still shows what Sluice wrote: a newer value is somebody else's and stays. With
// idle comes the weight that is kept for its end.
func back(kernel Kernel, book *journal.Book, o knobs.Object, k knobs.Knob) (changes []knobs.Change, newer bool, err error) {
	e, kept := book.Entry(o.Path, k)
	if !kept {
		return nil, false, nil
	}
	have, err := kernel.Read(o.Path, k)
	if err != nil {
		return nil, false, err
	}
	change := knobs.Change{Object: o, Knob: k, From: have, To: e.Value, Why: "Sluice lets it go"}
	same := kernel.Same(k, e.Value, have)
	switch {
	case k == knobs.CPUs, k == knobs.Mems:
		return []knobs.Change{change}, false, nil
	case k == knobs.Quota && e.Wrote == nil: // lifted
		if same || !have.(knobs.CPUQuota).Unlimited() {
			return nil, false, nil
		}
		return []knobs.Change{change}, false, nil
	case k == knobs.Weight && e.Wrote == nil: // kept for the end of idle
		if same {
			return nil, false, nil
		}
		return []knobs.Change{change}, false, nil
	}
	if !same && e.Wrote != nil && kernel.Same(k, e.Wrote, have) {
		changes, have = []knobs.Change{change}, e.Value
	} else {
		newer = !same && e.Wrote != nil
	}
	if k == knobs.Idle && have == knobs.Value(knobs.Number(0)) {
		weight, _, err := back(kernel, book, o, knobs.Weight)
		return append(changes, weight...), newer, err
	}
	return changes, newer, nil
}

// keptForIdle reports whether a setting is the weight that its cgroup gets back
// with the end of idle.
func keptForIdle(book *journal.Book, path string, k knobs.Knob) bool {
	_, idle := book.Kept(path, knobs.Idle)
	return idle && k == knobs.Weight
}

// settledBy drops from the book, of a setting and what comes with it, what needs
// no change.
func settledBy(book *journal.Book, path string, k knobs.Knob, changes []knobs.Change) {
	all := []knobs.Knob{k}
	if k == knobs.Idle {
		all = append(all, knobs.Weight)
	}
	for _, k := range all {
		if !slices.ContainsFunc(changes, func(c knobs.Change) bool { return c.Knob == k }) {
			book.Drop(path, k)
		}
	}
}

// coresState is the name of the cgroups with core-scheduling cookies in the book.
const coresState = "core-sched"

func restoreCores(host *Host, book *journal.Book) error {
	var paths []string
	if has, err := book.State(coresState, &paths); err != nil || !has || host.Kernel == nil || host.Cores == nil {
		return err
	}
	for _, path := range paths {
		pids, err := host.Kernel.Processes(path)
		if err == nil {
			err = host.Cores.Leave(pids...)
		}
		if err != nil {
			return err
		}
	}
	return book.KeepState(coresState, nil)
}
