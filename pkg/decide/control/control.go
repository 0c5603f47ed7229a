// Package control decides, as load changes, how many CPUs each pool has, how much CPU and
// memory batch work may use, which containers may exceed their limits or must stay below them,
// and which pods are evicted. The package does no I/O: each controller is a state machine whose
// Step takes a view of the node and returns what the controller wants now. Time is an input.
// docs/control.md describes the rules and their numbers.
//
// A controller remembers what it wants and reads the node's settings only at its first step. So
// it decides the same in preview, where nothing is written.
package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// View is a controller's input: the containers that run, their requests and their usage. It is
// valid for one step.
type View struct {
	Now time.Time

	Node observe.Node
	CPUs []observe.CPU // by CPU number

	Shared         workload.MilliCPU // CPUs that the pools divide: all but the reserved, the system's and the pinned ones
	Lent           workload.MilliCPU // CPUs of idle LSR pins, which batch work may use too
	Demoted        workload.MilliCPU // CPU time that demotion and the culprit's limit keep from services and that batch work must not get
	Allocatable    workload.MilliCPU // including the pinned CPUs
	Capacity       workload.MilliCPU // all CPUs that are online
	ThreadsPerCore int
	Isolated       bool   // all batch work yields at once to the other users of its CPUs (idle class or group identity)
	Stays          string // the batch pod that does not yield at once, and why: "pod shop/job is Burstable: ..."; "" if all do
	MemoryTotal    int64  // memory of the machine, or the limit of all pods together, in bytes
	NoReclaim      bool   // the kernel can't reclaim memory from a single container (memory.reclaim needs cgroup v2 and Linux 5.19)

	ExclusivePools bool        // pools have CPUs of their own
	Pools          []Pool      // in descending priority; the last is the batch pool
	Pods           []Pod       // in the order of their containers
	Containers     []Container // grouped by pod, the oldest pod first

	// APIPods is what the API knows of the node's pods, by UID, and Stuck the pods that could not
	// start, from sluice-kube and from the node. HasCRI is set if pods can be ended through the
	// runtime's CRI socket. Controllers read all three and change none.
	APIPods map[string]evictorder.Pod
	Stuck   []StuckPod
	HasCRI  bool

	Egress observe.Egress // what the node and its pods of batch work send; zero if nothing is limited

	Forecasts Forecasts // peaks to count with; empty if nothing counts with them
	Expected  Forecasts // peaks that are forecast, whether anything counts with them or not

	Share BatchShare // what the bounds of services leave batch work; decided at the end of the previous step
	Batch BatchState // what time windows and the batch switch allow; decided before the other controllers step

	// BatchUse is the CPU usage of all batch work, from cgroups that hold nothing else. It is
	// newer than the sum of the containers' usage. Its time is zero if no such cgroup exists.
	BatchUse Use
	// PodsUse is the CPU usage of all pods, from a cgroup that holds all pods and nothing else.
	PodsUse Use
	// BatchMemory is the memory of batch work as the cgroups of BatchUse and of host applications
	// report it.
	BatchMemory Held
	// HostApplications are the configured ones whose cgroups exist. They are batch work outside of
	// all pods.
	HostApplications []HostUse
	// Granted is the memory in bytes that starting BE containers were promised and do not use
	// yet.
	Granted int64
	// NoBatchLimit is set while no cgroup exists on which batch work's memory could be limited.
	// No limit is decided then.
	NoBatchLimit bool
}

// Use is an amount of CPU with the time of its measurement.
type Use struct {
	At    time.Time
	Usage workload.MilliCPU
}

// Add adds the usage of a cgroup. The sum has the older time, which is zero if either is
// unknown.
func (u *Use) Add(c *observe.ContainerCPU) {
	u.Usage += c.Usage
	if c.At.Before(u.At) {
		u.At = c.At
	}
}

// Held is an amount of memory in bytes with the time of its measurement.
type Held struct {
	At                   time.Time
	Current, Cache, Anon int64 // Cache is page cache that can be dropped
	Swap                 int64 // in swap, which Current does not include; 0 if unknown
}

// Add adds the memory of a cgroup. The sum has the older time, which is zero if either is
// unknown.
func (h *Held) Add(c *observe.Container) {
	m := &c.Memory
	h.Current += m.Current
	h.Cache += min(m.Cache, m.Current)
	h.Anon += m.Anon
	h.Swap += c.Swap.Used
	h.At = older(h.At, m.At)
}

// Sum adds another amount. The sum has the older time, which is zero if either is unknown.
func (h *Held) Sum(o Held) {
	h.Current, h.Cache, h.Anon, h.Swap, h.At = h.Current+o.Current, h.Cache+o.Cache, h.Anon+o.Anon, h.Swap+o.Swap, older(h.At, o.At)
}

// NonCache returns the memory that the kernel can't free by dropping page cache.
func (h *Held) NonCache() int64 { return h.Current - h.Cache }

// Pool is one pool of CPUs.
type Pool struct {
	Name     string
	Size     int               // number of CPUs
	Spare    int               // those that batch work may use too
	Disjoint uint64            // bit i is set if the pool has none of the CPUs of View.Pools[i]
	Empty    bool              // the pool has no container
	Request  workload.MilliCPU // sum of its containers' requests
	Quota    workload.MilliCPU // largest CPU limit of one container; 0 if none has a limit
	At       time.Time         // time of Usage; zero if unknown
	Usage    workload.MilliCPU // mean over the last sampling interval
	Demoted  workload.MilliCPU // part of View.Demoted that the culprit's limit keeps from its services
	Pressure float64           // share of time in which some task of the pool waited for a CPU, 0 to 1
}

// Pod is a pod with its containers.
type Pod struct {
	UID          string
	Ref          string         // "namespace/name"
	Class        workload.Class // the highest class of its containers: a pod with an LS container is LS
	Since        time.Time
	Labels       map[string]string // labels from the runtime; must not be modified
	Evict        workload.Evict
	Tier         workload.Tier    // of a BE pod
	Egress       workload.Egress  // the most that a BE pod may send by its annotation or the configuration
	SLO          workload.SLO     // the tightest bounds of its containers
	Latency      observe.Latency  // by the histogram that SLO.Latency names; zero if it names none
	Allow        workload.Actions // actions that the annotation allow.sluice.dev permits although the pod is not BE
	Squeezed     bool             // it has had a lower CPU limit as a culprit since the last step
	Separated    bool             // it has had CPUs of its own as a noisy pod since the last step
	First, Count int              // range of its containers in View.Containers
}

// Container is a container with its usage.
type Container struct {
	observe.Container
	Ref   string // "namespace/pod/container"
	Pod   int    // index in View.Pods
	Pool  int    // index in View.Pools; -1 for pins and the system's CPUs
	Class workload.Class
	Since time.Time // time of its start

	// Apart is set if the container has CPUs on which batch work never runs: those of a pin, of
	// the system, or of the kubelet's static CPU manager. View.Shared does not include them.
	Apart bool
	// Created is when the runtime created the container, which may be before this process
	// started.
	Created time.Time

	// Unseen is set if the container's usage can't be measured, because it has not started or
	// runs in a virtual machine. Sums leave it out and do not wait for its figures.
	Unseen bool

	Request     workload.MilliCPU // 0 if it has none
	Limit       workload.MilliCPU // CPU limit from the kubelet or the batch grant, without what the loop changed; 0 if it has none
	Memory      int64             // request in bytes; 0 if unknown. The usage is in Container.Memory
	MemoryLimit int64             // in bytes; 0 if it has none
	Burst       workload.Burst
}

// Decision is one change that a controller decided, for the log, the audit trail, explain and
// the metrics. A step that changes nothing makes no decision. Several steps of one value in one
// direction are one decision.
type Decision struct {
	Controller string `json:"controller"`      // Controller that decided, for example "pools".
	Object     string `json:"object"`          // Object of the decision, for example "pool online", "namespace/pod/container" or "node".
	Action     string `json:"action"`          // Action, for example "grow", "shrink" or "throttle".
	From       string `json:"from,omitempty"`  // Old value; absent if there was none.
	To         string `json:"to,omitempty"`    // New value; absent if there is none.
	Cause      string `json:"cause,omitempty"` // Cause of an eviction, a demotion or a notice, in few distinct values for counting, for example "node-memory" or the pool that lacked CPUs.
	Why        string `json:"why"`             // Reason in one sentence with the numbers that mattered.
	Facts      []Fact `json:"facts,omitempty"` // Measurements that the decision was based on.

	// A movement joins the steps of a value in one direction; see Movements. In a movement From
	// is the value before the first step, while Why and Facts belong to the last step.
	Steps      int       `json:"steps,omitempty"`      // Number of steps in one direction that this decision joins; absent for a single change.
	LastStepAt time.Time `json:"lastStepAt,omitzero"`  // Time of the latest step; absent for a single step.
	Ongoing    bool      `json:"ongoing,omitempty"`    // Whether further steps may follow.
	FirstFacts []Fact    `json:"firstFacts,omitempty"` // Measurements at the first step; absent for a single step.

	Moves string `json:"-"` // name of the value that this decision moves by a step; "" for a single change
}

// Fact is one measurement behind a decision.
type Fact struct {
	Name  string  `json:"name"`  // Name of the number with its unit, for example "usage_cpus".
	Value float64 `json:"value"` // Value in that unit.
}

// Mode says whether a controller acts.
type Mode string

// The modes of a controller.
const (
	On      Mode = "on"
	Preview Mode = "preview" // decide, log, count and explain, but write nothing
	Off     Mode = "off"
)

// UnmarshalText parses "on", "preview" or "off", or "default" for the mode of the loop.
func (m *Mode) UnmarshalText(text []byte) error {
	if string(text) == "default" {
		*m = ""
		return nil
	}
	return choose(m, text, On, Preview, Off)
}

// BatchState is what time windows and the batch switch allow batch work now.
type BatchState struct {
	Closed  bool   // no new BE pods may start
	Squeeze bool   // running BE pods have only Percent of the CPU that they would have, but at least the floor
	Percent int    // 0 leaves the floor alone
	Evict   bool   // running BE pods are evicted
	Why     string // reason; "" if batch work is unrestricted
}
