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

// Container is a container of the inventory. Each part of the engine owns some of its fields:
// the others only read those.
type Container struct {
	workload.Container
	Pod     *workload.Pod // shared with the other containers of its sandbox
	Ref     string        // "namespace/pod/container"
	PodRef  string        // "namespace/pod"
	Path    string        // its cgroup; "" where it can't be told
	PodPath string        // the pod's cgroup; "" where it can't be told
	Above   string        // the cgroup that holds the pod's; "" where it can't be told

	// Its life, by the runtime's events.
	Uncontrolled bool // accounted only: it runs in a virtual machine
	Made         bool // the runtime has said so, or it was found
	Started      bool
	Ran          bool // its first process may have begun
	Refused      RefusedStart

	// What it asks for.
	Allocated workload.Granted // by the kubelet's record, when the request was read last
	Cut       bool             // the log says that it claims more than the kubelet has granted
	Scored    bool             // its OOM score may be Sluice's: it was found
	Warnings  []string
	Unresized RefusedResize

	// Its CPUs and memory nodes: what the kernel has, as far as Sluice knows.
	Has     placement.Assignment
	Touched bool           // Sluice has given it a cpuset: "all" must be written, not left out
	Quota   knobs.CPUQuota // CFS quota that Sluice lifted or may lift; zero where there is none
	Drift   int            // repairs
	Contest reconcile.Backoff
	Foreign *cpuset.Set // its CPUs in the kernel, where the kubelet sets them; nil where it doesn't, or they aren't known

	// The runtime's own record of it.
	Recorded     Settings
	Carried      knobs.Values               // what the record is to hold beside its place
	Unadjusted   map[knobs.Knob]knobs.Value // what the runtime would have set without Sluice
	FailedUpdate FailedUpdate

	// Its other settings.
	Notes     []qos.Note // what this node lacks of what it asks for
	Reclaim   qos.Reclaim
	RDTGroup  string // resctrl group that it was put into; "" none
	Processes []int  // when they last joined its groups, sorted
}

// KeepQuota notes the quota to go back to once the container's is lifted.
func (c *Container) KeepQuota() {
	if r := c.Resources; r.Quota > 0 && r.Period > 0 {
		c.Quota = knobs.MicroQuota(r.Quota, r.Period)
	}
}

// Identity names the container in the ledger.
func (c *Container) Identity() placement.Identity {
	return placement.Identity{ID: c.ID, Pod: c.Pod.UID, Container: c.Name, Ref: c.Ref}
}

// Object names the container's cgroup.
func (c *Container) Object() knobs.Object {
	return knobs.Object{Path: c.Path, Name: c.Ref, Level: knobs.ContainerLevel}
}

// Scoped reports whether the container's cgroup is a scope of systemd's.
func (c *Container) Scoped() bool { return strings.Contains(c.CgroupsPath, ":") }

// Failed is an error as the events of the pod show it. That of an invalid value names its
// container itself.
func (c *Container) Failed(what string, err error) error {
	if _, ok := errors.AsType[*annotation.Invalid](err); ok {
		return fmt.Errorf("sluice: %s%w", what, err)
	}
	return fmt.Errorf("sluice: %scontainer %s: %w", what, c.Ref, err)
}

// RefusedStart is a start that was refused, whose end the runtime has not reported yet. The
// zero value is none.
type RefusedStart struct {
	Why  string
	At   time.Time
	Runs bool // the container runs all the same
}

// Warning tells of it in the status; "" where the container does not run.
func (r *RefusedStart) Warning() string {
	if !r.Runs {
		return ""
	}
	return "its start was refused, and the runtime runs it all the same: " + r.Why
}

// RefusedResize is the last resize that a container was refused. The zero value is none.
type RefusedResize struct {
	Change   workload.Resources
	Answer   string
	LoggedAt time.Time
	Repeats  int // further attempts since it was logged
}

// Lacks reports whether a note is there already.
func (c *Container) Lacks(key, text string) bool {
	return slices.ContainsFunc(c.Notes, func(n qos.Note) bool { return n.Key == key && n.Text == text })
}

// FailedUpdate is the last update of the runtime's record of a container that the runtime
// refused, with how often it did. The zero value is none.
type FailedUpdate struct {
	To    Settings
	Times int
}
