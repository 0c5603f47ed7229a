package status

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Loop is the control loop: what it measures, wants and has decided. A part whose
// time is absent is unknown.
type Loop struct {
	Mode                control.Mode           `json:"mode"`                       // Mode in force for controllers without a mode of their own.
	Problem             string                 `json:"problem,omitempty"`          // Why the loop does not run; absent if it does.
	MeasuredAt          time.Time              `json:"measuredAt,omitzero"`        // Time of the latest measurement; absent before the first.
	Interval            time.Duration          `json:"intervalNanos"`              // Time in nanoseconds between two steps of the slower controllers (control.interval).
	StateDir            string                 `json:"stateDir,omitempty"`         // Folder of the audit trail and the batch switch.
	Controllers         []Controller           `json:"controllers"`                // Controllers with their modes.
	Node                NodeUsage              `json:"node"`                       // Resources that the node uses.
	Batch               Batch                  `json:"batch"`                      // CPU of batch work.
	Memory              BatchMemory            `json:"memory"`                     // Memory of batch work and of all others.
	Egress              *Egress                `json:"egress,omitempty"`           // What batch work sends; absent if nothing decides about that (control.egress).
	Refusal             *Refusal               `json:"refusal,omitempty"`          // Pods that may not start; absent if all may.
	Evictions           Evictions              `json:"evictions"`                  // Evictions since the plugin started.
	Offer               control.Offer          `json:"offer"`                      // Resources that the node could offer to batch pods.
	HostApplications    []HostApplication      `json:"hostApplications,omitempty"` // Batch work of the node outside of pods; absent if none is configured.
	Forecasts           []control.PeakForecast `json:"forecasts,omitempty"`        // Expected peaks of the usage of the node, of its pools, its classes, and the workloads that request far more than they will use; absent if nothing was learned yet.
	Notices             Notices                `json:"notices"`                    // What batch work learns beforehand of squeezes and evictions.
	Benefit             control.BenefitReport  `json:"benefit"`                    // Work that batch work did, and what it cost.
	Disturbed           []control.Disturbance  `json:"disturbed,omitempty"`        // LS pods whose waiting is measured; absent if there are none.
	Advice              []control.Advice       `json:"advice,omitempty"`           // Advice for operators; absent if there is none.
	Decisions           []Decision             `json:"decisions,omitempty"`        // Latest decisions, oldest first; absent if there are none.
	Counts              []Count                `json:"counts,omitempty"`           // Number of decisions since the plugin started, by kind; absent if there were none.
	DroppedAuditEntries int                    `json:"droppedAuditEntries"`        // Number of decisions that the audit trail has lost, because the disk was slow or full.
	Failures            []Failure              `json:"failures,omitempty"`         // Measurements that failed; absent if none did.
}

// Egress is what the node and its pods of batch work send.
type Egress struct {
	Devices    []string        `json:"devices,omitempty"`   // Network devices that are the node's link.
	Speed      observe.BitRate `json:"speedBitRate"`        // Speed of the link in bits per second; 0 if unknown.
	Sent       observe.BitRate `json:"sentBitRate"`         // What the link sends in bits per second.
	BatchSent  observe.BitRate `json:"batchSentBitRate"`    // What pods of batch work send in bits per second, also to other pods of the node.
	Room       observe.BitRate `json:"roomBitRate"`         // What batch work may send in bits per second; 0 if unknown.
	MeasuredAt time.Time       `json:"measuredAt,omitzero"` // Time of the measurement; absent before the first.
	Problem    string          `json:"problem,omitempty"`   // Why the link can't be read; absent if it can.
	Pods       []PodEgress     `json:"pods,omitempty"`      // Pods of batch work; absent if there are none.
}

// PodEgress is what a pod of batch work sends.
type PodEgress struct {
	Pod     string          `json:"pod"`                    // Pod as "namespace/name".
	UID     string          `json:"uid"`                    // UID of the pod.
	Sent    observe.BitRate `json:"sentBitRate"`            // What it sends in bits per second.
	Limit   observe.BitRate `json:"limitBitRate,omitempty"` // What it may send in bits per second; absent if it is not limited.
	Problem string          `json:"problem,omitempty"`      // Why it can't be measured or limited; absent if it can.
}

// HostApplication is batch work of the node outside of pods (control.hostApplications).
type HostApplication struct {
	Name             string            `json:"name"`                       // Name in the configuration.
	Cgroup           string            `json:"cgroup"`                     // Path of its cgroup.
	Problem          string            `json:"problem,omitempty"`          // Why it is not managed now, such as a cgroup that does not exist; absent if it is.
	Used             control.Amount    `json:"used"`                       // Resources that it uses, without page cache, as far as that is known.
	Quota            workload.MilliCPU `json:"quotaMilliCPU,omitempty"`    // CPU quota in thousandths of a CPU; absent if there is none.
	MemoryLimitBytes int64             `json:"memoryLimitBytes,omitempty"` // Memory limit in bytes; absent if there is none.
	Offer            control.Amount    `json:"offer"`                      // Resources that it may use.
	VCores           int               `json:"vcores"`                     // The offered CPU in YARN's unit: whole CPUs.
	MemoryMB         int               `json:"memoryMB"`                   // The offered memory in YARN's unit: whole mebibytes.
	Why              string            `json:"why,omitempty"`              // Why nothing is offered; absent if something is.
	File             string            `json:"file,omitempty"`             // File that tells it what it may use; absent if there is none.
	FileProblem      string            `json:"fileProblem,omitempty"`      // Why the file could not be written; absent if it could.
}

// Controller is one controller.
type Controller struct {
	Name string       `json:"name"`           // Name of the controller as in its decisions, for example "pools".
	Mode control.Mode `json:"mode"`           // Mode in force.
	Note string       `json:"note,omitempty"` // Why the controller cannot decide or has nothing to do; absent if it decides.
	Last *Decision    `json:"last,omitempty"` // Latest decision of the controller; absent if there is none.
}

// Count is the number of decisions of one kind.
type Count struct {
	Decided
	Count int `json:"count"` // Number of such decisions since the plugin started.
}

// Failure is the number of failed reads of one kind.
type Failure struct {
	What  string `json:"what"`  // What could not be read, for example "memory of containers".
	Count int    `json:"count"` // Number of failed reads since the plugin started.
}

// BatchState is what the node does with batch work now.
type BatchState string

// The words.
const (
	BatchOpen     BatchState = "open"
	BatchNoNew    BatchState = "no-new"   // what runs may finish
	BatchSqueezed BatchState = "squeezed" // to Percent of what it would have
	BatchClosed   BatchState = "closed"   // to its floor, and nothing new starts
	BatchEvicting BatchState = "evicting"
)

// Mechanism is what bounds the CPU of batch work.
type Mechanism string

// The mechanisms.
const (
	ByQuota  Mechanism = "quota"  // CPU quotas of cgroups
	ByCPUSet Mechanism = "cpuset" // the size of the batch pool's CPU set
	ByBoth   Mechanism = "both"   // both of them
	ByPools  Mechanism = "pools"  // batch work has a pool of CPUs apart from all others
)

// Batch is the CPU of batch work.
type Batch struct {
	State            BatchState        `json:"state"`                      // What the node does with batch work now.
	Why              string            `json:"why,omitempty"`              // Why the state is not "open"; absent if it is.
	KeptPercent      int               `json:"keptPercent,omitempty"`      // Part of its budget that batch work keeps while the state is "squeezed", in percent.
	BoundsPercent    int               `json:"boundsPercent,omitempty"`    // Part of its budget that the bounds of services (slo.sluice.dev) leave batch work, in percent; absent if they leave it all.
	BoundsWhy        string            `json:"boundsWhy,omitempty"`        // Which bound was broken, or that all are kept and batch work gets its budget back; absent if the bounds leave batch work all.
	NextChangeAt     time.Time         `json:"nextChangeAt,omitzero"`      // Time of the next change by a window or by the end of an override; absent if there is none.
	Switch           Switch            `json:"switch"`                     // Override by `sluice batch`.
	FleetSwitch      *Switch           `json:"fleetSwitch,omitempty"`      // Override by the fleet's switch, the ConfigMap sluice-switch; absent if the plugin serves no socket for sluice-kube.
	Mechanism        Mechanism         `json:"mechanism"`                  // Mechanism that bounds the CPU of batch work.
	Known            bool              `json:"known"`                      // Whether the budget is known.
	Unlimited        bool              `json:"unlimited"`                  // Whether batch work may use all CPUs that it shares.
	Budget           workload.MilliCPU `json:"budgetMilliCPU"`             // CPU that all batch work together may use, in thousandths of a CPU; only valid if known and not unlimited.
	BudgetCPUs       int               `json:"budgetCPUs,omitempty"`       // Number of CPUs in the batch pool's CPU set that holds the budget; absent if the mechanism uses no CPU set.
	Floor            workload.MilliCPU `json:"floorMilliCPU"`              // CPU that batch work always has, in thousandths of a CPU.
	ThresholdPercent int               `json:"thresholdPercent,omitempty"` // Part of the node's CPU that all work together may use before batch work gets less, in percent; absent if it does not apply.
	ThresholdWhy     string            `json:"thresholdWhy,omitempty"`     // Why the threshold is lower than for batch work that yields at once; absent if it is not.
	Used             workload.MilliCPU `json:"usedMilliCPU"`               // CPU that batch work uses, as far as it is known, in thousandths of a CPU.
	Requested        workload.MilliCPU `json:"requestedMilliCPU"`          // CPU that batch containers request together, in thousandths of a CPU.
	Cgroups          []BatchCgroup     `json:"cgroups,omitempty"`          // Cgroups that hold only batch pods, and batch pods outside of them; absent if there are none.
	MixedPods        []string          `json:"mixedPods,omitempty"`        // Pods ("namespace/name") of other classes in a cgroup that would otherwise hold only batch work; absent if there are none.
}

// Switch is an override for batch work that the loop has read: by `sluice batch`, or by the fleet's switch.
type Switch struct {
	State   control.SwitchState `json:"state"`             // State that was asked for: "auto", "on" or "off".
	Evict   bool                `json:"evict,omitempty"`   // Whether running batch pods are to be evicted.
	EndsAt  time.Time           `json:"endsAt,omitzero"`   // Time at which the override ends; absent if it has no end.
	Problem string              `json:"problem,omitempty"` // Why this may not be what the switch says now, such as a disk that does not answer or a ConfigMap with a mistake; absent if it is.
}

// BatchCgroup is one cgroup whose CPU or memory the loop limits for batch work.
type BatchCgroup struct {
	Name             string            `json:"name"`                       // Path of the cgroup, or UID of the pod.
	Quota            workload.MilliCPU `json:"quotaMilliCPU,omitempty"`    // CPU quota in thousandths of a CPU; absent if there is none.
	MemoryLimitBytes int64             `json:"memoryLimitBytes,omitempty"` // Memory limit in bytes; absent if there is none.
}

// BatchMemory is the memory of batch work and of the others, in bytes.
type BatchMemory struct {
	OnlineBytes      int64 `json:"onlineBytes"`                // Memory in bytes that everything but batch work uses and that cannot be dropped.
	UsedBytes        int64 `json:"usedBytes"`                  // Memory in bytes that batch work holds, including page cache.
	GoalBytes        int64 `json:"goalBytes"`                  // Memory in bytes that batch work may hold in the end.
	HeadroomBytes    int64 `json:"headroomBytes"`              // Memory in bytes that is kept free for the growth of everything but batch work.
	WantedLimitBytes int64 `json:"wantedLimitBytes,omitempty"` // Limit in bytes that the loop wants for batch work now; absent if it wants none.
	LimitBytes       int64 `json:"limitBytes,omitempty"`       // Limit in bytes that all batch work has together; absent if there is none.
	SwapBytes        int64 `json:"swapBytes,omitempty"`        // Memory in bytes of batch work that is in swap; absent if there is none.
	Taken            Taken `json:"taken,omitzero"`             // Memory that batch work gave back on request since the plugin's start; absent if it gave none.
}

// Taken is memory that batch work gave back on request, by how it was freed.
type Taken struct {
	PageCacheBytes int64 `json:"pageCacheBytes,omitempty"` // Page cache in bytes that was dropped; absent if there was none.
	SwapBytes      int64 `json:"swapBytes,omitempty"`      // Memory in bytes that went to swap, even if it came back later; absent if there was none.
}

// Refusal tells which pods may not start.
type Refusal struct {
	NewBatch bool      `json:"newBatch"`          // Whether no batch pod may start.
	EndsAt   time.Time `json:"endsAt,omitzero"`   // Time at which the refusal ends; absent if no time is set.
	Why      string    `json:"why,omitempty"`     // Reason for the refusal.
	PodUIDs  []string  `json:"podUIDs,omitempty"` // UIDs of evicted pods that may not start again yet; absent if there are none.
}

// Evictions count since the plugin started.
type Evictions struct {
	By       control.EvictBy `json:"by"`       // Way of eviction: report, cri or kubernetes.
	Evicted  int             `json:"evicted"`  // Number of pods evicted.
	Failed   int             `json:"failed"`   // Number of evictions that failed.
	Refused  int             `json:"refused"`  // Number of evictions that the cluster forbade for the moment, for example by a disruption budget.
	Reported int             `json:"reported"` // Number of evictions that were only reported, by eviction.by or in preview.

	// Time until which the node wants no new batch work, because it evicts or has evicted a pod;
	// absent outside of a cool-down. It is set before the eviction begins.
	CoolDownEndsAt time.Time `json:"coolDownEndsAt,omitzero"`
	CoolDownWhy    string    `json:"coolDownWhy,omitempty"` // Reason for the cool-down; absent outside of one.
	Problem        string    `json:"problem,omitempty"`     // Why no pod can be evicted now; absent if pods can be.
}

// Notices are what batch work learns beforehand of squeezes and evictions.
type Notices struct {
	Active *control.Notice      `json:"active,omitempty"` // Notice that holds; absent if there is none.
	Counts control.NoticeCounts `json:"counts"`           // Notices by forecasts since the plugin started.
}

// PoolLoad is a pool's load and the size that the loop wants for it.
type PoolLoad struct {
	MeasuredAt       time.Time         `json:"measuredAt,omitzero"`       // Time of the measurement; absent if there is none.
	Usage            workload.MilliCPU `json:"usageMilliCPU"`             // CPU that the pool uses, in thousandths of a CPU.
	SizeCPUs         int               `json:"sizeCPUs"`                  // Number of CPUs that the pool has.
	LoadFraction     float64           `json:"loadFraction"`              // Usage divided by the pool's CPUs, 0 to 1.
	PressureFraction float64           `json:"pressureFraction"`          // Share of time in which some task waited for a CPU, 0 to 1.
	BandLowPercent   int               `json:"bandLowPercent,omitempty"`  // Lower end of the band in percent; absent if the loop does not size the pool.
	BandHighPercent  int               `json:"bandHighPercent,omitempty"` // Upper end of the band in percent; absent if the loop does not size the pool.
	WantedCPUs       int               `json:"wantedCPUs,omitempty"`      // Number of CPUs that the loop wants for the pool; absent if it does not size the pool.
	ShortCPUs        int               `json:"shortCPUs,omitempty"`       // Number of CPUs that the pool lacks and no lower pool can give; absent if zero.
	Small            bool              `json:"small,omitempty"`           // Whether the load is too low for the band at any size.
}

// NodeUsage is the resources that the node uses.
type NodeUsage struct {
	CPU              CPUUsage      `json:"cpu"`              // CPU use of the node; its limit is the CPU that pods may have together.
	Memory           NodeMemory    `json:"memory"`           // Memory of the node.
	Pressure         PressureUsage `json:"pressure"`         // Pressure of the node.
	StealCPUs        float64       `json:"stealCPUs"`        // CPU time that a hypervisor withheld, in CPUs.
	LoadAverage      float64       `json:"loadAverage"`      // Tasks that run or wait, mean of one minute (load average).
	DiskUsedFraction float64       `json:"diskUsedFraction"` // Used share of the fullest file system that holds pods' data, 0 to 1.

	// Share of time in which each CPU ran something, in percent, by CPU number; -1 if the CPU
	// is offline or not measured yet; absent before the first measurement.
	CPULoadPercent []float64 `json:"cpuLoadPercent,omitempty"`
}

// NodeMemory is the node's memory, in bytes.
type NodeMemory struct {
	MeasuredAt                  time.Time `json:"measuredAt,omitzero"`         // Time of the measurement; absent if there is none.
	TotalBytes                  int64     `json:"totalBytes"`                  // Memory of the machine in bytes.
	AvailableBytes              int64     `json:"availableBytes"`              // Memory in bytes that new work could get without swapping.
	FreeBytes                   int64     `json:"freeBytes"`                   // Memory in bytes that nothing uses.
	DirectReclaimPagesPerSecond float64   `json:"directReclaimPagesPerSecond"` // Pages per second that tasks scanned themselves in direct reclaim.
}

// Usage is the resources that a container uses.
type Usage struct {
	CPU            CPUUsage      `json:"cpu"`            // CPU use of the container.
	Memory         MemoryUsage   `json:"memory"`         // Memory use of the container.
	Pressure       PressureUsage `json:"pressure"`       // Pressure of the container.
	WaitingThreads float64       `json:"waitingThreads"` // Threads that waited for a CPU, on average over the last interval.
}

// CPUUsage is the CPU that the node or a container uses. The node's limit is what all
// pods together may use.
type CPUUsage struct {
	MeasuredAt        time.Time         `json:"measuredAt,omitzero"`         // Time of the measurement; absent if there is none.
	Usage             workload.MilliCPU `json:"usageMilliCPU"`               // CPU used over the last interval, in thousandths of a CPU.
	Limit             workload.MilliCPU `json:"limitMilliCPU,omitempty"`     // CPU limit as requested, in thousandths of a CPU; absent if there is none.
	LoopLimit         workload.MilliCPU `json:"loopLimitMilliCPU,omitempty"` // CPU limit that the loop set instead, in thousandths of a CPU; absent if it set none.
	ThrottledFraction float64           `json:"throttledFraction"`           // Share of quota periods that were throttled, 0 to 1.
}

// MemoryUsage is a container's memory, in bytes.
type MemoryUsage struct {
	MeasuredAt      time.Time `json:"measuredAt,omitzero"`      // Time of the measurement; absent if there is none.
	WorkingSetBytes int64     `json:"workingSetBytes"`          // Memory in bytes without inactive page cache, as the kubelet counts it.
	CurrentBytes    int64     `json:"currentBytes"`             // All memory in bytes charged to the cgroup.
	RequestedBytes  int64     `json:"requestedBytes,omitempty"` // Requested memory in bytes; absent if it is unknown.
	LimitBytes      int64     `json:"limitBytes,omitempty"`     // Memory limit in bytes; absent if there is none.
	OOMKills        int       `json:"oomKills"`                 // Number of processes that the kernel killed for memory since the container's monitoring group was made.
}

// PressureUsage is the share of time in which some task waited.
type PressureUsage struct {
	MeasuredAt     time.Time `json:"measuredAt,omitzero"` // Time of the measurement; absent if the pressure is unknown.
	CPUFraction    float64   `json:"cpuFraction"`         // Share of time in which some task waited for a CPU, 0 to 1.
	MemoryFraction float64   `json:"memoryFraction"`      // Share of time in which some task waited for memory, 0 to 1.
	IOFraction     float64   `json:"ioFraction"`          // Share of time in which some task waited for I/O, 0 to 1.
}
