package groups

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Cores puts processes into core-scheduling groups; see pkg/kernel/coresched.
type Cores interface {
	Supported() (knobs.Support, string)
	Join(group string, pids ...int) (moved int, err error)
}

const (
	// coreSchedKey names core scheduling in the notes on what a container lacks.
	coreSchedKey = "core-sched"
	// coresState is the name under which the journal keeps the cgroups whose processes have
	// a core-scheduling cookie.
	coresState = "core-sched"
)

// joinCores puts processes of a container into its core-scheduling group. It does not unless the journal
// has its cgroup on disk.
func (j *Joiner) joinCores(c *node.Container, group string, pids []int) error {
	j.keepCores(c.Path)
	if err := j.Journal.Flush(); err != nil {
		return err
	}
	_, err := j.cores.Join(group, pids...)
	return err
}

// JoinedCores reports whether the processes of a container are in the core-scheduling group
// that its request names, as far as Sluice knows. A container that has not started has no
// process that could be outside of it.
func (j *Joiner) JoinedCores(c *node.Container) bool {
	return j.Authority().Cgroups && (!c.Started || len(c.Processes) > 0) && !c.Lacks(coreSchedKey)
}

// keepCores records in the journal that a cgroup's processes have a cookie. It writes the whole
// list, and so also drops the cgroups of containers that are gone.
func (j *Joiner) keepCores(path string) {
	var paths []string
	_, err := j.Journal.State(coresState, &paths)
	if err == nil && !slices.Contains(paths, path) {
		paths = slices.DeleteFunc(paths, func(path string) bool { return j.ByPath[path] == nil })
		err = j.Journal.SaveState(coresState, append(paths, path))
	}
	if err != nil {
		j.Log.WithError(err).Error("Core-scheduling groups can't be noted: sluice restore won't end them")
	}
}

// lacksCores explains why this node has no core-scheduling group for a request that names one.
func (j *Joiner) lacksCores(r *workload.Request) (note qos.Note, lacks bool) {
	if r.CoreSched == "" {
		return qos.Note{}, false
	}
	support, why := knobs.Unsupported, "this plugin runs without it"
	if j.cores != nil {
		support, why = j.cores.Supported()
	}
	return qos.Note{Key: coreSchedKey, Missing: true, Text: why}, support != knobs.Supported
}

// RestoreCores removes the processes of the cgroups that a journal lists from their
// core-scheduling groups, and then drops those cgroups from the journal.
func RestoreCores(kernel node.Kernel, cores interface{ Leave(pids ...int) error }, j *journal.Journal) error {
	var paths []string
	if has, err := j.State(coresState, &paths); err != nil || !has {
		return err
	}
	for _, path := range paths {
		pids, err := kernel.Processes(path)
		if err == nil {
			err = cores.Leave(pids...)
		}
		if err != nil {
			return err
		}
	}
	return j.SaveState(coresState, nil)
}
