// Package status is the plugin's state as data, and the unix socket that serves
// it to the command line.
package status

import (
	"cmp"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Status is one moment of the plugin.
type Status struct {
	Schema     int               `json:"schema"`  // version of this shape
	Version    string            `json:"version"` // the plugin's
	Build      Build             `json:"build"`
	Started    time.Time         `json:"started"` // when this process began
	Config     Config            `json:"config"`
	Time       time.Time         `json:"time"`             // of this snapshot
	Mode       string            `json:"mode"`             // "on" or "preview"
	Reason     string            `json:"reason,omitempty"` // why the mode is not the configured one, or cpusets are left alone
	Runtime    Runtime           `json:"runtime"`
	Machine    Machine           `json:"machine"`
	Pools      []Pool            `json:"pools"`
	Containers []Container       `json:"containers"`
	Neighbours []peers.Neighbour `json:"neighbours,omitempty"`
	Contested  []string          `json:"contested,omitempty"`  // settings that somebody else changes again and again: "cpu.burst of shop/db/main"
	SlowWrites []SlowWrite       `json:"slowWrites,omitempty"` // writes that the kernel has been busy with for more than a second, the longest first
	Grants     Grants            `json:"grants"`
	Counters   Counters          `json:"counters"`
	Features   []Feature         `json:"features,omitempty"`
	Handlers   []Handler         `json:"handlers,omitempty"`
	Errors     []KnobErrors      `json:"errors,omitempty"`
	Loop       *Loop             `json:"loop,omitempty"` // nil without one
}

// Grants is where pods' requests are known from.
type Grants struct {
	File    string `json:"file,omitempty"`    // the kubelet's record of what it has granted; left out where it isn't known
	Pods    int    `json:"pods,omitempty"`    // that it has
	Problem string `json:"problem,omitempty"` // why it isn't understood, or can't be read
}

// Runtime is the connection to the container runtime.
type Runtime struct {
	Connected  bool      `json:"connected"`            // the plugin takes part
	Name       string    `json:"name,omitempty"`       // "containerd"
	Version    string    `json:"version,omitempty"`    // the runtime's
	NRIVersion string    `json:"nriVersion,omitempty"` // of the runtime's NRI; left out by old ones
	Since      time.Time `json:"since"`                // connected, or not connected, since
	SlowLane   string    `json:"slowLane"`             // "open", or why it is shut
}

// SlowWrite is a value on its way to the kernel, which moves pages or reclaims memory
// for it. Nothing else waits for it.
type SlowWrite struct {
	Object  string `json:"object"`            // the cgroup: "namespace/pod", or with "/container"
	Setting string `json:"setting"`           // "cpuset.mems"
	To      string `json:"to"`                // the value
	Seconds int64  `json:"seconds"`           // since it was begun or, where it waits, asked for
	Waiting bool   `json:"waiting,omitempty"` // other writes that take long come first
}

// Machine is the machine in short.
type Machine struct {
	Online   cpuset.Set `json:"online"`   // CPUs
	Offline  cpuset.Set `json:"offline"`  // CPUs that are switched off
	Packages int        `json:"packages"` // sockets
	Nodes    int        `json:"nodes"`    // NUMA nodes
	L3s      int        `json:"l3s"`      // L3 caches
	Cores    int        `json:"cores"`    // each with all of its threads
	Memory   int64      `json:"memory"`   // bytes
	Pinned   cpuset.Set `json:"pinned"`   // CPUs of LSE and LSR containers
	Reserved cpuset.Set `json:"reserved"` // CPUs that no container gets, by the configuration
	System   cpuset.Set `json:"system"`   // CPUs of class SYSTEM, by the configuration
	External cpuset.Set `json:"external"` // CPUs that are not Sluice's to give: exclusive ones of the kubelet's own CPU manager, and those that the cgroup of all pods lacks
	Steering Steering   `json:"steering"`
}

// Steering is what IRQs and unbound workqueues have been moved away from.
type Steering struct {
	CPUs    cpuset.Set `json:"cpus"`    // of LSE containers; empty: nothing is steered
	Skipped int        `json:"skipped"` // IRQs and masks that the kernel did not let move
}

// Pool is a pool with who is in it.
type Pool struct {
	Name       string            `json:"name"`              // as in the configuration
	CPUs       cpuset.Set        `json:"cpus"`              // that its containers may use
	Containers int               `json:"containers"`        // how many are in it
	Requested  workload.MilliCPU `json:"requestedMilliCPU"` // by them together
	RCF        float64           `json:"rcf,omitempty"`     // its CPUs of those requested, which rcf bounds; left out where none are
	Load       *PoolLoad         `json:"load,omitempty"`
}

// Container is a container with what it has and why.
type Container struct {
	ID              string                 `json:"id"`                    // the runtime's
	PodUID          string                 `json:"podUID"`                // the kubelet's
	Ref             string                 `json:"ref"`                   // "namespace/pod/container"
	Class           workload.Class         `json:"class"`                 // LSE, LSR, LS, BE or SYSTEM
	Pool            string                 `json:"pool,omitempty"`        // left out where it has CPUs of its own
	State           placement.State        `json:"state"`                 // "reserved" before its start, then "held"
	Controlled      bool                   `json:"controlled"`            // Sluice may set its CPUs
	Requested       workload.MilliCPU      `json:"requestedMilliCPU"`     // CPU; of BE also what it was granted of batch resources
	RequestedMemory int64                  `json:"requestedMemoryBytes"`  // likewise; 0 none, or unknown
	RequestedBy     workload.RequestSource `json:"requestedBy,omitempty"` // where both are known from: "kubelet" (its record), "annotation" or "inferred"
	CPUs            cpuset.Set             `json:"cpus"`                  // empty: all
	Mems            cpuset.Set             `json:"mems"`                  // empty: all
	Unlimited       bool                   `json:"unlimited"`             // its CPU quota is lifted
	Why             string                 `json:"why"`                   // how it came to its CPUs
	Settings        []workload.Setting     `json:"settings,omitempty"`
	Warnings        []string               `json:"warnings,omitempty"` // about what it asks for
	Cgroup          string                 `json:"cgroup,omitempty"`   // its folder below the cgroup root
	Drift           int                    `json:"drift"`              // times somebody else's change of its CPUs or memory nodes was repaired
	Kernel          []Kernel               `json:"kernel,omitempty"`
	Lacks           []Lack                 `json:"lacks,omitempty"`
	Cache           []observe.L3           `json:"cache,omitempty"`    // where RDT counts it
	CacheTime       time.Time              `json:"cacheTime,omitzero"` // of the look at it
	Usage           *Usage                 `json:"usage,omitempty"`    // as the loop sees it
	Since           time.Time              `json:"since,omitzero"`     // when it was placed
}

// Older orders containers as a status lists them: the oldest first.
func Older(a, b Container) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
}

// Kernel is one kernel setting of a container or of its pod, besides CPUs and
// memory nodes.
type Kernel struct {
	Level     string `json:"level"`               // "pod" or "container"
	Setting   string `json:"setting"`             // "cpu.burst"
	File      string `json:"file"`                // that is it on this kernel: "cpu.cfs_burst_us"; "" where it is none of the cgroup's
	Value     string `json:"value"`               // what it is to be
	Why       string `json:"why"`                 // the key or rule that asks for it
	Problem   string `json:"problem,omitempty"`   // why the kernel does not have it
	Drift     int    `json:"drift"`               // times somebody else's change was repaired
	Suspect   string `json:"suspect,omitempty"`   // who is likely to have made the last of them
	Contested bool   `json:"contested,omitempty"` // somebody else changes it again and again: repairs wait
}

// Lack is something asked for that this node has in another way, or not at all.
type Lack struct {
	Key     string `json:"key"`     // "cpu-burst"
	Missing bool   `json:"missing"` // true: not at all
	Text    string `json:"text"`    // what it has in its place, and what would help
}

// Counters count since the plugin started.
type Counters struct {
	Placed         int `json:"placed"`         // times that a container was let in at its creation, or at its start where its grant had been freed
	Refused        int `json:"refused"`        // times that a container's creation or start failed by Sluice; the kubelet tries again
	RanRefused     int `json:"ranRefused"`     // containers that the runtime ran although Sluice refused their start
	Resized        int `json:"resized"`        // resizes of containers' CPU or memory that were carried out
	ResizesRefused int `json:"resizesRefused"` // resizes that were refused; further attempts at the same don't count
	Drift          int `json:"drift"`          // times that a setting was found changed by somebody else, and repaired
	Panics         int `json:"panics"`         // bugs: each failed one event, one step of the loop or one pass
	WriteErrors    int `json:"writeErrors"`    // writes that the kernel refused; each attempt counts
	SlowUpdates    int `json:"slowUpdates"`    // updates of the runtime's record that were sent
	SlowFailures   int `json:"slowFailures"`   // of those, that the runtime refused
	Reconnects     int `json:"reconnects"`     // connections to the runtime after the first
	GrantsCut      int `json:"grantsCut"`      // containers whose annotation claims more than the kubelet has granted
	BatchKills     int `json:"batchKills"`     // of batch work by the kernel, at a memory limit of Sluice's that was below what it might hold: bugs
	ServiceKills   int `json:"serviceKills"`   // of services by the kernel, at the limit of all pods while batch work held memory
}

// Answer is what one container of a planned pod would get.
type Answer struct {
	Ref       string             `json:"ref"`             // "namespace/pod/container"
	Class     workload.Class     `json:"class"`           // that it would have
	CPUs      cpuset.Set         `json:"cpus"`            // empty: all
	Mems      cpuset.Set         `json:"mems"`            // empty: all
	Unlimited bool               `json:"unlimited"`       // its CPU quota would be lifted
	Why       string             `json:"why,omitempty"`   // how it would come to its CPUs
	Error     string             `json:"error,omitempty"` // why it would be refused
	Settings  []workload.Setting `json:"settings,omitempty"`
	Warnings  []string           `json:"warnings,omitempty"` // about what it asks for
}

// Decision is one thing that the control loop decided.
type Decision struct {
	Time time.Time    `json:"time"` // when
	Mode control.Mode `json:"mode"` // preview: nothing was changed
	control.Decision
}

// Decided is a kind of decision, to be counted.
type Decided struct {
	Controller string       `json:"controller"`      // "pools"
	Action     string       `json:"action"`          // "grow"
	Cause      string       `json:"cause,omitempty"` // of evictions and demotions
	Mode       control.Mode `json:"mode"`            // in which it was decided
}
