package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Container is a container of the inventory. Each part of the engine owns some of its fields;
// the other parts only read those.
type Container struct {
	workload.Container
	Pod     *workload.Pod // shared with the other containers of its sandbox
	Ref     string        // "namespace/pod/container"
	PodRef  string        // "namespace/pod"
	Path    string        // its cgroup; "" if that is unknown
	PodPath string        // the pod's cgroup; "" if that is unknown
	Above   string        // the parent of the pod's cgroup; "" if that is unknown

	// These fields follow the container's lifecycle by the runtime's events.
	Uncontrolled bool // it runs in a virtual machine, so Sluice only accounts for it
	Made         bool // the runtime has made it
	Started      bool
	Ran          bool // its first process may have begun
	Refused      RefusedStart

	// These fields are about its request.
	Allocated workload.Granted // what the kubelet has granted, by its record when the request was last read
	Cut       string           // how an annotation exceeds the kubelet's grant, which the log has reported; "" if none does
	Scored    bool             // it ran before this connection, so its OOM score may be Sluice's
	Warnings  []string
	Unresized RefusedResize

	// These fields are what the kernel has of its CPUs and memory nodes, as far as Sluice
	// knows.
	Has     placement.Assignment
	Touched bool           // Sluice has set its cpuset, so that "all CPUs" must be written explicitly
	Quota   knobs.CPUQuota // the CFS quota that Sluice has lifted or may lift; zero if it has none
	Drift   int            // number of repairs
	Contest reconcile.Backoff
	Own     time.Time   // when the kernel last refused to set its cpuset, since it is this process's own, and only the runtime can; zero if it is not
	Foreign *cpuset.Set // its CPUs in the kernel if the kubelet sets them; nil otherwise, or if they are unknown

	// These fields are about the runtime's own record of it.
	Recorded     Settings
	Carried      knobs.Values               // the values that the record should hold besides CPUs, memory nodes and quota
	Unadjusted   map[knobs.Knob]knobs.Value // the values that the runtime would have set without Sluice
	FailedUpdate FailedUpdate

	// These fields are about its other settings.
	Notes   []qos.Note // what it requests and this node lacks
	Reclaim qos.Reclaim

	// These fields are about the groups that its processes join.
	RDTGroup  string     // the resctrl group that its processes joined; "" for none
	Processes []int      // the processes that have joined its groups, in ascending order
	Unjoined  []qos.Note // what failed when processes joined, none of it in Notes
}

// KeepQuota records the container's present quota as the one to restore after Sluice has lifted
// it.
func (c *Container) KeepQuota() {
	if r := c.Resources; r.Quota > 0 && r.Period > 0 {
		c.Quota = knobs.MicroQuota(r.Quota, r.Period)
	}
}

// Identity identifies the container in the ledger.
func (c *Container) Identity() placement.Identity {
	return placement.Identity{ID: c.ID, Pod: c.Pod.UID, Container: c.Name, Ref: c.Ref}
}

// Object describes the container's cgroup.
func (c *Container) Object() knobs.Object {
	return knobs.Object{Path: c.Path, Name: c.Ref, Level: knobs.ContainerLevel}
}

// Scoped reports whether the container's cgroup is a systemd scope.
func (c *Container) Scoped() bool { return strings.Contains(c.CgroupsPath, ":") }

// Failed wraps an error for the pod's events. An error about an invalid value already names the
// container.
func (c *Container) Failed(what string, err error) error {
	if _, ok := errors.AsType[*annotation.Invalid](err); ok {
		return fmt.Errorf("sluice: %s%w", what, err)
	}
	return fmt.Errorf("sluice: %scontainer %s: %w", what, c.Ref, err)
}

// RefusedStart is a refused start of a container whose end the runtime has not reported yet.
// The zero value means that no start was refused.
type RefusedStart struct {
	Why  string
	At   time.Time
	Runs bool // the container runs nevertheless
}

// Warning is the warning in the status about a container that runs although its start was
// refused; "" if it doesn't run.
func (r *RefusedStart) Warning() string {
	if !r.Runs {
		return ""
	}
	return "its start was refused, and the runtime runs it all the same: " + r.Why
}

// RefusedResize is the last refused resize of a container. The zero value means that none was
// refused.
type RefusedResize struct {
	Change   workload.Resources
	Answer   string
	LoggedAt time.Time
	Repeats  int // further attempts since it was last logged
}

// Lacks reports whether the container lacks anything that a key requests.
func (c *Container) Lacks(key string) bool {
	names := func(n qos.Note) bool { return n.Key == key }
	return slices.ContainsFunc(c.Notes, names) || slices.ContainsFunc(c.Unjoined, names)
}

// FailedUpdate is the last update of the runtime's record that the runtime refused, with the
// number of refusals. The zero value means that none was refused.
type FailedUpdate struct {
	To    Settings
	Times int
}
