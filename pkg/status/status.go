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

// Status is a snapshot of the plugin.
type Status struct {
	Schema     int               `json:"schema"`               // Version of the status's shape. It grows when a field changes its meaning or is removed.
	Version    string            `json:"version"`              // Version of the plugin, for example "v1.2.3".
	Build      Build             `json:"build"`                // Version of the program and of its compiler.
	StartedAt  time.Time         `json:"startedAt"`            // Time at which this process started.
	Config     Config            `json:"config"`               // Configuration in force.
	Time       time.Time         `json:"time"`                 // Time at which this snapshot was taken.
	Mode       Mode              `json:"mode"`                 // Mode of the plugin in force.
	Why        string            `json:"why,omitempty"`        // Why the mode is not the configured one, or why cpusets are left alone; absent if neither is so.
	Runtime    Runtime           `json:"runtime"`              // Connection to the container runtime.
	Machine    Machine           `json:"machine"`              // Summary of the machine.
	Scheduling Scheduling        `json:"scheduling"`           // What the containers request of the node's CPUs, and what they could request more.
	Pools      []Pool            `json:"pools"`                // Pools in the order of their priority, highest first.
	Containers []Container       `json:"containers"`           // Containers that the plugin knows, oldest first.
	Neighbours []peers.Neighbour `json:"neighbours,omitempty"` // Other agents on this node that write the same settings; absent if there are none.
	Contested  []string          `json:"contested,omitempty"`  // Settings that another program changes again and again, for example "cpu.burst of shop/db/main"; absent if there are none.
	SlowWrites []SlowWrite       `json:"slowWrites,omitempty"` // Writes that the kernel has been processing for more than a second, longest first; absent if there are none.
	Grants     Grants            `json:"grants"`               // Where the plugin knows pods' requests from.
	Claims     *Claims           `json:"claims,omitempty"`     // CPUs reserved for resource claims of Kubernetes; absent if the plugin reserves none, or the runtime has not listed its containers yet.
	Counters   Counters          `json:"counters"`             // Events since the plugin started.
	Features   []Feature         `json:"features,omitempty"`   // Features that the kernel, runtime and hardware have or lack.
	Handlers   []Handler         `json:"handlers,omitempty"`   // Latencies of the plugin's answers to the runtime, by event.
	Errors     []KnobErrors      `json:"errors,omitempty"`     // Writes that the kernel refused, by knob and error; absent if there were none.
	Loop       *Loop             `json:"loop,omitempty"`       // Control loop; absent if the plugin runs without one.
}

// Mode is whether the plugin changes the node.
type Mode string

// The modes of the plugin.
const (
	ModeOn      Mode = "on"
	ModePreview Mode = "preview" // it decides and reports, and changes nothing
)

// Grants is the source of pods' requests.
type Grants struct {
	File    string     `json:"file,omitempty"`    // Path of the kubelet's record of granted resources; absent if the plugin does not know it.
	Pods    int        `json:"pods,omitempty"`    // Number of pods in the record; absent if zero.
	Problem string     `json:"problem,omitempty"` // Why the record cannot be read or understood; absent if it can.
	Cut     []CutGrant `json:"cut,omitempty"`     // Containers with an annotation that claims more batch resources than the kubelet granted; absent if there are none.
}

// CutGrant is a container with an annotation that claims more batch resources than the kubelet granted.
type CutGrant struct {
	Container string `json:"container"` // Container as "namespace/pod/container".
	PodUID    string `json:"podUID"`    // UID of the pod in Kubernetes.
	Why       string `json:"why"`       // What the annotation claims, and what the container gets.
}

// Runtime is the connection to the container runtime.
type Runtime struct {
	Connected        bool          `json:"connected"`                  // Whether the plugin is connected to the runtime.
	Name             string        `json:"name,omitempty"`             // Name of the runtime, for example "containerd"; absent before the first connection.
	Version          string        `json:"version,omitempty"`          // Version of the runtime; absent before the first connection.
	NRIVersion       string        `json:"nriVersion,omitempty"`       // Version of NRI that the runtime reports; absent if it reports none.
	ChangedAt        time.Time     `json:"changedAt"`                  // Time at which the plugin was connected or disconnected.
	RecordUpdates    RecordUpdates `json:"recordUpdates"`              // Whether Sluice sends the runtime updates of its own record of containers.
	RecordUpdatesWhy string        `json:"recordUpdatesWhy,omitempty"` // Why no updates of the record are sent; absent while they are.
}

// RecordUpdates says whether Sluice sends the runtime updates of its own record of containers.
type RecordUpdates string

// These are the values of RecordUpdates.
const (
	RecordUpdatesOn  RecordUpdates = "on"  // updates are sent
	RecordUpdatesOff RecordUpdates = "off" // none are sent
)

// SlowWrite is a write that the kernel has not finished, because it moves pages or
// reclaims memory. No event waits for it.
type SlowWrite struct {
	Object         string `json:"object"`            // Cgroup that is written, as "namespace/pod" or "namespace/pod/container".
	Knob           string `json:"knob"`              // Kernel's control that is written, for example "cpuset.mems".
	To             string `json:"to"`                // Value that is written.
	ElapsedSeconds int64  `json:"elapsedSeconds"`    // Time in seconds since the write began or, if it is waiting, since it was requested.
	Waiting        bool   `json:"waiting,omitempty"` // Whether the write waits for other slow writes.
}

// Machine is a summary of the machine.
type Machine struct {
	Online       cpuset.Set `json:"online"`              // CPUs that are online.
	Offline      cpuset.Set `json:"offline"`             // CPUs that are present but offline.
	Packages     int        `json:"packages"`            // Number of CPU packages (sockets).
	Nodes        int        `json:"nodes"`               // Number of NUMA nodes.
	L3s          int        `json:"l3s"`                 // Number of L3 caches.
	Cores        int        `json:"cores"`               // Number of physical cores.
	MemoryBytes  int64      `json:"memoryBytes"`         // Memory of the machine in bytes.
	Pinned       cpuset.Set `json:"pinned"`              // CPUs granted exclusively to LSE and LSR containers.
	PinnableCPUs int        `json:"pinnableCPUs"`        // Number of CPUs that new LSE and LSR containers could get together; 0 where Sluice sets no CPU sets.
	NUMANodes    []NUMANode `json:"numaNodes,omitempty"` // NUMA nodes, in the order of their numbers; absent if the runtime has not listed its containers yet.
	Reserved     cpuset.Set `json:"reserved"`            // CPUs that the configuration withholds from all containers.
	System       cpuset.Set `json:"system"`              // CPUs that the configuration gives to class SYSTEM.
	External     cpuset.Set `json:"external"`            // CPUs that Sluice must not assign: those exclusively assigned by the kubelet's CPU manager, and those that the cgroup of all pods lacks.
	Steering     Steering   `json:"steering"`            // Interrupts and work queues kept off CPUs.
}

// NUMANode is a NUMA node of the machine.
type NUMANode struct {
	ID           int        `json:"id"`           // Number of the NUMA node.
	CPUs         cpuset.Set `json:"cpus"`         // CPUs of the node that are online; empty if it has memory only.
	PinnableCPUs int        `json:"pinnableCPUs"` // Number of CPUs there that one new LSE or LSR container could get; 0 where Sluice sets no CPU sets.
	Distances    []int      `json:"distances"`    // Distances to the NUMA nodes in the order of this list, as the firmware states them: 10 is local.
}

// Steering is the state of keeping interrupts and unbound work queues off LSE CPUs.
type Steering struct {
	CPUs    cpuset.Set `json:"cpus"`    // CPUs of LSE containers that interrupts and unbound work queues are kept off; empty if nothing is steered.
	Skipped int        `json:"skipped"` // Number of interrupts and work queue masks that the kernel did not let Sluice move.
}

// Scheduling is what the containers request of the node's CPUs, and what they could request more.
type Scheduling struct {
	Requested       workload.MilliCPU  `json:"requestedMilliCPU"`      // CPU that the containers on the node request together, of every class and with batch resources, in thousandths of a CPU.
	Allocatable     workload.MilliCPU  `json:"allocatableMilliCPU"`    // CPUs that pods may have, which are those online without the reserved ones, in thousandths of a CPU.
	OvercommitRatio float64            `json:"overcommitRatio"`        // Overcommit: requestedMilliCPU divided by allocatableMilliCPU.
	Room            *workload.MilliCPU `json:"roomMilliCPU,omitempty"` // CPU that new containers can request beside what the pools need, in thousandths of a CPU: the CPUs of the pools, less each pool's RCF times what its containers request; absent if it is not known.
	RoomWhy         string             `json:"roomWhy,omitempty"`      // Why the room is not known; absent if it is.
}

// Pool is a pool of CPUs and its containers.
type Pool struct {
	Name       string            `json:"name"`               // Name of the pool, as configured.
	CPUs       cpuset.Set        `json:"cpus"`               // CPUs that the pool's containers may use.
	Spare      cpuset.Set        `json:"spare,omitzero"`     // Those of them that batch work may use too, because the pool does not need them now; absent if there are none.
	Containers int               `json:"containers"`         // Number of containers in the pool.
	Requested  workload.MilliCPU `json:"requestedMilliCPU"`  // CPU that the pool's containers request together, in thousandths of a CPU.
	RCFRatio   float64           `json:"rcfRatio,omitempty"` // RCF: the pool's CPUs divided by the CPUs that its containers request, which the key rcf bounds; absent if they request none.
	Load       *PoolLoad         `json:"load,omitempty"`     // Load of the pool; absent without a control loop.
}

// Container is a container, its settings and the reasons for them.
type Container struct {
	ID                   string                 `json:"id"`                       // ID of the container in the runtime.
	PodUID               string                 `json:"podUID"`                   // UID of the pod in Kubernetes.
	Ref                  string                 `json:"ref"`                      // Container as "namespace/pod/container".
	Class                workload.Class         `json:"class"`                    // Class of the container: "LSE", "LSR", "LS", "BE" or "SYSTEM".
	Tier                 *workload.Tier         `json:"tier,omitempty"`           // Tier of a BE container's pod: "mid", "batch" or "free"; absent for other classes.
	Pool                 string                 `json:"pool,omitempty"`           // Pool of the container; absent if it has exclusive CPUs.
	State                placement.State        `json:"state"`                    // State of the grant: "reserved" before the container's start, "held" after it.
	Controlled           bool                   `json:"controlled"`               // Whether Sluice may set the container's CPUs.
	Requested            workload.MilliCPU      `json:"requestedMilliCPU"`        // Requested CPU in thousandths of a CPU; for BE it includes granted batch resources.
	RequestedMemoryBytes int64                  `json:"requestedMemoryBytes"`     // Requested memory in bytes; for BE it includes granted batch resources; 0 if there is none or it is unknown.
	RequestedBy          workload.RequestSource `json:"requestedBy,omitempty"`    // Source of both requests.
	CPUs                 cpuset.Set             `json:"cpus"`                     // CPUs that the container may use; empty means all.
	Mems                 cpuset.Set             `json:"mems"`                     // NUMA nodes that the container may get memory from; empty means all.
	Unlimited            bool                   `json:"unlimited"`                // Whether Sluice lifted the container's CPU quota, because all of its CPUs are exclusive.
	Why                  string                 `json:"why"`                      // Why the container has these CPUs.
	Keys                 []workload.RequestKey  `json:"keys,omitempty"`           // Keys that shaped the container's request; absent if there are none.
	Warnings             []string               `json:"warnings,omitempty"`       // Warnings about what the container asks for; absent if there are none.
	Cgroup               string                 `json:"cgroup,omitempty"`         // Path of the container's cgroup below the cgroup root; absent if it is unknown.
	Drift                int                    `json:"drift"`                    // Number of times Sluice repaired another program's change of the container's CPUs or memory nodes.
	Settings             []Setting              `json:"settings,omitempty"`       // Values that Sluice wants for knobs of the container and its pod other than CPUs and memory nodes; absent if there are none.
	Lacks                []Lack                 `json:"lacks,omitempty"`          // Requested features that this node lacks or substitutes; absent if there are none.
	Cache                []observe.L3           `json:"cache,omitempty"`          // Cache occupancy and memory traffic by L3 cache; absent if RDT does not count them.
	CacheMeasuredAt      time.Time              `json:"cacheMeasuredAt,omitzero"` // Time at which the cache counters were read; absent if they were not.
	Usage                *Usage                 `json:"usage,omitempty"`          // Resources that the container uses; absent if the control loop has not measured it.
	PlacedAt             time.Time              `json:"placedAt,omitzero"`        // Time at which the container was placed.
}

// ClassText names a class, with the tier beside it where that is not the default.
func ClassText(class workload.Class, tier *workload.Tier) string {
	if tier == nil || *tier == workload.TierBatch {
		return class.String()
	}
	return class.String() + " " + tier.String()
}

// Older orders containers as a status lists them: the oldest first.
func Older(a, b Container) int {
	return cmp.Or(a.PlacedAt.Compare(b.PlacedAt), cmp.Compare(a.ID, b.ID))
}

// Setting is the value that Sluice wants for one knob of a container or of its pod.
// CPUs and memory nodes are not among the settings: the container has them itself.
type Setting struct {
	Level     Level  `json:"level"`               // Level of the cgroup.
	Knob      string `json:"knob"`                // Kernel's control that the setting is for, for example "cpu.burst".
	File      string `json:"file"`                // Kernel file of the knob, for example "cpu.cfs_burst_us"; empty if it is not a cgroup file.
	Value     string `json:"value"`               // Value that the knob should have.
	Why       string `json:"why"`                 // Key or rule that asks for the value.
	Problem   string `json:"problem,omitempty"`   // Why the kernel does not have the value; absent if it has.
	Drift     int    `json:"drift"`               // Number of times Sluice repaired another program's change of the value.
	Suspect   string `json:"suspect,omitempty"`   // Program that probably made the latest such change; absent if there was none.
	Contested bool   `json:"contested,omitempty"` // Whether another program changes the value again and again, so that repairs wait.
}

// Level is whose cgroup a setting is for.
type Level string

// The levels of settings.
const (
	PodLevel       Level = "pod"
	ContainerLevel Level = "container"
)

// Lack is a requested feature that this node substitutes or lacks.
type Lack struct {
	Key     string `json:"key"`     // Key that was asked for, for example "cpu-burst".
	Missing bool   `json:"missing"` // Whether the node has no substitute.
	Text    string `json:"text"`    // What the node uses instead, and what would provide the feature.
}

// Counters count since the plugin started.
type Counters struct {
	Placed               int `json:"placed"`               // Times a container was admitted, at its creation or at a start after its grant had been freed.
	Refused              int `json:"refused"`              // Times Sluice failed a container's creation or start; each of the kubelet's attempts counts.
	RanRefused           int `json:"ranRefused"`           // Containers that the runtime ran although Sluice refused their start.
	Resized              int `json:"resized"`              // Resizes of containers' CPU or memory that were carried out.
	ResizesRefused       int `json:"resizesRefused"`       // Resizes that were refused; repeated attempts at the same resize count once.
	Drift                int `json:"drift"`                // Times another program's change of a setting was found and repaired.
	Panics               int `json:"panics"`               // Panics (bugs), each of which failed one event, one step of the loop or one pass over the settings.
	WriteErrors          int `json:"writeErrors"`          // Writes that the kernel refused; each attempt counts.
	RecordUpdates        int `json:"recordUpdates"`        // Updates of the runtime's own record that were sent.
	RecordUpdateFailures int `json:"recordUpdateFailures"` // Updates of the runtime's own record that the runtime refused.
	Reconnects           int `json:"reconnects"`           // Connections to the runtime after the first.
	GrantsCut            int `json:"grantsCut"`            // Containers whose annotation claimed more batch resources than the kubelet granted.
	BatchKills           int `json:"batchKills"`           // Batch containers that the kernel killed at a memory limit of Sluice's while they might have held more; each is a bug.
	ServiceKills         int `json:"serviceKills"`         // Services that the kernel killed at the limit of all pods while batch work held memory.
}

// Answer is what one container of a planned pod would get.
type Answer struct {
	Ref       string                `json:"ref"`                // Container as "namespace/pod/container".
	Class     workload.Class        `json:"class"`              // Class that the container would have.
	Tier      *workload.Tier        `json:"tier,omitempty"`     // Tier that the container's pod would have without a priority class; absent for other classes than BE.
	CPUs      cpuset.Set            `json:"cpus"`               // CPUs that the container could use; empty means all.
	Mems      cpuset.Set            `json:"mems"`               // NUMA nodes that the container could get memory from; empty means all.
	Unlimited bool                  `json:"unlimited"`          // Whether the container's CPU quota would be lifted.
	Why       string                `json:"why,omitempty"`      // Why the container would get these CPUs; absent if it would be refused.
	Problem   string                `json:"problem,omitempty"`  // Why the container would be refused; absent if it could be placed.
	Keys      []workload.RequestKey `json:"keys,omitempty"`     // Keys that shaped the container's request; absent if there are none.
	Warnings  []string              `json:"warnings,omitempty"` // Warnings about what the container asks for; absent if there are none.
}

// Decision is one thing that the control loop decided.
type Decision struct {
	Time time.Time    `json:"time"` // Time of the decision.
	Mode control.Mode `json:"mode"` // Mode in which it was made; in "preview" nothing was changed.
	control.Decision
}

// Decided is a kind of decision, to be counted.
type Decided struct {
	Controller string       `json:"controller"`      // Controller that decided, for example "pools".
	Action     string       `json:"action"`          // Action that was decided, for example "grow".
	Cause      string       `json:"cause,omitempty"` // Cause of an eviction or demotion; absent for other decisions.
	Mode       control.Mode `json:"mode"`            // Mode in which it was decided.
}
