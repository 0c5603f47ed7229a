// Package rdtgroup puts containers into resctrl groups: those of the configured RDT
// classes, pods' own, and groups that only monitor.
package rdtgroup

import (
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// Key names RDT in the notes on what a container lacks.
	Key = "rdt-class"
	// state is the name under which the journal keeps what resctrl had before.
	state = "rdt"
)

// Host makes and removes resctrl groups; see pkg/kernel/resctrl.
type Host interface {
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

// Layout is the set of groups that the configuration needs.
type Layout struct {
	Classes []schemata.Class
	MaxMBps int  // the bandwidth that 100 % stands for
	Monitor bool // each container gets a monitoring group
}

// Groups are the resctrl groups of this node. The goroutine that owns the journal calls its
// methods.
type Groups struct {
	host    Host
	journal *journal.Journal
	log     logrus.FieldLogger
	drifted func() // called when another program has changed a class

	layout  Layout
	classes map[string]bool // that have a group; nil before the first Setup
	pods    map[string]bool // with a group of their own, by UID
	problem string          // why a class has no group or not all of its share; logged once
}

// New makes Groups. It calls drifted for each repair of a class that another program changed.
func New(host Host, j *journal.Journal, drifted func(), log logrus.FieldLogger) *Groups {
	return &Groups{host: host, journal: j, drifted: drifted, log: log, pods: map[string]bool{}}
}

// Setup makes the classes' groups once the journal has the original state on disk, and repairs
// what other programs have changed. With isNew, a difference from the layout is no drift.
func (g *Groups) Setup(layout Layout, isNew bool) {
	g.layout = layout
	err := g.keep()
	if err == nil {
		err = g.setup(isNew)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != g.problem && problem != "" {
		g.log.WithError(err).Error("RDT classes are not as configured; Sluice tries again, and logs the next error only when the reason changes")
	}
	g.problem = problem
}

func (g *Groups) setup(isNew bool) error {
	made, err := g.host.Setup(g.layout.Classes, g.layout.MaxMBps)
	again := g.classes != nil
	g.classes = map[string]bool{}
	for _, group := range made {
		g.classes[group.Class] = true
		if again && !isNew && group.Changed != "" {
			g.drifted()
			g.log.WithField("class", group.Class).WithField("schemata", group.Changed).Warn("An RDT class was changed by somebody else, repaired")
		}
	}
	return err
}

func (g *Groups) keep() error {
	var o resctrl.Originals
	if has, err := g.journal.State(state, &o); has && err == nil {
		return nil
	}
	o, err := g.host.Originals()
	if err == nil {
		err = g.journal.SaveState(state, o)
	}
	if err == nil {
		err = g.journal.Flush()
	}
	return err
}

// End removes all groups, including those of an earlier run, and restores resctrl's original
// state.
func (g *Groups) End() {
	if err := Restore(g.host, g.journal); err != nil && err.Error() != g.problem {
		g.problem = err.Error()
		g.log.WithError(err).Warn("RDT groups of an earlier run could not be removed")
	}
	g.Forget()
}

// Forget drops all groups from memory without changing resctrl.
func (g *Groups) Forget() { g.classes, g.pods = nil, map[string]bool{} }

// HasClass reports whether a class has a group.
func (g *Groups) HasClass(class string) bool { return g.classes[class] }

// Member describes a container for Assign.
type Member struct {
	ContainerID, PodUID string
	RDT                 workload.RDT
}

// Assign puts processes of a container into its group, "" being the default one, and
// returns the group. Threads and children that start later are there from the beginning.
// Notes say what failed; only then it isn't done and is worth another attempt.
func (g *Groups) Assign(m Member, pids []int) (group string, notes []qos.Note, done bool) {
	group, notes = g.groupOf(m)
	done = true
	place := resctrl.Place{Group: group}
	if g.layout.Monitor {
		if err := g.host.Watch(group, m.ContainerID); err == nil {
			place.Watch = m.ContainerID
		} else {
			notes, done = append(notes, qos.Note{Key: Key, Text: err.Error()}), false
		}
	}
	if place == (resctrl.Place{}) {
		return group, notes, done
	}
	for _, pid := range pids {
		err := g.host.Assign(place, pid)
		if errors.Is(err, resctrl.ErrNoGroup) {
			g.Setup(g.layout, false)
			err = g.host.Assign(place, pid)
		}
		if err != nil && !errors.Is(err, resctrl.ErrGone) {
			notes, done = append(notes, qos.Note{Key: Key, Missing: true, Text: err.Error()}), false
		}
	}
	return group, notes, done
}

// groupOf makes the pod's own group where it asks for one.
func (g *Groups) groupOf(m Member) (group string, notes []qos.Note) {
	if (m.RDT.Own != workload.RDTShare{}) {
		group, err := g.host.Own(m.PodUID, m.RDT.Own, g.layout.MaxMBps)
		if err != nil {
			notes = append(notes, qos.Note{Key: Key, Missing: group == "", Text: err.Error()})
		}
		if group != "" {
			g.pods[m.PodUID] = true
		}
		return group, notes
	}
	if g.classes[m.RDT.Class] {
		return resctrl.ClassGroup(m.RDT.Class), nil
	}
	return "", nil
}

// ToDefault puts a process that is in no group of Sluice's any more into the default one.
// An error is left to the end of the group, which moves the process as well.
func (g *Groups) ToDefault(pid int) {
	g.host.Assign(resctrl.Place{}, pid) //nolint:errcheck // the end of the group moves it as well
}

// Lack explains why a request can't have its share; lacks is false if it can.
func (g *Groups) Lack(r workload.RDT) (note qos.Note, lacks bool) {
	if r.Class == "" || g.classes == nil || g.classes[r.Class] {
		return qos.Note{}, false
	}
	return qos.Note{Key: Key, Missing: true, Text: fmt.Sprintf("class %s has no group: %s", r.Class, g.problem)}, true
}

// Prune removes the groups of pods (by UID) and containers that aren't listed, and of
// classes that aren't in the layout.
func (g *Groups) Prune(pods, containers []string) {
	classes := make([]string, len(g.layout.Classes))
	for i := range g.layout.Classes {
		classes[i] = g.layout.Classes[i].Name
	}
	if err := errors.Join(g.host.Prune(pods, classes), g.host.PruneWatches(containers)); err != nil {
		g.log.WithError(err).Warn("RDT groups of pods that are gone could not be removed")
	}
}

// Leave removes the monitoring group of a container.
func (g *Groups) Leave(containerID string) {
	g.host.Unwatch(containerID) //nolint:errcheck // the next connection prunes
}

// LeavePod removes a pod's own group, if it has one.
func (g *Groups) LeavePod(uid string) {
	if g.pods[uid] {
		delete(g.pods, uid)
		g.host.Release(uid) //nolint:errcheck // the next connection prunes
	}
}

// Restore restores resctrl's original state from a journal, and removes it from the journal.
func Restore(host Host, j *journal.Journal) error {
	return journal.RestoreState(j, state, host.Restore)
}
