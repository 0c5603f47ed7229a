package groups

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/ioprio"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Priorities changes the I/O priorities of processes; see pkg/kernel/ioprio.
type Priorities interface {
	Change(given ioprio.Set, to ioprio.Priority, pids ...int) (changed int, err error)
}

const (
	// ioKey names I/O in the notes on what a container lacks.
	ioKey = "io"
	// priorityState is the name under which the journal keeps what given holds.
	priorityState = "io-priority"
)

// given holds the I/O priorities that processes may have by Sluice, by their containers' cgroups.
type given map[string]ioprio.Set

// ranked reports whether a container's processes need the priority that it requests, or may have one
// that it no longer requests.
func (j *Joiner) ranked(c *node.Container, r *workload.Request) bool {
	return j.io != nil && (r.IO.Priority.Set || j.given[c.Path] != 0)
}

// prioritize gives processes of a container its I/O priority. The journal has the priority before a
// process has it.
func (j *Joiner) prioritize(c *node.Container, to ioprio.Priority, pids []int) error {
	before := j.given[c.Path]
	if err := j.keepPriorities(c.Path, before|ioprio.Only(to)); err != nil {
		return err
	}
	if _, err := j.io.Change(before, to, pids...); err != nil {
		return err
	}
	return j.keepPriorities(c.Path, ioprio.Only(to))
}

// keepPriorities records which I/O priorities the processes of a cgroup may have by Sluice. It drops
// the cgroups of containers that are gone.
func (j *Joiner) keepPriorities(path string, priorities ioprio.Set) error {
	if j.given[path] == priorities {
		return nil
	}
	all := given{path: priorities}
	for other, has := range j.given {
		if other != path && j.ByPath[other] != nil {
			all[other] = has
		}
	}
	if priorities == 0 {
		delete(all, path)
	}
	if err := savePriorities(j.Journal, all); err != nil {
		return err
	}
	j.given = all
	return nil
}

// LeavePriorities takes the I/O priorities that Sluice gave from all processes.
func (j *Joiner) LeavePriorities() {
	if j.io == nil || j.Kernel == nil || len(j.given) == 0 {
		return
	}
	left, err := takeBack(j.Kernel, j.io, j.given)
	j.given = left
	if err = errors.Join(err, savePriorities(j.Journal, left)); err != nil {
		j.Log.WithError(err).Warn("Processes keep the I/O priorities that Sluice gave them; sluice restore tries it again")
	}
}

// RestorePriorities takes the I/O priorities that a journal lists from their processes, and then
// drops them from the journal.
func RestorePriorities(kernel node.Kernel, io Priorities, j *journal.Journal) error {
	var all given
	if has, err := j.State(priorityState, &all); err != nil || !has {
		return err
	}
	left, err := takeBack(kernel, io, all)
	return errors.Join(err, savePriorities(j, left))
}

// takeBack returns what could not be taken back.
func takeBack(kernel node.Kernel, io Priorities, all given) (left given, err error) {
	left = given{}
	var errs []error
	for path, priorities := range all {
		pids, err := kernel.Processes(path)
		if err == nil {
			_, err = io.Change(priorities, ioprio.Priority{}, pids...)
		}
		if err != nil {
			left[path], errs = priorities, append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

func savePriorities(j *journal.Journal, all given) error {
	if len(all) == 0 {
		return j.SaveState(priorityState, nil)
	}
	return j.SaveState(priorityState, all)
}
