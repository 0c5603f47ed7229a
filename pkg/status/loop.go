package status

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Loop is the control loop: what it sees, wants and has decided. Shares are 0 to 1,
// and a part whose time is missing isn't known.
type Loop struct {
	Mode        control.Mode          `json:"mode"`               // of controllers that have none of their own, as it is in force
	Problem     string                `json:"problem,omitempty"`  // why it does not run
	Time        time.Time             `json:"time,omitzero"`      // of its last look; missing: it has not begun
	Interval    time.Duration         `json:"interval"`           // of the controllers that step the most seldom, in ns
	StateDir    string                `json:"stateDir,omitempty"` // folder of the audit trail and of the batch switch
	Controllers []Controller          `json:"controllers"`
	Node        NodeUsage             `json:"node"`
	Batch       Batch                 `json:"batch"`
	Memory      BatchMemory           `json:"memory"`
	Refusal     *Refusal              `json:"refusal,omitempty"` // of new batch work, or of pods that were evicted
	Evictions   Evictions             `json:"evictions"`
	Offer       control.Offer         `json:"offer"`
	Benefit     control.BenefitReport `json:"benefit"`
	Disturbed   []control.Disturbance `json:"disturbed,omitempty"` // LS pods of which something is known
	Advice      []control.Advice      `json:"advice,omitempty"`
	Decisions   []Decision            `json:"decisions,omitempty"` // the last ones, the oldest first
	Counts      []Count               `json:"counts,omitempty"`    // of all decisions since the start
	Dropped     int64                 `json:"droppedAuditEntries"` // decisions that the audit trail has lost
	Failures    []Failure             `json:"failures,omitempty"`  // to see something
}

// Controller is one controller.
type Controller struct {
	Name string       `json:"name"`           // as in its decisions: "pools"
	Mode control.Mode `json:"mode"`           // in force
	Note string       `json:"note,omitempty"` // why it can't decide, or does nothing
	Last *Decision    `json:"last,omitempty"`
}

// Count is how often something was decided.
type Count struct {
	Decided
	N int `json:"n"` // how often
}

// Failure is how often something could not be read.
type Failure struct {
	What  string `json:"what"`  // "memory of containers"
	Count int64  `json:"count"` // how often
}

// BatchWord is what the node does with batch work now.
type BatchWord string

// The words.
const (
	BatchOpen     BatchWord = "open"
	BatchNoNew    BatchWord = "no-new"   // what runs may finish
	BatchSqueezed BatchWord = "squeezed" // to Percent of what it would have
	BatchClosed   BatchWord = "closed"   // to its floor, and nothing new starts
	BatchEvicting BatchWord = "evicting"
)

// Batch is the CPU of batch work.
type Batch struct {
	State     BatchWord         `json:"state"`             // "open", "no-new", "squeezed", "closed" or "evicting"
	Why       string            `json:"why,omitempty"`     // left out where it is open
	Percent   int               `json:"percent,omitempty"` // of what it would have, while squeezed
	Next      time.Time         `json:"next,omitzero"`     // when the time alone changes it
	Switch    Switch            `json:"switch"`
	Mechanism string            `json:"mechanism"`                  // "quota", "cpuset" or "both"; "pools" where it has a pool apart
	Known     bool              `json:"known"`                      // the budget
	Unlimited bool              `json:"unlimited"`                  // it may use all CPUs that it shares
	Budget    workload.MilliCPU `json:"budgetMilliCPU"`             // of all batch work together
	CPUs      int               `json:"cpus,omitempty"`             // that hold the budget, where it is a CPU set
	Floor     workload.MilliCPU `json:"floorMilliCPU"`              // that it always has
	Threshold int               `json:"thresholdPercent,omitempty"` // of the node, that all may use together
	Lowered   string            `json:"lowered,omitempty"`          // why the threshold is below that of batch work which yields at once
	Used      workload.MilliCPU `json:"usedMilliCPU"`               // as far as it is known
	Requested workload.MilliCPU `json:"requestedMilliCPU"`          // by batch containers
	Boxes     []Box             `json:"boxes,omitempty"`            // cgroups that hold batch pods alone, and pods that have none
	Mixers    []string          `json:"mixers,omitempty"`           // "namespace/name" of pods that aren't batch in a cgroup that batch work could have alone
}

// Switch is what `sluice batch` said last, as the loop has read it.
type Switch struct {
	To    string    `json:"to"`              // "auto", "on" or "off"
	Evict bool      `json:"evict,omitempty"` // what runs has to go
	Until time.Time `json:"until,omitzero"`  // then auto again
}

// Box is one cgroup that the loop bounds.
type Box struct {
	Name   string            `json:"name"`                       // the cgroup, or the pod's UID
	Quota  workload.MilliCPU `json:"quotaMilliCPU,omitempty"`    // 0 none
	Memory int64             `json:"memoryLimitBytes,omitempty"` // 0 none
}

// BatchMemory is the memory of batch work and of the others, in bytes.
type BatchMemory struct {
	Online   int64 `json:"onlineBytes"`                // in use by all but batch
	Held     int64 `json:"heldBytes"`                  // by batch, with its page cache
	Goal     int64 `json:"goalBytes"`                  // what batch may hold in the end
	Headroom int64 `json:"headroomBytes"`              // kept free for the growth of all but batch
	Wanted   int64 `json:"wantedLimitBytes,omitempty"` // limit that the loop wants now
	Limit    int64 `json:"limitBytes,omitempty"`       // that all boxes have together
}

// Refusal is who may not start.
type Refusal struct {
	NewBatch bool      `json:"newBatch"`       // no batch work at all
	Until    time.Time `json:"until,omitzero"` // left out where no time is set
	Why      string    `json:"why,omitempty"`  // in words
	Pods     []string  `json:"pods,omitempty"` // UIDs of those that were evicted
}

// Evictions count since the plugin started.
type Evictions struct {
	By      control.EvictBy `json:"by"`      // "report" or "cri"
	Evicted int             `json:"evicted"` // pods
	Failed  int             `json:"failed"`  // that the runtime refused
	Told    int             `json:"told"`    // and not done: by report, or in preview
}

// PoolLoad is a pool's load and what the loop makes of it.
type PoolLoad struct {
	At       time.Time         `json:"at,omitzero"`          // of the look
	Usage    workload.MilliCPU `json:"usageMilliCPU"`        // CPU that it uses
	Size     int               `json:"cpus"`                 // that it has
	Load     float64           `json:"load"`                 // usage of its size
	Pressure float64           `json:"pressure"`             // share of time in which tasks waited for a CPU
	Low      int               `json:"low,omitempty"`        // its band in percent, where the loop sizes it
	High     int               `json:"high,omitempty"`       // the upper end
	Wanted   int               `json:"wantedCPUs,omitempty"` // 0: the loop does not size it
	Short    int               `json:"shortCPUs,omitempty"`  // that it lacks while no pool below can give any
	Small    bool              `json:"small,omitempty"`      // no size has so low a load in the band
}

// NodeUsage is what the node does.
type NodeUsage struct {
	CPU      CPUUsage      `json:"cpu"`
	Memory   NodeMemory    `json:"memory"`
	Pressure PressureUsage `json:"pressure"`
	Steal    float64       `json:"steal"` // CPUs' worth of time that a hypervisor kept
	Tasks    float64       `json:"tasks"` // that run or wait, over a minute
	Disk     float64       `json:"disk"`  // of the fullest file system with pods' data, in use

	// CPULoad is the share of time, in percent, in which each CPU ran something, by CPU
	// number; -1 offline, or not known yet. Empty before the first look.
	CPULoad []float64 `json:"cpuLoad,omitempty"`
}

// NodeMemory is the node's memory, in bytes.
type NodeMemory struct {
	At        time.Time `json:"at,omitzero"`        // of the look
	Total     int64     `json:"totalBytes"`         // the machine's
	Available int64     `json:"availableBytes"`     // to new work, without swapping
	Free      int64     `json:"freeBytes"`          // in no use at all
	Direct    float64   `json:"directReclaimPages"` // a second, scanned by tasks themselves
}

// Usage is what a container does.
type Usage struct {
	CPU      CPUUsage      `json:"cpu"`
	Memory   MemoryUsage   `json:"memory"`
	Pressure PressureUsage `json:"pressure"`
	RunDelay float64       `json:"runDelay"` // threads that waited for a CPU, on average
}

// CPUUsage is CPU time; of the node, Limit is what pods may have.
type CPUUsage struct {
	At        time.Time         `json:"at,omitzero"`                 // of the look
	Usage     workload.MilliCPU `json:"usageMilliCPU"`               // that it used, over the last interval
	Limit     workload.MilliCPU `json:"limitMilliCPU,omitempty"`     // as it was asked for; 0 none
	LoopLimit workload.MilliCPU `json:"loopLimitMilliCPU,omitempty"` // that the loop has set in its place
	Throttled float64           `json:"throttled"`                   // of the quota's periods
}

// MemoryUsage is a container's memory, in bytes.
type MemoryUsage struct {
	At         time.Time `json:"at,omitzero"`            // of the look
	WorkingSet int64     `json:"workingSetBytes"`        // without page cache that was not used lately
	Current    int64     `json:"currentBytes"`           // all that is charged
	Request    int64     `json:"requestBytes,omitempty"` // left out where it is not known
	Limit      int64     `json:"limitBytes,omitempty"`   // left out where there is none
	OOMKills   int64     `json:"oomKills"`               // since its start
}

// PressureUsage is the share of time in which some task waited.
type PressureUsage struct {
	At     time.Time `json:"at,omitzero"` // of the look
	CPU    float64   `json:"cpu"`         // 0 to 1
	Memory float64   `json:"memory"`      // 0 to 1
	IO     float64   `json:"io"`          // 0 to 1
}
