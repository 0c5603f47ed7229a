package agent

import (
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/reclaim"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Cores puts processes into core-scheduling groups; see pkg/kernel/coresched.
type Cores interface {
	Supported() (knobs.Support, string)
	Join(group string, pids ...int) (moved int, err error)
}

// Reclaimer reclaims memory in the background; see pkg/kernel/reclaim.
type Reclaimer interface {
	Set(targets map[string]reclaim.Target)
}

const coreSchedKey = "core-sched"

// join puts a container's processes into its groups of cores, cache and bandwidth.
// What they start inherits both; what the runtime starts in a running container
// (kubectl exec) doesn't and joins with a later pass.
func (a *Agent) join(c *node.Container) {
	may := a.Authority()
	h, ok := a.Ledger.Holder(c.ID)
	if !ok || !may.Cgroups || !c.Started || c.Uncontrolled {
		return
	}
	cores := h.Request.CoreSched != "" && !qos.Missing(c.Notes, coreSchedKey)
	if !cores && !may.RDT {
		return
	}
	pids, joined := a.pidsOf(c), c.Processes
	if len(pids) == 0 {
		return // 0 would be Sluice itself
	}
	fresh := newcomers(pids, joined)
	c.Processes = pids
	if len(fresh) == 0 {
		return
	}
	if !a.assign(c, fresh) {
		c.Processes = joined // again with a later pass
	}
	if !cores {
		return
	}
	a.keepCores(c.Path)
	if _, err := a.options.Cores.Join(h.Request.CoreSched, fresh...); err != nil {
		c.Processes = joined
		if !c.Lacks(coreSchedKey, err.Error()) {
			c.Notes = append(c.Notes, qos.Note{Key: coreSchedKey, Text: err.Error()})
			a.Log.WithField("container", c.Ref).WithError(err).Warn("Container shares cores with others")
		}
	}
}

// newcomers are the processes that have not joined; both lists are sorted. A container
// may have as many as its limit lets it fork: not each is compared with each.
func newcomers(pids, joined []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		_, has := slices.BinarySearch(joined, pid)
		return has
	})
}

// pidsOf are a container's processes, or the first of them while none has joined: later
// the number of one that has ended may be another's. They are sorted.
func (a *Agent) pidsOf(c *node.Container) []int {
	pids, err := a.Kernel.Processes(c.Path)
	if (err != nil || len(pids) == 0) && c.PID > 0 && c.Processes == nil {
		return []int{c.PID}
	}
	slices.Sort(pids)
	return pids
}

// keepCores notes that a cgroup's processes have a cookie, and forgets those of
// containers that are gone: the list is written anew with each that comes.
func (a *Agent) keepCores(path string) {
	var paths []string
	_, err := a.Journal.State(coresState, &paths)
	if err == nil && !slices.Contains(paths, path) {
		paths = slices.DeleteFunc(paths, func(path string) bool {
			return a.ByPath[path] == nil
		})
		err = a.Journal.KeepState(coresState, append(paths, path))
	}
	if err != nil {
		a.Log.WithError(err).Error("Core-scheduling groups can't be noted: sluice restore won't end them")
	}
}

// joinEvery is how many passes lie between two looks for processes that the
// runtime has started in running containers.
const joinEvery = 10

// joinAll joins such processes.
func (a *Agent) joinAll() {
	if a.passes++; a.passes%joinEvery != 0 {
		return
	}
	for _, c := range a.Order {
		a.join(c)
	}
}

// lackOfNode adds what this node lacks for a request besides cgroup files.
func (a *Agent) lackOfNode(r *workload.Request, notes []qos.Note) []qos.Note {
	if r.CoreSched != "" {
		support, why := knobs.Unsupported, "this plugin runs without it"
		if a.options.Cores != nil {
			support, why = a.options.Cores.Supported()
		}
		if support != knobs.Supported {
			notes = append(notes, qos.Note{Key: coreSchedKey, Missing: true, Text: why})
		}
	}
	if note, lacks := a.lackOfRDT(r); lacks {
		notes = append(notes, note)
	}
	return notes
}

// retarget tells the reclaimer what to hold where, when that has changed.
func (a *Agent) retarget() {
	if a.options.Reclaimer == nil {
		return
	}
	targets := map[string]reclaim.Target{}
	for _, c := range a.Order {
		if c.Started && c.Reclaim != (qos.Reclaim{}) && a.Authority().Cgroups {
			targets[c.Path] = reclaim.Target(c.Reclaim)
		}
	}
	if !maps.Equal(targets, a.targets) {
		a.targets = targets
		a.options.Reclaimer.Set(targets)
	}
}
