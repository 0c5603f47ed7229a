package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// RDT puts processes into groups of cache and memory bandwidth; see pkg/kernel/resctrl.
type RDT interface {
	Setup(classes []schemata.Class, maxMBps int) ([]resctrl.Group, error)
	Prune(livePods, classes []string) error
	Own(pod string, share workload.RDTShare, maxMBps int) (group string, err error)
	Release(pod string) error
	Assign(to resctrl.Place, pid int) error
	Watch(group, container string) error
	Unwatch(container string) error
	PruneWatches(live []string) error
	Originals() (resctrl.Originals, error)
	Restore(resctrl.Originals) error
}

const (
	rdtKey   = "rdt-class"
	rdtState = "rdt" // the name of the originals in the book
)

// groups are the resctrl groups that are there.
type groups struct {
	classes map[string]bool
	pods    map[string]string // pods' own, by UID
	problem string            // why a class has none, or not all of its share; told once
}

// setUpRDT makes the classes' groups, and again what others have changed of them.
// What there was before is in the book first.
func (a *Agent) setUpRDT() { a.applyRDT(false) }

// applyRDT does it, where the classes may have another share than before.
func (a *Agent) applyRDT(changed bool) {
	if !a.authority().RDT {
		a.endRDT()
		return
	}
	err := a.keepRDT()
	if err == nil {
		var made []resctrl.Group
		made, err = a.RDT.Setup(a.rdtClasses(), a.Config.RDT.MaxMBps)
		again := a.groups.classes != nil
		a.groups.classes = map[string]bool{}
		for _, g := range made {
			a.groups.classes[g.Class] = true
			if again && !changed && g.Changed != "" {
				a.counters.Drift++
				a.Log.WithField("class", g.Class).WithField("schemata", g.Changed).Warn("An RDT class was changed by somebody else, repaired")
			}
		}
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != a.groups.problem && problem != "" {
		a.Log.WithError(err).Error("RDT classes are not as configured; it is tried again, and told again when the reason changes")
	}
	a.groups.problem = problem
}

// endRDT removes what an earlier run made and the configuration asks for no more.
func (a *Agent) endRDT() {
	if a.RDT == nil || !a.authority().Writes {
		return
	}
	if err := restoreRDT(a.RDT, a.book); err != nil && err.Error() != a.groups.problem {
		a.groups.problem = err.Error()
		a.Log.WithError(err).Warn("RDT groups of an earlier run could not be removed")
	}
}

func (a *Agent) keepRDT() error {
	var o resctrl.Originals
	if has, err := a.book.State(rdtState, &o); has && err == nil {
		return nil
	}
	o, err := a.RDT.Originals()
	if err == nil {
		err = a.book.KeepState(rdtState, o)
	}
	if err == nil {
		err = a.book.Flush()
	}
	return err
}

// assign puts processes of the container into its group. Threads and children that
// start later are there from the beginning. It reports whether all of it succeeded.
func (a *Agent) assign(c *container, pids []int) (done bool) {
	h, ok := a.ledger.Holder(c.ID)
	if !ok || !a.authority().RDT {
		return true
	}
	done = true
	place := resctrl.Place{Group: a.group(c, &h.Request)}
	if a.Config.RDT.Monitor {
		if err := a.RDT.Watch(place.Group, c.ID); err == nil {
			place.Watch = c.ID
		} else if done = false; !c.lacks(rdtKey, err.Error()) {
			c.notes = append(c.notes, qos.Note{Key: rdtKey, Text: err.Error()})
		}
	}
	if place == (resctrl.Place{}) {
		return done
	}
	c.rdt = place.Group
	for _, pid := range pids {
		err := a.RDT.Assign(place, pid)
		if errors.Is(err, resctrl.ErrNoGroup) {
			a.setUpRDT()
			err = a.RDT.Assign(place, pid)
		}
		if err == nil || errors.Is(err, resctrl.ErrGone) {
			continue
		}
		if done = false; !c.lacks(rdtKey, err.Error()) {
			c.notes = append(c.notes, qos.Note{Key: rdtKey, Missing: true, Text: err.Error()})
			a.Log.WithField("container", c.ref).WithError(err).Warn("Container is not in its RDT group")
		}
	}
	return done
}

// group is the resctrl group that a container belongs to, "" for the default one.
func (a *Agent) group(c *container, r *workload.Request) string {
	if (r.RDT.Own != workload.RDTShare{}) {
		group, err := a.RDT.Own(c.pod.UID, r.RDT.Own, a.Config.RDT.MaxMBps)
		if err != nil && !c.lacks(rdtKey, err.Error()) {
			c.notes = append(c.notes, qos.Note{Key: rdtKey, Missing: group == "", Text: err.Error()})
		}
		if group != "" {
			a.groups.pods[c.pod.UID] = group
		}
		return group
	}
	if a.groups.classes[r.RDT.Class] {
		return resctrl.ClassGroup(r.RDT.Class)
	}
	return ""
}

// lacks reports whether a note is there already.
func (c *container) lacks(key, text string) bool {
	return slices.ContainsFunc(c.notes, func(n qos.Note) bool { return n.Key == key && n.Text == text })
}

// lackOfRDT tells what this node lacks for the cache and bandwidth that a request
// asks for.
func (a *Agent) lackOfRDT(r *workload.Request) (note qos.Note, lacks bool) {
	asked := r.RDT.Class != "" || r.RDT.Own != workload.RDTShare{}
	switch {
	case !asked, a.Config.RDT.Mode != config.RDTOn:
		return qos.Note{}, false
	case a.RDT == nil:
		return qos.Note{Key: rdtKey, Missing: true, Text: a.NoRDT}, true
	case r.RDT.Class != "" && a.groups.classes != nil && !a.groups.classes[r.RDT.Class]:
		return qos.Note{Key: rdtKey, Missing: true, Text: fmt.Sprintf("class %s has no group: %s", r.RDT.Class, a.groups.problem)}, true
	}
	return qos.Note{}, false
}

// pruneRDT removes the groups of pods and containers that are gone.
func (a *Agent) pruneRDT() {
	if !a.authority().RDT {
		return
	}
	var pods, containers, classes []string
	for _, c := range a.order {
		pods, containers = append(pods, c.pod.UID), append(containers, c.ID)
	}
	for class := range a.Config.RDT.Classes {
		classes = append(classes, class)
	}
	if err := errors.Join(a.RDT.Prune(pods, classes), a.RDT.PruneWatches(containers)); err != nil {
		a.Log.WithError(err).Warn("RDT groups of pods that are gone could not be removed")
	}
}

// leaveRDT removes what was made for a container, and for its pod if that was its
// last.
func (a *Agent) leaveRDT(c *container) {
	if !a.authority().RDT {
		return
	}
	if a.Config.RDT.Monitor {
		a.RDT.Unwatch(c.ID) //nolint:errcheck // the next connection prunes
	}
	if _, own := a.groups.pods[c.pod.UID]; own && len(a.members(c.pod)) == 0 {
		delete(a.groups.pods, c.pod.UID)
		a.RDT.Release(c.pod.UID) //nolint:errcheck // the next connection prunes
	}
}

func restoreRDT(host RDT, book *journal.Book) error {
	var o resctrl.Originals
	if has, err := book.State(rdtState, &o); err != nil || !has {
		return err
	}
	if err := host.Restore(o); err != nil {
		return err
	}
	return book.KeepState(rdtState, nil)
}
