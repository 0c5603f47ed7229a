package control

import "time"

// Config is the loop's part of sluice.yaml. Percentages are whole numbers.
type Config struct {
	Mode         Mode          `yaml:"mode"`         // of every controller that has none of its own
	FastInterval time.Duration `yaml:"fastInterval"` // of the pools' and the batch budget's steps
	Interval     time.Duration `yaml:"interval"`     // of all others

	Pools        PoolsConfig        `yaml:"pools"`
	Batch        BatchConfig        `yaml:"batch"`
	Burst        BurstConfig        `yaml:"burst"`
	Demotion     DemotionConfig     `yaml:"demotion"`
	Memory       MemoryConfig       `yaml:"memory"`
	Cache        CacheConfig        `yaml:"cache"`
	Eviction     EvictionConfig     `yaml:"eviction"`
	Interference InterferenceConfig `yaml:"interference"`
	Offer        OfferConfig        `yaml:"offer"`
	Rules        []Rule             `yaml:"rules"`
	Windows      []Window           `yaml:"windows"`
}

// DefaultConfig is the loop as shipped: it decides and tells, and changes nothing.
func DefaultConfig() Config {
	return Config{
		Mode: Preview, FastInterval: 100 * time.Millisecond, Interval: time.Second,
		Pools: PoolsConfig{
			SlowWindow: time.Minute, ShrinkAfter: 3, ShrinkPause: 10 * time.Second, NewPodTime: 30 * time.Second,
			GrowCPUs: 10, GrowPercent: 25, ShrinkCPUs: 2, ShrinkPercent: 10,
		},
		Batch:        BatchConfig{By: ByAuto, FloorCPUs: 2, GrowPercent: 10, OnlineWeight: 1600},
		Burst:        BurstConfig{MaxPercent: 300, CoolingPercent: 45, OverloadPercent: 50, CalmAfter: time.Minute},
		Demotion:     DemotionConfig{StepPercent: 10, CalmAfter: 3},
		Memory:       MemoryConfig{SafePercent: 65, EvictPercent: 70, EvictMarginPercent: 2, HeadroomPercent: 10},
		Cache:        CacheConfig{TrafficPercent: 20, MinPercent: 10, StepPercent: 10, CalmAfter: 30 * time.Second},
		Eviction:     EvictionConfig{By: EvictReport, CPUPause: 20 * time.Second, MemoryPause: 4 * time.Second, CoolDown: 5 * time.Minute, SatisfactionWindow: time.Minute, Never: []string{"kube-system"}},
		Interference: InterferenceConfig{},
		Offer:        OfferConfig{CPUMarginPercent: 40, MemoryMarginPercent: 35, MemoryBy: OfferMemoryByUsage},
		Rules:        []Rule{},
		Windows:      []Window{},
	}
}

// PoolsConfig is the law of pools that are apart (pools.mode: exclusive).
type PoolsConfig struct {
	Mode          Mode          `yaml:"mode"`
	SlowWindow    time.Duration `yaml:"slowWindow"`  // whose maximum is the slow signal
	ShrinkAfter   int           `yaml:"shrinkAfter"` // measurements below the band
	ShrinkPause   time.Duration `yaml:"shrinkPause"` // since the pool's last change
	NewPodTime    time.Duration `yaml:"newPodTime"`  // for which a new pod counts at its request
	GrowCPUs      int           `yaml:"growCPUs"`    // at most the larger of the two in a step
	GrowPercent   int           `yaml:"growPercent"` // of the pool
	ShrinkCPUs    int           `yaml:"shrinkCPUs"`
	ShrinkPercent int           `yaml:"shrinkPercent"`
}

// PoolConfig is one pool's own part of the law; see pools.list.
type PoolConfig struct {
	Name           string
	Low, High      int   // band in percent of its CPUs
	RCFMin, RCFMax int   // CPUs in percent of its containers' requests; RCFMax 0 is no cap
	Min            int   // CPUs
	Memory         int64 // limit in bytes of all its containers together; 0 none
}

// Mechanism is how batch work is kept to its CPUs.
type Mechanism string

// The mechanisms.
const (
	ByAuto   Mechanism = "auto"
	ByQuota  Mechanism = "quota"
	ByCPUSet Mechanism = "cpuset"
	ByBoth   Mechanism = "both"
)

// UnmarshalText reads "auto", "quota", "cpuset" or "both".
func (m *Mechanism) UnmarshalText(text []byte) error {
	return choose(m, text, ByAuto, ByQuota, ByCPUSet, ByBoth)
}

// BatchConfig is the budget of batch work on CPUs that it shares with the online
// pools (pools.mode: overlap).
type BatchConfig struct {
	Mode             Mode      `yaml:"mode"`
	By               Mechanism `yaml:"by"`
	ThresholdPercent int       `yaml:"thresholdPercent"` // of the node that all may use together; 0: 97 where batch yields at once (idle class, group identity), else 65
	FloorPercent     int       `yaml:"floorPercent"`     // of the node that batch always has
	FloorCPUs        int       `yaml:"floorCPUs"`        // the least cpuset; by quota it is 20 ms in 100 ms
	GrowPercent      int       `yaml:"growPercent"`      // of the node, at most in a step
	Reserved         CPUs      `yaml:"reserved"`         // kept for the system where it uses less
	LendLSR          bool      `yaml:"lendLSR"`          // batch work runs on the CPUs of idle LSR pins too
	OnlineWeight     int       `yaml:"onlineWeight"`     // CPU weight of LS pods and of what holds them, in percent of the kubelet's, while batch work runs; 100 or less leaves it
}

// BurstConfig is the automatic raise of CPU limits.
type BurstConfig struct {
	Mode            Mode          `yaml:"mode"`
	All             bool          `yaml:"all"`             // LS containers that don't ask for it too, where they have a CPU limit
	MaxPercent      int           `yaml:"maxPercent"`      // of the limit
	CoolingPercent  int           `yaml:"coolingPercent"`  // load of the share pool above which nothing is raised
	OverloadPercent int           `yaml:"overloadPercent"` // and above which limits go back
	CalmAfter       time.Duration `yaml:"calmAfter"`       // without throttling, the limit walks back
}

// DemotionConfig takes CPU from the heaviest containers of lower pools when an
// overloaded pool has nothing left to take.
type DemotionConfig struct {
	Mode        Mode `yaml:"mode"`
	StepPercent int  `yaml:"stepPercent"`
	CalmAfter   int  `yaml:"calmAfter"` // steps of Interval
}

// MemoryConfig is the memory of batch work.
type MemoryConfig struct {
	Mode               Mode  `yaml:"mode"`
	SafePercent        int   `yaml:"safePercent"`        // of the node's memory that all may use together; below EvictPercent
	Reserve            Bytes `yaml:"reserve"`            // kept free besides
	HeadroomPercent    int   `yaml:"headroomPercent"`    // of the node's memory: at most so much is kept free before online's growth
	EvictPercent       int   `yaml:"evictPercent"`       // of the node's memory in use, above which batch is evicted
	EvictMarginPercent int   `yaml:"evictMarginPercent"` // until so much below
}

// CacheConfig narrows the cache and bandwidth of batch work where LS shows contention.
type CacheConfig struct {
	Mode           Mode          `yaml:"mode"`
	Class          string        `yaml:"class"`          // the RDT class of batch work; "" none
	TrafficPercent int           `yaml:"trafficPercent"` // memory traffic of LS for each CPU second, above its calm
	MaxMBps        int           `yaml:"maxMBps"`        // bandwidth of the node near which it narrows; 0 unknown
	MinPercent     int           `yaml:"minPercent"`
	StepPercent    int           `yaml:"stepPercent"`
	CalmAfter      time.Duration `yaml:"calmAfter"`
}

// EvictBy is who carries evictions out.
type EvictBy string

// The evictors.
const (
	EvictReport EvictBy = "report" // tell, and do nothing
	EvictCRI    EvictBy = "cri"    // stop the pod through the runtime
)

// UnmarshalText reads "report" or "cri".
func (b *EvictBy) UnmarshalText(text []byte) error { return choose(b, text, EvictReport, EvictCRI) }

// EvictionConfig is the last resort.
type EvictionConfig struct {
	Mode                Mode          `yaml:"mode"`
	By                  EvictBy       `yaml:"by"`
	Socket              string        `yaml:"socket"`              // the runtime's CRI socket, an absolute path; "": the usual places
	CPUPause            time.Duration `yaml:"cpuPause"`            // between two evictions for CPU, load or disk
	MemoryPause         time.Duration `yaml:"memoryPause"`         // and for memory
	CoolDown            time.Duration `yaml:"coolDown"`            // after one, in which the node takes no new BE
	RefuseNew           bool          `yaml:"refuseNew"`           // fail the creation of BE containers in that time
	SatisfactionPercent int           `yaml:"satisfactionPercent"` // BE's CPU granted of requested, below which it is evicted; 0 never
	SatisfactionWindow  time.Duration `yaml:"satisfactionWindow"`  // for which it has to be so
	Never               []string      `yaml:"never"`               // globs of namespaces whose pods are never evicted, nor batch work by default
}

// InterferenceConfig measures what LS suffers from BE.
type InterferenceConfig struct {
	Mode Mode `yaml:"mode"`
}

// OfferMemoryBy is what counts of the memory of others than BE.
type OfferMemoryBy string

// What may count.
const (
	OfferMemoryByUsage   OfferMemoryBy = "usage"
	OfferMemoryByRequest OfferMemoryBy = "request"
)

// UnmarshalText reads "usage" or "request".
func (b *OfferMemoryBy) UnmarshalText(text []byte) error {
	return choose(b, text, OfferMemoryByUsage, OfferMemoryByRequest)
}

// OfferConfig is what the node offers to batch work.
type OfferConfig struct {
	CPUMarginPercent    int           `yaml:"cpuMarginPercent"`    // of the node, not sold
	MemoryMarginPercent int           `yaml:"memoryMarginPercent"` // of the node
	MemoryBy            OfferMemoryBy `yaml:"memoryBy"`
}

// RuleAction is what a rule does.
type RuleAction string

// The actions.
const (
	RuleRefuse   RuleAction = "refuse"   // take no new BE
	RuleThrottle RuleAction = "throttle" // lower CPU limits step by step
	RuleReclaim  RuleAction = "reclaim"  // take memory back
	RuleEvict    RuleAction = "evict"
)

// UnmarshalText reads an action.
func (a *RuleAction) UnmarshalText(text []byte) error {
	return choose(a, text, RuleRefuse, RuleThrottle, RuleReclaim, RuleEvict)
}

// Rule is a rule of one's own.
type Rule struct {
	Name         string        `yaml:"name"`
	Metric       string        `yaml:"metric"`       // see RuleMetrics
	Watermark    int           `yaml:"watermark"`    // in the metric's unit, percent
	TriggerAfter int           `yaml:"triggerAfter"` // samples in a row above; 0: 1
	RestoreAfter int           `yaml:"restoreAfter"` // samples in a row not above, once it has triggered; 0: 1
	Action       RuleAction    `yaml:"action"`
	StepPercent  int           `yaml:"stepPercent"`  // throttle: of the CPU limit; reclaim: of the container's memory
	FloorPercent int           `yaml:"floorPercent"` // throttle: of the CPU limit, and never below the request
	Grace        time.Duration `yaml:"grace"`        // evict: for the pod to end by itself
	CoolDown     time.Duration `yaml:"coolDown"`     // between two steps of the action; refuse: after the rule was restored
	Mode         Mode          `yaml:"mode"`
}

// Window closes or squeezes batch work by time of day.
type Window struct {
	From    string            `yaml:"from"`    // "09:30", local time
	To      string            `yaml:"to"`      // "24:00" at most; not after From: on the next day
	Days    []string          `yaml:"days"`    // "mon", on which it begins; none: every day
	Labels  map[string]string `yaml:"labels"`  // globs: only while such an LS pod runs
	Grace   time.Duration     `yaml:"grace"`   // before From, in which no new BE starts
	Evict   bool              `yaml:"evict"`   // what still runs at From
	Percent int               `yaml:"percent"` // of its CPUs that batch keeps, and new BE may start; 0: its floor alone, and no new BE
}
