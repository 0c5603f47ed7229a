package workload

import (
	"errors"
	"slices"
	"time"
)

// Optional is a value that may be unset.
type Optional[T comparable] struct {
	Value T
	Set   bool
}

// Some returns a value that is set.
func Some[T comparable](v T) Optional[T] { return Optional[T]{v, true} }

// Tuning is what a request asks for besides CPUs and memory nodes. The zero value asks for
// nothing.
type Tuning struct {
	Burst     Burst
	Identity  Optional[int] // CPU priority: -1 lowest, 0 normal, 1 high, 2 high with SMT siblings kept free of -1
	Weight    int           // percentage of the pod's CPU weight from the kubelet; 0 stands for 100
	CoreSched string        // group that shares cores with nobody outside of it: "namespace/name" if the pod named it, "name" if the configuration did
	Memory    MemoryQoS
	RDT       RDT
	IO        IO
	Batch     Batch
	OOMScore  Optional[int]    // oom_score_adj, -1000..1000
	NetClass  Optional[uint32] // net_cls.classid

	Required []string // keys of the features without which the container must not start
	Allow    Optional[Actions]
	Evict    Evict
	Tier     Optional[Tier] // for BE only
	Notice   bool           // the container gets a file with what batch work has to expect; for BE only
	SLO      SLO            // not for BE and SYSTEM
	Egress   Egress         // the most that the pod may send; for BE only
}

// Burst is CPU burst: the container may run above the quota for a short while, with quota that
// it left unused before.
type Burst struct {
	Percent int // static burst in percent of the quota, up to 10000; 0 for none

	// Auto is set if the control loop may raise the quota.
	Auto         bool
	QuotaPercent int           // highest raised quota in percent of the limit; 0 for the node's default
	QuotaPeriod  time.Duration // longest time above the limit; 0 for no bound
}

// Swap is how much of a container's memory may be in swap.
type Swap int

// The values of Swap.
const (
	SwapNever     Swap = iota
	SwapAllowed        // as much as the kubelet lets it
	SwapUnlimited      // more than the kubelet lets it
)

var swapNames = [...]string{"never", "allowed", "unlimited"}

// String returns the name as in annotations.
func (s Swap) String() string { return swapNames[s] }

// UnmarshalText reads "never", "allowed" or "unlimited".
func (s *Swap) UnmarshalText(text []byte) error {
	i := slices.Index(swapNames[:], string(text))
	if i < 0 {
		return errors.New("must be never, allowed or unlimited")
	}
	*s = Swap(i)
	return nil
}

// MemoryQoS is what protects a container's memory or gives it up.
type MemoryQoS struct {
	MinPercent  Optional[int] // percentage of the memory request that is never reclaimed
	LowPercent  Optional[int] // percentage of the memory request that is reclaimed last
	HighPercent Optional[int] // percentage of the way from the request to the limit, above which the container reclaims its own memory; 0 for off
	WmarkRatio  Optional[int] // percentage of the limit at which background reclaim begins; 0 for off
	WmarkScale  Optional[int] // distance that background reclaim covers in 0.01 % of the limit, 1..1000
	WmarkMinAdj Optional[int] // shift of the global watermark for this container, -25..50
	Priority    Optional[int] // 0..12; lower ones are killed first
	OOMGroup    Optional[bool]
	Offload     Optional[bool] // memory that it does not use is reclaimed
	Swap        Optional[Swap]
}

// RDT is a share of cache and memory bandwidth: a class, or a share for the pod alone.
type RDT struct {
	Class string // class in the node's configuration; "" for none

	// Own is a share for the pod alone; the zero value is none.
	Own RDTShare
}

// RDTShare is a part of each cache and of the memory bandwidth.
type RDTShare struct {
	CacheFrom, CacheTo int // range of the ways of the last-level cache in percent; 0, 0 for all
	Bandwidth          int // in percent; 0 for all
}

// IO is block I/O.
type IO struct {
	Weight   Optional[int] // 1..10000; the default is 100
	Priority IOPriority
	Limits   IOLimits   // limits for each disk that Devices does not name
	Devices  []DeviceIO // sorted by name
}

// IOPriority is the priority of a container's I/O, which disks with the scheduler mq-deadline heed.
type IOPriority int

// The values of IOPriority. The kernel's levels and its real-time class are not among them: no
// scheduler ranks cgroups by levels, and the real-time class starves all others.
const (
	IOUnset  IOPriority = iota
	IONormal            // as the processes' nice values say
	IOIdle              // all other I/O comes first
)

// UnmarshalText reads "normal" or "idle".
func (p *IOPriority) UnmarshalText(text []byte) error {
	switch string(text) {
	case "normal":
		*p = IONormal
	case "idle":
		*p = IOIdle
	default:
		return errors.New("must be normal or idle")
	}
	return nil
}

// DeviceIO is I/O to one device.
type DeviceIO struct {
	Device string // "8:0" or "/dev/sda"
	Weight Optional[int]
	Limits IOLimits
}

// IOLimits throttle a device. Zero fields are no limits.
type IOLimits struct {
	ReadBPS, WriteBPS   int64 // bytes per second
	ReadIOPS, WriteIOPS int64 // operations per second
}

// Batch is a container's grant of the node's batch resources, for which the kubelet sets
// neither weights nor limits.
type Batch struct {
	CPURequest    Optional[MilliCPU]
	CPULimit      Optional[MilliCPU] // the request is the limit if it is unset
	MemoryRequest Optional[int64]    // in bytes
	MemoryLimit   Optional[int64]    // in bytes
}

// Actions are what Sluice may do to a running container when the node is short of something.
type Actions uint8

// The actions.
const (
	Throttle Actions = 1 << iota
	Demote
	Reclaim
	EvictPod
)

// Evict is a pod's place in the order of eviction.
type Evict struct {
	Never bool
	Order Optional[int] // lower ones are evicted first; 0 if unset
}
