package workload

import (
	"cmp"
	"time"
)

// Optional is a value that may not have been asked for.
type Optional[T comparable] struct {
	Value T
	Set   bool
}

// Some is a value that was asked for.
func Some[T comparable](v T) Optional[T] { return Optional[T]{v, true} }

// Tuning is what a request asks for beside its place. The zero value asks for
// nothing.
type Tuning struct {
	Burst     Burst
	Identity  Optional[int] // CPU priority: -1 lowest, 0 normal, 1 high, 2 high and SMT siblings kept free of -1
	Weight    int           // percent of the kubelet's CPU weight of the pod; 0 is 100
	CoreSched string        // group that shares cores with nobody outside of it: "namespace/name" where the pod gave it, "name" where the configuration did
	Memory    MemoryQoS
	RDT       RDT
	IO        IO
	Batch     Batch
	OOMScore  Optional[int]    // oom_score_adj, -1000..1000
	NetClass  Optional[uint32] // net_cls.classid

	Required []string // features the container can't do without: names of own keys
	Allow    Optional[Actions]
	Evict    Evict
}

// Burst is CPU burst: run above the quota for a short while, with what was left
// of it before.
type Burst struct {
	Percent int // static: of the quota, up to 10000; 0 none

	// The automatic raise of the quota, which a control loop does.
	Auto         bool
	QuotaPercent int           // up to this percent of the limit; 0 the node's default
	QuotaPeriod  time.Duration // for at most so long at a time; 0 without end
}

// MemoryQoS is what protects a container's memory, or gives it up.
type MemoryQoS struct {
	MinPercent  Optional[int] // of the memory request, never reclaimed
	LowPercent  Optional[int] // of the memory request, reclaimed last
	HighPercent Optional[int] // of the way from the request to the limit; above it the container reclaims its own; 0 off
	WmarkRatio  Optional[int] // percent of the limit at which background reclaim begins; 0 off
	WmarkScale  Optional[int] // 0.01 % of the limit, 1..1000: how far it reclaims
	WmarkMinAdj Optional[int] // -25..50: the global watermark as this container meets it
	Priority    Optional[int] // 0..12, killed first to last
	OOMGroup    Optional[bool]
}

// RDT is cache and memory bandwidth: a class, or a share of the pod's own.
type RDT struct {
	Class string // a class of the node's config; "" none

	// A group of the pod's own; the zero value is none.
	Own RDTShare
}

// RDTShare is a part of each cache and of memory bandwidth.
type RDTShare struct {
	CacheFrom, CacheTo int // percent of the ways of the last-level cache, from below to below; 0, 0 all
	Bandwidth          int // percent; 0 all
}

// IO is block I/O.
type IO struct {
	Weight  Optional[int] // 1..10000, 100 is the default
	Limits  IOLimits      // for each disk that Devices doesn't name
	Devices []DeviceIO    // by name
}

// DeviceIO is I/O to one device.
type DeviceIO struct {
	Device string // "8:0" or "/dev/sda"
	Weight Optional[int]
	Limits IOLimits
}

// IOLimits throttle a device; 0 is no limit.
type IOLimits struct {
	ReadBPS, WriteBPS   int64 // bytes per second
	ReadIOPS, WriteIOPS int64 // operations per second
}

// Batch is what a container was granted of the node's batch resources, for which the
// kubelet sets no weight and no limit.
type Batch struct {
	CPURequest    Optional[MilliCPU]
	CPULimit      Optional[MilliCPU] // where it isn't set, the request is the limit
	MemoryRequest Optional[int64]    // bytes
	MemoryLimit   Optional[int64]    // bytes
}

// Actions are what may be done to a running container when the node is short.
type Actions uint8

// The actions.
const (
	Throttle Actions = 1 << iota
	Demote
	Reclaim
	EvictPod
)

// Evict is when a pod's turn comes.
type Evict struct {
	Never bool
	Order Optional[int] // lower goes first; 0 if it is not set
	// PriorityClass is the lowest priority of the pod's Koordinator priority class, 0 if it
	// has none. It decides between pods of the same order, and the lower one goes first.
	PriorityClass int
}

// Compare is negative if a pod with e goes before one with other, positive if it goes after
// it, and 0 if neither says which goes first. It takes no account of Never.
func (e Evict) Compare(other Evict) int {
	return cmp.Or(cmp.Compare(e.Order.Value, other.Order.Value), cmp.Compare(e.PriorityClass, other.PriorityClass))
}
