package control

import (
	"cmp"
	"time"
)

// Config is the loop's part of sluice.yaml. Percentages are whole numbers.
type Config struct {
	Mode         Mode          `yaml:"mode"`         // Mode of windows, of the switch, of notices, and of each controller without a mode of its own.
	FastInterval time.Duration `yaml:"fastInterval"` // Time between two measurements, and between two steps of pools and batch.
	Interval     time.Duration `yaml:"interval"`     // Time between two steps of the other controllers.

	Pools        PoolsConfig        `yaml:"pools"`
	Batch        BatchConfig        `yaml:"batch"`
	Burst        BurstConfig        `yaml:"burst"`
	Demotion     DemotionConfig     `yaml:"demotion"`
	Memory       MemoryConfig       `yaml:"memory"`
	Cache        CacheConfig        `yaml:"cache"`
	Culprit      CulpritConfig      `yaml:"culprit"`
	Noisy        NoisyConfig        `yaml:"noisy"`
	SLO          SLOConfig          `yaml:"slo"`
	Egress       EgressConfig       `yaml:"egress"`
	Eviction     EvictionConfig     `yaml:"eviction"`
	Interference InterferenceConfig `yaml:"interference"`
	Offer        OfferConfig        `yaml:"offer"`
	Prediction   PredictionConfig   `yaml:"prediction"`
	Notices      NoticesConfig      `yaml:"notices"`
	Rules        []Rule             `yaml:"rules"`
	Windows      []Window           `yaml:"windows"`

	HostApplications []HostApplication `yaml:"hostApplications"`
}

// DefaultConfig is the loop as shipped: it decides and tells, and changes nothing.
func DefaultConfig() Config {
	return Config{
		Mode: Preview, FastInterval: 100 * time.Millisecond, Interval: time.Second,
		Pools: PoolsConfig{
			SlowWindow: time.Minute, ShrinkAfter: 3, ShrinkPause: 10 * time.Second, NewPodTime: 30 * time.Second, Lend: true,
			GrowCPUs: 10, GrowPercent: 25, ShrinkCPUs: 2, ShrinkPercent: 10,
		},
		Batch:        BatchConfig{By: ByAuto, FloorCPUs: 2, GrowPercent: 10},
		Burst:        BurstConfig{MaxPercent: 300, CoolingPercent: 45, OverloadPercent: 50, CalmAfter: time.Minute},
		Demotion:     DemotionConfig{StepPercent: 10, CalmAfter: 3},
		Memory:       MemoryConfig{SafePercent: 65, EvictPercent: 70, EvictMarginPercent: 2, HeadroomPercent: 10, SwapMBps: 1},
		Cache:        CacheConfig{TrafficPercent: 20, MinPercent: 10, StepPercent: 10, CalmAfter: 30 * time.Second},
		Eviction:     EvictionConfig{By: EvictReport, CPUPause: 20 * time.Second, MemoryPause: 4 * time.Second, CoolDown: 5 * time.Minute, SatisfactionWindow: time.Minute, MaxPerHour: 30, MaxPerOwnerPerHour: 10, Never: []string{"kube-system"}},
		Noisy:        NoisyConfig{Mode: Off},
		SLO:          SLOConfig{LeastPercent: 5},
		Egress:       EgressConfig{Mode: Off, ThresholdPercent: 85, FloorPercent: 5, Interfaces: []string{}},
		Interference: InterferenceConfig{},
		Offer:        OfferConfig{CPUMarginPercent: 40, MemoryMarginPercent: 35, MemoryBy: OfferMemoryByUsage},
		Prediction: PredictionConfig{
			Mode: Preview, CPUPercentile: 95, MemoryPercentile: 98, CPUHalfLife: 12 * time.Hour, MemoryHalfLife: 24 * time.Hour,
			MarginPercent: 10, ConfidencePercent: 90,
		},
		Notices: NoticesConfig{Within: 10 * time.Minute},
		Rules:   []Rule{},
		Windows: []Window{},

		HostApplications: []HostApplication{},
	}
}

// PoolsConfig is the law of pools that are apart (pools.mode: exclusive).
type PoolsConfig struct {
	Mode          Mode          `yaml:"mode"`          // Mode of the pools' sizes, with pools.mode: exclusive.
	SlowWindow    time.Duration `yaml:"slowWindow"`    // Time whose highest load decides whether a pool shrinks.
	ShrinkAfter   int           `yaml:"shrinkAfter"`   // Measurements below the band before a pool shrinks.
	ShrinkPause   time.Duration `yaml:"shrinkPause"`   // Least time since the pool's last change before it shrinks.
	NewPodTime    time.Duration `yaml:"newPodTime"`    // Time for which new containers count with their requests.
	Lend          bool          `yaml:"lend"`          // Batch work also uses the CPUs of other pools that these do not need now, if all of it yields at once.
	GrowCPUs      int           `yaml:"growCPUs"`      // Most CPUs that a step adds.
	GrowPercent   int           `yaml:"growPercent"`   // Most that a step adds, in percent of the pool, if that is more.
	ShrinkCPUs    int           `yaml:"shrinkCPUs"`    // Most CPUs that a step removes.
	ShrinkPercent int           `yaml:"shrinkPercent"` // Most that a step removes, in percent of the pool, if that is more.
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
	Mode             Mode      `yaml:"mode"`             // Mode of batch work's CPU budget, with pools.mode: overlap.
	By               Mechanism `yaml:"by"`               // How the budget is enforced: auto, quota, cpuset or both.
	ThresholdPercent int       `yaml:"thresholdPercent"` // CPU that all work may use, in percent of the node; 0 is 100 if all batch work yields at once, else 65.
	FloorPercent     int       `yaml:"floorPercent"`     // CPU that batch work always has, in percent of the node; at least a fifth of a CPU.
	FloorCPUs        int       `yaml:"floorCPUs"`        // Smallest CPU set of the batch pool.
	GrowPercent      int       `yaml:"growPercent"`      // Most growth of the budget in a step, in percent of the node.
	Reserved         CPUs      `yaml:"reserved"`         // CPU kept for processes outside of pods, for example 500m.
	LendLSR          bool      `yaml:"lendLSR"`          // Batch work also uses the CPUs of idle LSR pins.
	OnlineWeight     int       `yaml:"onlineWeight"`     // Highest CPU weight of everything beside batch work, in percent of the kubelet's; 1 to 100 leave the weights alone. 0 stands for 1600; beside a kubelet of Kubernetes 1.37 or later, which takes the weights of pods for requests, it raises no pod's weight.
}

const usualWeight = 1600

// Weight is the highest CPU weight of everything beside batch work, in percent of the kubelet's.
func (c *BatchConfig) Weight() int {
	if c.OnlineWeight == 0 {
		return usualWeight
	}
	return c.OnlineWeight
}

// BurstConfig is the automatic raise of CPU limits.
type BurstConfig struct {
	Mode            Mode          `yaml:"mode"`            // Mode of raised CPU limits.
	All             bool          `yaml:"all"`             // Also raise the limits of LS containers that do not ask for it.
	MaxPercent      int           `yaml:"maxPercent"`      // Highest raised limit, in percent of the container's own.
	CoolingPercent  int           `yaml:"coolingPercent"`  // No limit is raised while the CPUs of LS are busier than this, in percent.
	OverloadPercent int           `yaml:"overloadPercent"` // Limits go back while the CPUs of LS are busier than this, in percent.
	CalmAfter       time.Duration `yaml:"calmAfter"`       // Time without throttling after which a limit goes back.
}

// DemotionConfig takes CPU from the heaviest containers of lower pools when an
// overloaded pool has nothing left to take.
type DemotionConfig struct {
	Mode        Mode `yaml:"mode"`        // Mode of lowered CPU limits.
	StepPercent int  `yaml:"stepPercent"` // Step, in percent of the current limit.
	CalmAfter   int  `yaml:"calmAfter"`   // Steps without a shortage before limits go back.
}

// MemoryConfig is the memory of batch work.
type MemoryConfig struct {
	Mode               Mode  `yaml:"mode"`               // Mode of batch work's memory.
	SafePercent        int   `yaml:"safePercent"`        // Memory that all work may use, in percent of the node's; must be below evictPercent.
	Reserve            Bytes `yaml:"reserve"`            // Memory kept free in addition, for example 2Gi.
	HeadroomPercent    int   `yaml:"headroomPercent"`    // Most memory kept free for the growth of others, in percent of the node's.
	EvictPercent       int   `yaml:"evictPercent"`       // Use of the node's memory above which batch work is evicted, in percent.
	EvictMarginPercent int   `yaml:"evictMarginPercent"` // Eviction ends when use is lower by this much, in percent.
	SwapMBps           int   `yaml:"swapMBps"`           // Most that is written to swap on a disk for batch work's memory, in MiB per second over an hour; 0 keeps it from there.
}

// CacheConfig narrows the cache and bandwidth of batch work where LS shows contention.
type CacheConfig struct {
	Mode           Mode          `yaml:"mode"`           // Mode of batch work's cache and memory bandwidth.
	Class          string        `yaml:"class"`          // RDT class of batch work, which this controller needs.
	TrafficPercent int           `yaml:"trafficPercent"` // Cache that a pod lost to batch work, and memory traffic that it gained, before batch work gets less.
	MaxMBps        int           `yaml:"maxMBps"`        // Memory bandwidth of the node; 0 does not narrow it.
	MinPercent     int           `yaml:"minPercent"`     // Least share, in percent of the class's own.
	StepPercent    int           `yaml:"stepPercent"`    // Step, in percent of the class's own share.
	CalmAfter      time.Duration `yaml:"calmAfter"`      // Time without contention that returns a step.
}

// EvictBy is who carries evictions out.
type EvictBy string

// The evictors.
const (
	EvictReport     EvictBy = "report"     // only report the eviction
	EvictCRI        EvictBy = "cri"        // stop the pod through the runtime
	EvictKubernetes EvictBy = "kubernetes" // order the eviction from sluice-kube, which asks the API server
)

// UnmarshalText reads "report", "cri" or "kubernetes".
func (b *EvictBy) UnmarshalText(text []byte) error {
	return choose(b, text, EvictReport, EvictCRI, EvictKubernetes)
}

// EvictionConfig is the last resort.
type EvictionConfig struct {
	Mode                Mode          `yaml:"mode"`                // Mode of evictions, the last resort.
	By                  EvictBy       `yaml:"by"`                  // Who evicts: report only logs; cri stops the pod through the runtime; kubernetes asks the API server.
	Socket              string        `yaml:"socket"`              // Path of the runtime's CRI socket; by default the usual ones.
	CPUPause            time.Duration `yaml:"cpuPause"`            // Time between two evictions for CPU or disk.
	MemoryPause         time.Duration `yaml:"memoryPause"`         // Time between two evictions for memory.
	CoolDown            time.Duration `yaml:"coolDown"`            // Time for which an evicted pod may not start again.
	RefuseNew           bool          `yaml:"refuseNew"`           // Refuse all new batch work in that time.
	SatisfactionPercent int           `yaml:"satisfactionPercent"` // Evict batch work that gets less of the CPU it requests, in percent; 0 is never.
	SatisfactionWindow  time.Duration `yaml:"satisfactionWindow"`  // Time for which it must get less.
	MaxPerHour          int           `yaml:"maxPerHour"`          // Most evictions on the node within an hour, except at critical memory, by a window or by the switch; 0 sets no bound.
	MaxPerOwnerPerHour  int           `yaml:"maxPerOwnerPerHour"`  // The same for the pods of one owner, such as a Job.
	Never               []string      `yaml:"never"`               // Patterns of namespaces whose pods are never evicted, nor batch work by default.
}

// InterferenceConfig measures what LS suffers from BE.
type InterferenceConfig struct {
	Mode Mode `yaml:"mode"` // Mode of reporting how long LS pods wait; off only measures.
}

// SLOConfig lets batch work give way to the bounds of slo.sluice.dev.
type SLOConfig struct {
	Mode         Mode `yaml:"mode"`         // Mode of giving way to the bounds that services set on their waiting.
	LeastPercent int  `yaml:"leastPercent"` // Lowest bound in percent that a pod may set without the feature slo.
}

// Check returns the values that are out of range.
func (c *SLOConfig) Check() []Problem {
	return checkPercent(nil, "leastPercent", c.LeastPercent, 1, 100)
}

// CulpritConfig limits the pod that makes a service wait.
type CulpritConfig struct {
	Mode Mode `yaml:"mode"` // Mode of CPU limits for the pod that makes an LS pod wait: a batch pod, or an LS pod that allows `demote`.
	CPI  bool `yaml:"cpi"`  // Count cycles per instruction of services, for 10 s of each minute, which shows that they wait for caches and memory. It needs hardware counters and CAP_PERFMON.
}

// CountsCycles reports whether cycles per instruction are counted for a controller that is not off.
func (c *Config) CountsCycles() bool { return c.Culprit.CPI && cmp.Or(c.Culprit.Mode, c.Mode) != Off }

// NoisyConfig keeps noisy LS pods apart.
type NoisyConfig struct {
	Mode Mode `yaml:"mode"` // Mode in which an LS pod that has far more work than it asked for gets CPUs of its own, while others of its pool wait.
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
	CPUMarginPercent    int           `yaml:"cpuMarginPercent"`    // CPU that is not offered, in percent of the node's.
	MemoryMarginPercent int           `yaml:"memoryMarginPercent"` // Memory that is not offered, in percent of the node's.
	MemoryBy            OfferMemoryBy `yaml:"memoryBy"`            // How the memory of others counts: by usage or by request.
}

// PredictionConfig is how the peaks of usage are forecast.
type PredictionConfig struct {
	Mode              Mode          `yaml:"mode"`              // Mode of forecasts: on lets pools, offer and notices count with them; preview learns and shows them; off learns nothing.
	CPUPercentile     int           `yaml:"cpuPercentile"`     // Percentile of the CPU used in each minute that a histogram takes for the peak.
	MemoryPercentile  int           `yaml:"memoryPercentile"`  // Percentile of the memory used in each minute that a histogram takes for the peak.
	CPUHalfLife       time.Duration `yaml:"cpuHalfLife"`       // Time in which a minute's CPU loses half of its weight in the histogram.
	MemoryHalfLife    time.Duration `yaml:"memoryHalfLife"`    // Time in which a minute's memory loses half of its weight in the histogram.
	MarginPercent     int           `yaml:"marginPercent"`     // Margin added to each forecast, in percent of it.
	ConfidencePercent int           `yaml:"confidencePercent"` // Part of the last days, in percent, in which the peak must not have exceeded the forecast for it to count.
}

// NoticesConfig is what batch work learns beforehand of squeezes and evictions.
type NoticesConfig struct {
	Within time.Duration `yaml:"within"` // How long before a squeeze or an eviction batch work gets a notice of it; 0 gives none.
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
	Name         string        `yaml:"name"`         // Name of the rule in decisions.
	Metric       string        `yaml:"metric"`       // Metric that the rule watches.
	Watermark    int           `yaml:"watermark"`    // Value above which the rule acts, in percent.
	TriggerAfter int           `yaml:"triggerAfter"` // Samples above the watermark before it acts. Default: 1.
	RestoreAfter int           `yaml:"restoreAfter"` // Samples below the watermark before it ends. Default: 1.
	Action       RuleAction    `yaml:"action"`       // What it does: refuse, throttle, reclaim or evict.
	StepPercent  int           `yaml:"stepPercent"`  // Step, in percent of the CPU limit (throttle) or of the container's memory (reclaim).
	FloorPercent int           `yaml:"floorPercent"` // Lowest CPU limit by throttle, in percent of the container's own; never below the request.
	Grace        time.Duration `yaml:"grace"`        // Time for an evicted pod to exit by itself.
	CoolDown     time.Duration `yaml:"coolDown"`     // Time between two steps; for refuse, time after its end.
	Mode         Mode          `yaml:"mode"`         // Mode of the rule. Default: that of the loop.
}

// Window closes or squeezes batch work by time of day.
type Window struct {
	From    string            `yaml:"from"`    // Start as a time of day of the node, for example "09:30".
	To      string            `yaml:"to"`      // End, at most "24:00"; if not after from, on the next day.
	Days    []string          `yaml:"days"`    // Days on which it starts: mon to sun. Default: all.
	Labels  map[string]string `yaml:"labels"`  // Labels with patterns of their values: the window needs such an LS pod to run.
	Grace   time.Duration     `yaml:"grace"`   // Time before the window in which no batch work starts.
	Evict   bool              `yaml:"evict"`   // Evict batch pods when the window starts.
	When    WindowWhen        `yaml:"when"`    // Forecast that the window needs. Default: none.
	Percent int               `yaml:"percent"` // Part of its CPU that batch work keeps, in percent; 0 is its floor, and no batch pod starts.
}

// WindowWhen is a forecast that a window needs: it is open only while the metric is above a value, and
// for ten minutes after that. It is also open where the forecast has not been known for a minute, but
// then it evicts nobody.
type WindowWhen struct {
	Metric string `yaml:"metric"` // Metric of rules that ends with .predicted.
	Above  int    `yaml:"above"`  // Value above which the window is open, in percent.
}
