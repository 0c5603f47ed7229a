// Package status is the plugin's state as data, and the unix socket that serves
// it to the command line.
package status

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/control"
	"github.com/sluice-dev/sluice/pkg/neighbour"
	"github.com/sluice-dev/sluice/pkg/policy"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Status is one moment of the plugin.
type Status struct {
	Schema     int                   `json:"schema"`
	Version    string                `json:"version"`
	Build      Build                 `json:"build"`
	Started    time.Time             `json:"started"`
	Config     Config                `json:"config"`
	Time       time.Time             `json:"time"`
	Mode       string                `json:"mode"`             // "on" or "preview"
	Reason     string                `json:"reason,omitempty"` // why the mode is not the configured one, or cpusets are left alone
	Runtime    Runtime               `json:"runtime"`
	Machine    Machine               `json:"machine"`
	Pools      []Pool                `json:"pools"`
	Containers []Container           `json:"containers"`
	Neighbours []neighbour.Neighbour `json:"neighbours,omitempty"`
	Contested  []string              `json:"contested,omitempty"` // settings that somebody else changes again and again: "cpu.burst of shop/db/main"
	Counters   Counters              `json:"counters"`
	Features   []Feature             `json:"features,omitempty"`
	Handlers   []Handler             `json:"handlers,omitempty"`
	Errors     []KnobErrors          `json:"errors,omitempty"`
	Loop       *Loop                 `json:"loop,omitempty"` // nil without one
}

// Runtime is the connection to the container runtime.
type Runtime struct {
	Connected  bool      `json:"connected"`
	Name       string    `json:"name,omitempty"`
	Version    string    `json:"version,omitempty"`
	NRIVersion string    `json:"nriVersion,omitempty"`
	Since      time.Time `json:"since"`
	SlowLane   string    `json:"slowLane"` // "open", or why it is shut
}

// Machine is the machine in short.
type Machine struct {
	Online   cpuset.Set `json:"online"`
	Offline  cpuset.Set `json:"offline"`
	Packages int        `json:"packages"`
	Nodes    int        `json:"nodes"`
	L3s      int        `json:"l3s"`
	Cores    int        `json:"cores"`
	Memory   int64      `json:"memory"` // bytes
	Pinned   cpuset.Set `json:"pinned"`
	Reserved cpuset.Set `json:"reserved"`
	System   cpuset.Set `json:"system"`
	External cpuset.Set `json:"external"` // exclusive CPUs of the kubelet's own CPU manager
	Steering Steering   `json:"steering"`
}

// Steering is what IRQs and unbound workqueues have been moved away from.
type Steering struct {
	CPUs    cpuset.Set `json:"cpus"`    // of LSE containers; empty: nothing is steered
	Skipped int        `json:"skipped"` // IRQs and masks that the kernel did not let move
}

// Pool is a pool with who is in it.
type Pool struct {
	Name       string            `json:"name"`
	CPUs       cpuset.Set        `json:"cpus"`
	Containers int               `json:"containers"`
	Requested  workload.MilliCPU `json:"requestedMilliCPU"`
	Load       *PoolLoad         `json:"load,omitempty"`
}

// Container is a container with what it has and why.
type Container struct {
	ID         string             `json:"id"`
	PodUID     string             `json:"podUID"`
	Ref        string             `json:"ref"` // "namespace/pod/container"
	Class      workload.Class     `json:"class"`
	Pool       string             `json:"pool,omitempty"`
	State      policy.State       `json:"state"`
	Controlled bool               `json:"controlled"`
	Requested  workload.MilliCPU  `json:"requestedMilliCPU"`
	CPUs       cpuset.Set         `json:"cpus"` // empty: all
	Mems       cpuset.Set         `json:"mems"` // empty: all
	Unlimited  bool               `json:"unlimited"`
	Why        string             `json:"why"`
	Settings   []workload.Setting `json:"settings,omitempty"`
	Warnings   []string           `json:"warnings,omitempty"`
	Cgroup     string             `json:"cgroup,omitempty"`
	Drift      int                `json:"drift"` // times somebody else's change of its CPUs or memory nodes was repaired
	Kernel     []Kernel           `json:"kernel,omitempty"`
	Lacks      []Lack             `json:"lacks,omitempty"`
	Cache      []Cache            `json:"cache,omitempty"`
	Usage      *Usage             `json:"usage,omitempty"` // as the loop sees it
}

// Cache is what a container uses of one L3 cache and of the memory behind it, where
// RDT counts it; negative is not known.
type Cache struct {
	ID        int   `json:"id"`
	Occupancy int64 `json:"occupancy"`  // bytes
	Total     int64 `json:"totalBytes"` // moved from and to memory, ever
	Local     int64 `json:"localBytes"` // of those, the NUMA node's own
}

// Kernel is one kernel setting of a container or of its pod, besides CPUs and
// memory nodes.
type Kernel struct {
	Level     string `json:"level"`   // "pod" or "container"
	Setting   string `json:"setting"` // "cpu.burst"
	File      string `json:"file"`    // that is it on this kernel: "cpu.cfs_burst_us"; "" where it is none of the cgroup's
	Value     string `json:"value"`   // what it is to be
	Why       string `json:"why"`
	Problem   string `json:"problem,omitempty"`   // why the kernel does not have it
	Drift     int    `json:"drift"`               // times somebody else's change was repaired
	Suspect   string `json:"suspect,omitempty"`   // who is likely to have made the last of them
	Contested bool   `json:"contested,omitempty"` // somebody else changes it again and again: repairs wait
}

// Lack is something asked for that this node has in another way, or not at all.
type Lack struct {
	Key     string `json:"key"` // "cpu-burst"
	Missing bool   `json:"missing"`
	Text    string `json:"text"`
}

// Counters count since the plugin started.
type Counters struct {
	Placed       int `json:"placed"`
	Refused      int `json:"refused"`
	Resized      int `json:"resized"`
	Drift        int `json:"drift"`
	Panics       int `json:"panics"`
	WriteErrors  int `json:"writeErrors"`
	SlowUpdates  int `json:"slowUpdates"`
	SlowFailures int `json:"slowFailures"`
	Reconnects   int `json:"reconnects"`
}

// Answer is what one container of a planned pod would get.
type Answer struct {
	Ref       string             `json:"ref"`
	Class     workload.Class     `json:"class"`
	CPUs      cpuset.Set         `json:"cpus"` // empty: all
	Mems      cpuset.Set         `json:"mems"` // empty: all
	Unlimited bool               `json:"unlimited"`
	Why       string             `json:"why,omitempty"`
	Error     string             `json:"error,omitempty"` // why it would be refused
	Settings  []workload.Setting `json:"settings,omitempty"`
	Warnings  []string           `json:"warnings,omitempty"`
}

// Decision is one thing that the control loop decided.
type Decision struct {
	Time time.Time    `json:"time"`
	Mode control.Mode `json:"mode"` // preview: nothing was changed
	control.Decision
}

// Decided is a kind of decision, to be counted.
type Decided struct {
	Controller string       `json:"controller"`
	Action     string       `json:"action"`
	Cause      string       `json:"cause,omitempty"` // of evictions and demotions
	Mode       control.Mode `json:"mode"`
}
