package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/text/suggest"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// metricKind says what a rule's metric measures.
type metricKind uint8

const (
	metricNodeCPU metricKind = iota
	metricNodeMemory
	metricNodeLoad
	metricNodeDisk
	metricNodePSICPU
	metricNodePSIMemory
	metricNodePSIMemoryFull
	metricNodePSIIO
	metricNodePSIIOFull
	metricBatchCPU
	metricBatchMemory
	metricPoolCPU
	metricPoolMemoryUse
	metricPoolPSICPU
	metricPoolPSIMemory
	metricPoolPSIIO
	metricNodeCPUPredicted
	metricNodeMemoryPredicted
	metricPoolCPUPredicted
)

// metric is a metric that a rule names.
type metric struct {
	kind metricKind
	pool string
}

type namedMetric struct {
	name string // of a pool's: after its name
	kind metricKind
}

func nodeMetrics() []namedMetric {
	return []namedMetric{
		{"node.cpu", metricNodeCPU},                       // usage, of the CPUs
		{"node.memory", metricNodeMemory},                 // not available, of the memory
		{"node.load", metricNodeLoad},                     // 1 min load average, of the number of CPUs
		{"node.disk", metricNodeDisk},                     // used of the fullest file system with pods' data
		{"node.psi.cpu", metricNodePSICPU},                // time in which some task waited
		{"node.psi.memory", metricNodePSIMemory},          //
		{"node.psi.memory.full", metricNodePSIMemoryFull}, // time in which all did
		{"node.psi.io", metricNodePSIIO},
		{"node.psi.io.full", metricNodePSIIOFull},
		{"batch.cpu", metricBatchCPU},                    // BE's usage, of the node's CPUs
		{"batch.memory", metricBatchMemory},              // BE's memory with page cache, of the node's
		{"node.cpu" + predicted, metricNodeCPUPredicted}, // expected of all but BE in the next ten minutes
		{"node.memory" + predicted, metricNodeMemoryPredicted},
	}
}

// predicted ends the name of a metric that is a forecast.
const predicted = ".predicted"

func poolMetrics() []namedMetric {
	return []namedMetric{
		{"cpu", metricPoolCPU},          // usage, of the pool's CPUs
		{"memory", metricPoolMemoryUse}, // its working sets, of its limit or of the node's memory
		{"psi.cpu", metricPoolPSICPU},   // of the pool; of memory and io: of its worst container
		{"psi.memory", metricPoolPSIMemory},
		{"psi.io", metricPoolPSIIO},
		{"cpu" + predicted, metricPoolCPUPredicted}, // expected in the next ten minutes, of the pool's CPUs
	}
}

// in reports whether a pool has the metric. The last one, that of batch work, is not forecast.
func (m *namedMetric) in(pool string, pools []string) bool {
	return m.kind != metricPoolCPUPredicted || pool != pools[len(pools)-1]
}

// RuleMetrics lists the metrics that a rule may name on a node with these pools. All are in
// percent.
func RuleMetrics(pools []string) []string {
	var names []string
	for _, m := range nodeMetrics() {
		names = append(names, m.name)
	}
	for _, pool := range pools {
		for _, m := range poolMetrics() {
			if m.in(pool, pools) {
				names = append(names, "pool."+pool+"."+m.name)
			}
		}
	}
	return names
}

// parseMetric parses a metric's name.
func parseMetric(text string, pools []string) (metric, error) {
	for _, m := range nodeMetrics() {
		if m.name == text {
			return metric{kind: m.kind}, nil
		}
	}
	if rest, ok := strings.CutPrefix(text, "pool."); ok {
		pool, name, _ := strings.Cut(rest, ".")
		for _, m := range poolMetrics() {
			if m.name == name && slices.Contains(pools, pool) && m.in(pool, pools) {
				return metric{kind: m.kind, pool: pool}, nil
			}
		}
	}
	known := RuleMetrics(pools)
	if near := suggest.To(text, known); near != "" {
		return metric{}, fmt.Errorf("is not a metric; did you mean %s?", near)
	}
	return metric{}, fmt.Errorf("is not a metric; there are %s", strings.Join(known, ", "))
}

// value returns the metric in percent and the time of the measurement. It returns false if the
// metric is unknown or too old. A forecast that is not trusted is unknown.
func (m *metric) value(v *View, interval time.Duration, pools []PoolConfig) (percent float64, at time.Time, ok bool) {
	if m.pool != "" {
		return m.ofPool(v, interval, pools)
	}
	n := &v.Node
	switch m.kind {
	case metricNodeCPUPredicted:
		percent = float64(v.Expected.Soon.CPU) / 10 / onlineCPUs(v)
		return percent, v.Now, percent > 0
	case metricNodeMemoryPredicted:
		percent = percentIn(v.Expected.Soon.MemoryBytes, v.MemoryTotal)
		return percent, v.Now, percent > 0
	case metricNodeCPU:
		percent, at = float64(n.CPU.Usage)/10/onlineCPUs(v), n.CPU.At
	case metricNodeMemory:
		percent, at = percentIn(v.MemoryTotal-n.Memory.Available, v.MemoryTotal), n.Memory.At
	case metricNodeLoad:
		percent, at = n.Load.Tasks*100/onlineCPUs(v), n.Load.At
	case metricNodeDisk:
		percent, at = n.Disk.Used*100, n.Disk.At
	case metricNodePSICPU:
		percent, at = n.Pressure.CPU*100, n.Pressure.At
	case metricNodePSIMemory:
		percent, at = n.Pressure.Memory*100, n.Pressure.At
	case metricNodePSIMemoryFull:
		percent, at = n.Pressure.MemoryFull*100, n.Pressure.At
	case metricNodePSIIO:
		percent, at = n.Pressure.IO*100, n.Pressure.At
	case metricNodePSIIOFull:
		percent, at = n.Pressure.IOFull*100, n.Pressure.At
	default:
		return m.ofBatch(v, interval)
	}
	return percent, at, known(v.Now, at, interval)
}

// onlineCPUs counts the CPUs that have a rate, or all CPUs if none has one.
func onlineCPUs(v *View) float64 {
	n := 0
	for i := range v.CPUs {
		if v.CPUs[i].Known {
			n++
		}
	}
	if n == 0 {
		n = max(len(v.CPUs), 1)
	}
	return float64(n)
}

func percentIn(part, whole int64) float64 { return float64(part) * 100 / float64(max(whole, 1)) }

// ofBatch sums up BE containers. Without any, the sum is 0 and its time is now.
func (m *metric) ofBatch(v *View, interval time.Duration) (percent float64, at time.Time, ok bool) {
	var cpu, memory int64
	figures := newFigures(v.Now)
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Class != workload.BE || c.Unseen {
			continue
		}
		cpu += int64(c.CPU.Usage)
		memory += c.Container.Memory.Current
		figures.add(m, c, interval)
	}
	if m.kind == metricBatchMemory {
		return percentIn(memory, v.MemoryTotal), figures.oldest, figures.known
	}
	return float64(cpu) / 10 / onlineCPUs(v), figures.latest(), figures.known
}

// figures collects the times at which the figures of a sum were measured.
type figures struct {
	now, oldest, newest time.Time
	known               bool // no figure is older than its container's own interval allows
}

func newFigures(now time.Time) figures { return figures{now: now, oldest: now, known: true} }

// add adds the time of one container's figure. The CPU time of an idle container is read less
// often, so that its own interval counts.
func (f *figures) add(m *metric, c *Container, interval time.Duration) {
	at := m.sampledAt(c)
	switch m.kind {
	case metricBatchCPU:
		interval = max(interval, c.CPU.Interval)
	default:
		interval = max(interval, observe.SlowInterval)
	}
	f.known = f.known && known(f.now, at, interval)
	f.oldest = older(f.oldest, at)
	if at.After(f.newest) {
		f.newest = at
	}
}

// latest returns when the sum changed last, which is now if there is nothing to sum up.
func (f *figures) latest() time.Time {
	if f.newest.IsZero() {
		return f.oldest
	}
	return f.newest
}

func older(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sampledAt returns when the container's part of the metric was measured.
func (m *metric) sampledAt(c *Container) time.Time {
	switch m.kind {
	case metricBatchMemory, metricPoolMemoryUse:
		return c.Container.Memory.At
	case metricPoolPSIMemory, metricPoolPSIIO:
		return c.Pressure.At
	}
	return c.CPU.At
}

func (m *metric) ofPool(v *View, interval time.Duration, pools []PoolConfig) (percent float64, at time.Time, ok bool) {
	i := slices.IndexFunc(v.Pools, func(p Pool) bool { return p.Name == m.pool })
	if i < 0 {
		return 0, time.Time{}, false
	}
	p := &v.Pools[i]
	switch m.kind {
	case metricPoolCPUPredicted:
		percent = float64(v.Expected.pool(i)) / 10 / float64(max(p.Size, 1))
		return percent, v.Now, percent > 0
	case metricPoolCPU:
		return float64(p.Usage) / 10 / float64(max(p.Size, 1)), p.At, known(v.Now, p.At, interval)
	case metricPoolPSICPU:
		return p.Pressure * 100, p.At, known(v.Now, p.At, interval)
	}
	figures := newFigures(v.Now)
	var worst float64
	for k := range v.Containers {
		c := &v.Containers[k]
		if c.Pool != i || c.Unseen {
			continue
		}
		figures.add(m, c, interval)
		switch m.kind {
		case metricPoolPSIMemory:
			worst = max(worst, c.Pressure.Memory)
		case metricPoolPSIIO:
			worst = max(worst, c.Pressure.IO)
		}
	}
	if m.kind != metricPoolMemoryUse {
		return worst * 100, figures.oldest, figures.known
	}
	whole := v.MemoryTotal
	for k := range pools {
		if pools[k].Name == m.pool && pools[k].Memory > 0 {
			whole = pools[k].Memory
		}
	}
	return percentIn(poolMemory(v, i), whole), figures.oldest, figures.known
}
