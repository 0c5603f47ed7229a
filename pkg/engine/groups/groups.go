// Package groups puts the processes of containers into the groups that their requests name:
// a core-scheduling group, whose processes share a core's threads with no others, and a
// resctrl group (pkg/engine/rdtgroup), which has its share of the cache and of the memory
// bandwidth. It also gives them their I/O priority.
//
// A process inherits all of them from its parent. One that the runtime starts in a running
// container (kubectl exec) has another parent: it joins when the containers' processes are
// looked at again.
//
// The package owns Container.Processes, Container.RDTGroup and Container.Unjoined.
package groups

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Joiner puts the processes of containers into their groups. The agent's event loop calls its
// methods.
type Joiner struct {
	*node.Node
	cores Cores            // nil without core scheduling
	io    Priorities       // nil without I/O priorities
	rdt   *rdtgroup.Groups // without resctrl it is never asked to write
	noRDT string           // why resctrl is missing

	batchShare control.CacheShare // the part of its configured share that batch work's class has; zero is all
	passes     int                // since the processes of all containers were last listed

	idle []string // cgroups whose processes may be in the idle class of I/O by Sluice; replaced, never changed in place
}

// New makes a Joiner; the node's journal must be loaded. Without cores (nil) no container joins
// a core-scheduling group, and without io (nil) none gets an I/O priority. Without a host (nil)
// none joins a resctrl group, and noRDT explains why.
func New(n *node.Node, cores Cores, io Priorities, host rdtgroup.Host, noRDT string) *Joiner {
	j := &Joiner{
		Node: n, cores: cores, io: io, noRDT: noRDT,
		rdt: rdtgroup.New(host, n.Journal, func() { n.Counters.Drift++ }, n.Log),
	}
	if _, err := n.Journal.State(idleState, &j.idle); err != nil {
		n.Log.WithError(err).Warn("Which processes have their I/O priority by Sluice is lost: they keep it")
	}
	return j
}

// Join puts those processes of a container into its groups that have not joined yet. What fails
// is tried again when the container's processes are next listed.
func (j *Joiner) Join(c *node.Container) {
	may := j.Authority()
	h, ok := j.Ledger.Holder(c.ID)
	cores := ok && h.Request.CoreSched != "" && !qos.Missing(c.Notes, coreSchedKey)
	ranked := ok && j.ranked(c, &h.Request)
	if !ok || !may.Cgroups || !c.Started || c.Uncontrolled || !cores && !may.RDT && !ranked {
		c.Unjoined = nil
		return
	}
	pids, joined := j.processes(c), c.Processes
	if len(pids) == 0 {
		return // to the kernel, process 0 would be Sluice itself
	}
	fresh := newcomers(pids, joined)
	c.Processes = pids
	if len(fresh) == 0 { // the processes that could not join their core-scheduling group, or get their I/O priority, have ended
		c.Unjoined = slices.DeleteFunc(c.Unjoined, func(n qos.Note) bool { return n.Key == coreSchedKey || n.Key == ioKey })
		return
	}
	failed, done := j.assign(c, h.Request.RDT, fresh)
	if !done {
		c.Processes = joined
	}
	if cores {
		if err := j.joinCores(c, h.Request.CoreSched, fresh); err != nil {
			failed, c.Processes = append(failed, qos.Note{Key: coreSchedKey, Text: err.Error()}), joined
		}
	}
	if ranked {
		if err := j.prioritize(c, h.Request.IO.Priority); err != nil {
			failed, c.Processes = append(failed, qos.Note{Key: ioKey, Text: err.Error()}), joined
		}
	}
	j.noteFailed(c, failed)
}

// noteFailed records all that failed when processes of a container joined, and logs what is new.
func (j *Joiner) noteFailed(c *node.Container, failed []qos.Note) {
	before := c.Unjoined
	c.Unjoined = nil
	for _, note := range failed {
		if slices.Contains(c.Notes, note) || slices.Contains(c.Unjoined, note) {
			continue
		}
		c.Unjoined = append(c.Unjoined, note)
		if slices.Contains(before, note) {
			continue
		}
		log := j.Log.WithField("container", c.Ref).WithField("reason", note.Text)
		switch {
		case note.Key == coreSchedKey:
			log.Warn("Container shares cores with others")
		case note.Key == ioKey:
			log.Warn("Container does not have its I/O priority")
		case note.Missing:
			log.Warn("Container is not in its RDT group")
		}
	}
}

// newcomers lists the processes that have not joined. Both lists are sorted so that one pass
// over them is enough: a container may have very many processes, and comparing each with each
// would delay the event loop.
func newcomers(pids, joined []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		_, has := slices.BinarySearch(joined, pid)
		return has
	})
}

// processes lists a container's processes in ascending order. While none has joined and its
// cgroup shows none, it returns the first process, by the runtime's event. It doesn't do so
// later, when the kernel may have given that process's number to another one.
func (j *Joiner) processes(c *node.Container) []int {
	pids, err := j.Kernel.Processes(c.Path)
	if (err != nil || len(pids) == 0) && c.PID > 0 && c.Processes == nil {
		return []int{c.PID}
	}
	slices.Sort(pids)
	return pids
}

// passesPerList is the number of passes between two listings of all containers' processes.
const passesPerList = 10

// Pass repairs the resctrl groups. Each tenth pass also lists all containers' processes, and
// puts those that the runtime has started in running containers into their groups.
func (j *Joiner) Pass() {
	j.SetUp()
	if j.passes++; j.passes%passesPerList != 0 {
		return
	}
	for _, c := range j.Order {
		j.Join(c)
	}
}

// Synchronized removes the resctrl groups of pods and containers that are gone, and makes the
// next pass list all containers' processes. It must run after the inventory was rebuilt.
func (j *Joiner) Synchronized() {
	j.pruneRDT()
	j.passes = -1
}

// Lacks appends what this node lacks for the groups of a request to the notes.
func (j *Joiner) Lacks(r *workload.Request, notes []qos.Note) []qos.Note {
	if note, lacks := j.lacksCores(r); lacks {
		notes = append(notes, note)
	}
	if note, lacks := j.lacksRDT(r); lacks {
		notes = append(notes, note)
	}
	return notes
}
