package groups

import (
	"errors"
	"slices"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Priorities changes the I/O priorities of all threads of a cgroup; see pkg/kernel/ioprio.
type Priorities interface {
	Idle(cgroup string) (changed int, err error)
	Restore(cgroup string) (changed int, err error)
}

const (
	// ioKey names I/O in the notes on what a container lacks.
	ioKey = "io"
	// idleState is the name under which the journal keeps the cgroups whose processes are in
	// the idle class of I/O by Sluice.
	idleState = "io-idle"
)

// ranked reports whether a container's processes are to be in the idle class of I/O, or are to
// leave it.
func (j *Joiner) ranked(c *node.Container, r *workload.Request) bool {
	return j.io != nil && (r.IO.Priority == workload.IOIdle || slices.Contains(j.idle, c.Path))
}

// prioritize gives the processes of a container its I/O priority. The journal has its cgroup on disk
// while a process may be in the idle class.
func (j *Joiner) prioritize(c *node.Container, to workload.IOPriority) error {
	if to == workload.IOIdle {
		if err := j.keepIdle(c.Path, true); err != nil {
			return err
		}
		if err := j.Journal.Flush(); err != nil {
			return err
		}
		_, err := j.io.Idle(c.Path)
		return err
	}
	if _, err := j.io.Restore(c.Path); err != nil {
		return err
	}
	return j.keepIdle(c.Path, false)
}

// keepIdle records whether processes of a cgroup may be in the idle class by Sluice. It drops the
// cgroups of containers that are gone.
func (j *Joiner) keepIdle(path string, idle bool) error {
	if slices.Contains(j.idle, path) == idle {
		return nil
	}
	paths := slices.DeleteFunc(slices.Clone(j.idle), func(other string) bool { return other == path || j.ByPath[other] == nil })
	if idle {
		paths = append(paths, path)
	}
	if err := saveIdle(j.Journal, paths); err != nil {
		return err
	}
	j.idle = paths
	return nil
}

// LeavePriorities takes all processes out of the idle class into which Sluice put them.
func (j *Joiner) LeavePriorities() {
	if j.io == nil || len(j.idle) == 0 {
		return
	}
	left, err := takeBack(j.io, j.idle)
	j.idle = left
	if err = errors.Join(err, saveIdle(j.Journal, left)); err != nil {
		j.Log.WithError(err).Warn("Processes keep the I/O priority that Sluice gave them; sluice restore tries it again")
	}
}

// RestorePriorities takes the processes of the cgroups that a journal lists out of the idle class,
// and then drops those cgroups from the journal.
func RestorePriorities(io Priorities, j *journal.Journal) error {
	var paths []string
	if has, err := j.State(idleState, &paths); err != nil || !has {
		return err
	}
	left, err := takeBack(io, paths)
	return errors.Join(err, saveIdle(j, left))
}

// takeBack returns the cgroups whose processes could not be taken out of the idle class.
func takeBack(io Priorities, paths []string) (left []string, err error) {
	var errs []error
	for _, path := range paths {
		if _, err := io.Restore(path); err != nil {
			left, errs = append(left, path), append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

func saveIdle(j *journal.Journal, paths []string) error {
	if len(paths) == 0 {
		return j.SaveState(idleState, nil)
	}
	return j.SaveState(idleState, paths)
}
