// Package control decides, as load moves, how many CPUs each pool has, how much CPU
// and memory batch work may use, which containers may go over their limits or have to
// stay below, and who has to go. Pure: each controller is a state machine that is
// stepped with a view of the node and answers with what it wants now. Time is an
// input. The law and its numbers are those of docs/control.md.
//
// A controller keeps what it wants as its own state and looks at the node's settings
// only when it begins: so it decides the same in preview, where nothing is written.
package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// View is what controllers decide from: what runs, what it asked for, what it does.
// It is lent for one step.
type View struct {
	Now time.Time

	Node observe.Node
	CPUs []observe.CPU // by CPU number

	Shared         workload.MilliCPU // CPUs that the pools divide: neither reserved, the system's nor pinned
	Lent           workload.MilliCPU // CPUs of idle LSR pins, on which batch work runs too
	Demoted        workload.MilliCPU // CPU time that demotion keeps from services, which batch work must not get
	Allocatable    workload.MilliCPU // with the pinned
	Capacity       workload.MilliCPU // all CPUs that are online
	ThreadsPerCore int
	Isolated       bool   // batch work yields at once to the others on its CPUs: idle class, group identity
	Stays          string // which pod of it doesn't, and why: "pod shop/job is Burstable: ..."; "" where all do
	MemoryTotal    int64  // bytes: the machine's, or what all pods together may have
	NoReclaim      bool   // the kernel takes no memory back from a single container (no memory.reclaim: v2, Linux 5.19)

	Pools      []Pool      // the highest priority first; the last is the batch pool
	Pods       []Pod       // in the order of their containers
	Containers []Container // those of a pod together, the oldest pod first

	Batch BatchState // what windows and the switch say, decided before the other controllers

	// BatchUse is the CPU that all batch work uses together, where cgroups that hold
	// nothing else tell it: newer than the sum of its containers. At zero: not known.
	BatchUse Use
	// PodsUse is that of all pods, where a cgroup holds them all and nothing else.
	PodsUse Use
	// BatchMemory is what batch work holds, as far as the same cgroups tell it.
	BatchMemory Held
	// Granted is the memory that BE containers which are starting were promised and don't
	// hold yet, in bytes.
	Granted int64
	// NoBatchLimit is set while no cgroup is there that a limit of batch work's memory
	// could be set on: then none is decided.
	NoBatchLimit bool
}

// Use is an amount of CPU with the time of its measurement.
type Use struct {
	At    time.Time
	Usage workload.MilliCPU
}

// Add adds what a cgroup uses; the older time counts, none where it isn't known.
func (u *Use) Add(c *observe.ContainerCPU) {
	u.Usage += c.Usage
	if c.At.Before(u.At) {
		u.At = c.At
	}
}

// Held is an amount of memory in bytes, with the time of its measurement.
type Held struct {
	At                   time.Time
	Current, Cache, Anon int64 // Cache is page cache that can be dropped
}

// Add adds what a cgroup holds; the older time counts, none where it isn't known.
func (h *Held) Add(c *observe.ContainerMemory) {
	h.Current += c.Current
	h.Cache += min(c.Cache, c.Current)
	h.Anon += c.Anon
	h.At = older(h.At, c.At)
}

// Sum adds another amount; the older time counts, none where it isn't known.
func (h *Held) Sum(o Held) {
	h.Current, h.Cache, h.Anon, h.At = h.Current+o.Current, h.Cache+o.Cache, h.Anon+o.Anon, older(h.At, o.At)
}

// Kept is what the kernel can't take back by dropping page cache.
func (h *Held) Kept() int64 { return h.Current - h.Cache }

// Pool is one pool of CPUs.
type Pool struct {
	Name     string
	Size     int               // CPUs that it has
	Empty    bool              // no container is in it
	Request  workload.MilliCPU // sum of its containers'
	Quota    workload.MilliCPU // largest CPU limit of one container; 0 none has one
	At       time.Time         // of Usage; zero unknown
	Usage    workload.MilliCPU // over the last sampling interval
	Pressure float64           // 0..1: share of time in which tasks of it waited for a CPU
}

// Pod is a pod with its containers.
type Pod struct {
	UID          string
	Ref          string         // "namespace/name"
	Class        workload.Class // the highest of its containers: one with an LS container is LS
	Since        time.Time
	Labels       map[string]string // as the runtime knows them; not to be changed
	Evict        workload.Evict
	Allow        workload.Actions // by allow.sluice.dev, what may be done to it though it isn't BE
	First, Count int              // its containers in View.Containers
}

// Container is a container with what it does.
type Container struct {
	observe.Container
	Ref   string // "namespace/pod/container"
	Pod   int    // in View.Pods
	Pool  int    // in View.Pools; -1 for a pin and the system's
	Class workload.Class
	Since time.Time // its start

	// Apart is set where it has CPUs on which batch work never runs: a pin's, the system's,
	// or those that the kubelet's static CPU manager gave it. View.Shared leaves them out.
	Apart bool
	// Created is when the runtime made it, also where that was before this run.
	Created time.Time

	// Unseen is set where nobody can look at it: it was created and has not started, or
	// it runs in a virtual machine. Sums leave it out, and don't wait for its figures.
	Unseen bool

	Request     workload.MilliCPU // 0 none
	Limit       workload.MilliCPU // by quota, as the kubelet or its batch grant gave it; 0 none
	Memory      int64             // request in bytes; 0 unknown. What it uses is Container.Memory
	MemoryLimit int64             // bytes; 0 none
	Burst       workload.Burst
}

// Decision is one thing that a controller decided, for the log, the audit trail,
// explain and the metrics. Only changes are decisions: a step that leaves all as it is
// has none. A value that goes one way in several steps is one decision.
type Decision struct {
	Controller string `json:"controller"`      // Controller that decided, for example "pools".
	Object     string `json:"object"`          // Object of the decision, for example "pool online", "namespace/pod/container" or "node".
	Action     string `json:"action"`          // Action, for example "grow", "shrink" or "throttle".
	From       string `json:"from,omitempty"`  // Old value; absent if there was none.
	To         string `json:"to,omitempty"`    // New value; absent if there is none.
	Cause      string `json:"cause,omitempty"` // Cause of an eviction or demotion, in few distinct values for counting, for example "node-memory" or the pool that lacked CPUs.
	Why        string `json:"why"`             // Reason in one sentence with the numbers that mattered.
	Facts      []Fact `json:"facts,omitempty"` // Measurements that the decision was based on.

	// Of a movement, which joins the steps of a value that goes one way: see Movements.
	// From is then the value before the first step, Why and Facts are of the last.
	Steps      int       `json:"steps,omitempty"`      // Number of steps in one direction that this decision joins; absent for a single change.
	LastStepAt time.Time `json:"lastStepAt,omitzero"`  // Time of the latest step; absent for a single step.
	Going      bool      `json:"going,omitempty"`      // Whether further steps may follow.
	FirstFacts []Fact    `json:"firstFacts,omitempty"` // Measurements at the first step; absent for a single step.

	Moves string `json:"-"` // names the value that this is a step of; "": a decision of its own
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

// UnmarshalText reads "on", "preview" or "off", or "default" for that of the loop.
func (m *Mode) UnmarshalText(text []byte) error {
	if string(text) == "default" {
		*m = ""
		return nil
	}
	return choose(m, text, On, Preview, Off)
}

// BatchState is whether the node does batch work now.
type BatchState struct {
	Closed  bool   // no new BE
	Squeeze bool   // running BE gets Percent of what it would have, never less than its floor
	Percent int    // 0: its floor alone
	Evict   bool   // running BE has to go
	Why     string // "" where batch is as always
}
