package annotation

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// These are Koordinator's keys for tuning; see its apis/slo/v1alpha1 and apis/extension.
const (
	koordBurst     = "koordinator.sh/cpuBurst"
	koordCPU       = "koordinator.sh/cpuQOS"
	koordMemory    = "koordinator.sh/memoryQOS"
	koordIO        = "koordinator.sh/blkioQOS"
	koordResctrl   = "node.koordinator.sh/resctrl"
	koordExtended  = "node.koordinator.sh/extended-resource-spec"
	koordOOM       = "koordinator.sh/oom-score-adj"
	koordOOMs      = "koordinator.sh/oom-score-adj-spec"
	koordEvictRank = "koordinator.sh/eviction-priority"
	koordEvict     = "koordinator.sh/eviction-enabled"
	koordNetwork   = "koordinator.sh/networkQOS"
	koordCores     = "koordinator.sh/core-sched-group-id"
	koordCorePlan  = "koordinator.sh/core-sched-policy"
)

// koordinatorKnobs collects the annotations that do not place the container.
func (r *reader) koordinatorKnobs() {
	for _, a := range [...]struct {
		name string
		read func(text, source string)
	}{
		{koordBurst, r.koordinatorBurst}, {koordCPU, r.koordinatorCPU}, {koordMemory, r.koordinatorMemory}, {koordIO, r.koordinatorIO},
		{koordResctrl, r.koordinatorResctrl}, {koordExtended, r.koordinatorBatch}, {koordOOMs, r.koordinatorOOMs}, {koordOOM, r.koordinatorOOM},
		{koordEvictRank, r.koordinatorEvict}, {koordNetwork, r.koordinatorNetwork},
	} {
		if text, ok := r.pod.Annotations[a.name]; ok {
			a.read(text, "annotation "+a.name)
		}
	}
}

// koordinatorLabels collects the labels other than the class.
func (r *reader) koordinatorLabels() {
	if r.pod.Labels[koordEvict] == "false" {
		r.propose(candidate{key: evictKey, value: "never", podText: "false", source: "label " + koordEvict, origin: koordinator, soft: true})
	}
	group, grouped := r.pod.Labels[koordCores]
	cores := candidate{key: coreSchedKey, value: group, podText: group, source: "label " + koordCores, origin: koordinator}
	switch policy := r.pod.Labels[koordCorePlan]; policy {
	case "":
		if group == "0" { // in older versions this stands for none
			cores.value, cores.parsed = "off", &workload.Request{}
		}
	case "none":
		cores.value, cores.podText, cores.source, cores.parsed, grouped = "off", policy, "label "+koordCorePlan, &workload.Request{}, true
	case "exclusive":
		cores.value, cores.podText, cores.source, grouped = r.pod.UID, policy, "label "+koordCorePlan, true
	default:
		r.refuse(&candidate{source: "label " + koordCorePlan, value: policy, soft: true}, "is not a policy that Sluice knows: none or exclusive")
	}
	if grouped {
		r.propose(cores)
	}
}

// tuning adds a candidate that a dialect expresses in its own form.
func (r *reader) tuning(k key, value string, t workload.Tuning, source string, from origin) {
	r.propose(candidate{key: k, value: value, parsed: &workload.Request{Tuning: t}, source: source, origin: from})
}

// inRange refuses a dialect's number that is out of its range.
func (r *reader) inRange(source, name string, n *int64, least, most int64) bool {
	if n == nil || *n >= least && *n <= most {
		return true
	}
	r.refuse(&candidate{source: source, value: strconv.FormatInt(*n, 10)}, fmt.Sprintf("%s must be %d to %d", name, least, most))
	return false
}

// or returns a dialect's number, or its default if it is missing.
func or(n *int64, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return int(*n)
}

func optional(n *int64) workload.Optional[int] {
	if n == nil {
		return workload.Optional[int]{}
	}
	return workload.Some(int(*n))
}

func (r *reader) koordinatorBurst(text, source string) {
	var b struct {
		Policy  string `json:"policy"`
		Percent *int64 `json:"cpuBurstPercent"`
		Quota   *int64 `json:"cfsQuotaBurstPercent"`
		Seconds *int64 `json:"cfsQuotaBurstPeriodSeconds"`
	}
	if !r.json(source, text, &b) || !r.inRange(source, "cpuBurstPercent", b.Percent, 0, maxBurst) ||
		!r.inRange(source, "cfsQuotaBurstPercent", b.Quota, 100, math.MaxInt32) || !r.inRange(source, "cfsQuotaBurstPeriodSeconds", b.Seconds, -1, math.MaxInt32) {
		return
	}
	static := workload.Burst{Percent: or(b.Percent, 1000)}
	raise := workload.Burst{Auto: true, QuotaPercent: or(b.Quota, 300), QuotaPeriod: time.Duration(max(0, or(b.Seconds, -1))) * time.Second}
	var burst workload.Burst
	switch b.Policy {
	case "": // Koordinator's default for the node
		return
	case "none":
	case "cpuBurstOnly":
		burst = static
	case "cfsQuotaBurstOnly":
		burst = raise
	case "auto":
		burst = raise
		burst.Percent = static.Percent
	default:
		r.refuse(&candidate{source: source, value: b.Policy, soft: true}, "is not a policy that Sluice knows: none, cpuBurstOnly, cfsQuotaBurstOnly or auto")
		return
	}
	var percent, auto string
	if burst.Percent > 0 {
		percent = strconv.Itoa(burst.Percent) + "%"
	}
	if burst.Auto {
		auto = "auto up to " + strconv.Itoa(burst.QuotaPercent) + "%"
	}
	r.tuning(cpuBurstKey, describe(percent, auto), workload.Tuning{Burst: burst}, source, koordinator)
}

func (r *reader) koordinatorCPU(text, source string) {
	var cpu struct {
		Identity *int64 `json:"groupIdentity"`
	}
	if r.json(source, text, &cpu) && r.inRange(source, "groupIdentity", cpu.Identity, -1, 2) && cpu.Identity != nil {
		n := int(*cpu.Identity)
		r.tuning(cpuIdentityKey, strconv.Itoa(n), workload.Tuning{Identity: workload.Some(n)}, source, koordinator)
	}
}

// koordinatorMemory reads memoryQOS. Koordinator writes wmarkScalePermill to
// memory.wmark_scale_factor, although its name suggests another unit.
func (r *reader) koordinatorMemory(text, source string) {
	var q struct {
		Policy     string `json:"policy"`
		Min        *int64 `json:"minLimitPercent"`
		Low        *int64 `json:"lowLimitPercent"`
		Throttling *int64 `json:"throttlingPercent"`
		Ratio      *int64 `json:"wmarkRatio"`
		Scale      *int64 `json:"wmarkScalePermill"`
		MinAdj     *int64 `json:"wmarkMinAdj"`
		Ranked     *int64 `json:"priorityEnable"`
		Priority   *int64 `json:"priority"`
		Group      *int64 `json:"oomKillGroup"`
	}
	if !r.json(source, text, &q) {
		return
	}
	for _, f := range [...]struct {
		name        string
		n           *int64
		least, most int64
	}{
		{"minLimitPercent", q.Min, 0, 100}, {"lowLimitPercent", q.Low, 0, 100}, {"throttlingPercent", q.Throttling, 0, 100},
		{"wmarkRatio", q.Ratio, 0, 100}, {"wmarkScalePermill", q.Scale, 1, 1000}, {"wmarkMinAdj", q.MinAdj, -25, 50},
		{"priorityEnable", q.Ranked, 0, 1}, {"priority", q.Priority, 0, 12}, {"oomKillGroup", q.Group, 0, 1},
	} {
		if !r.inRange(source, f.name, f.n, f.least, f.most) {
			return
		}
	}
	m := workload.MemoryQoS{
		MinPercent: optional(q.Min), LowPercent: optional(q.Low), HighPercent: optional(q.Throttling),
		WmarkRatio: optional(q.Ratio), WmarkScale: optional(q.Scale), WmarkMinAdj: optional(q.MinAdj),
	}
	if or(q.Ranked, 0) == 1 {
		m.Priority = optional(q.Priority)
	}
	if q.Group != nil {
		m.OOMGroup = workload.Some(*q.Group == 1)
	}
	zero := workload.Some(0)
	switch q.Policy {
	case "", "default": // missing values are the node's
	case "none":
		m = workload.MemoryQoS{MinPercent: zero, LowPercent: zero, HighPercent: zero, WmarkRatio: zero, WmarkMinAdj: zero, OOMGroup: workload.Some(false)}
	case "auto": // missing values are Koordinator's recommendations, which depend on the class
		recommended := workload.MemoryQoS{MinPercent: zero, LowPercent: zero, HighPercent: zero,
			WmarkRatio: workload.Some(95), WmarkScale: workload.Some(20), WmarkMinAdj: workload.Some(-25)}
		if r.pod.Labels[koordQoS] == "BE" {
			recommended.WmarkMinAdj = workload.Some(50)
		}
		fillMemory(&m, &recommended)
	default:
		r.refuse(&candidate{source: source, value: q.Policy, soft: true}, "is not a policy that Sluice knows: default, none or auto")
		return
	}
	if text := spellMemory(&m); text != "{}" {
		r.tuning(memoryQoSKey, text, workload.Tuning{Memory: m}, source, koordinator)
	}
}

// spellMemory formats a value in the form that parseMemoryQoS reads.
func spellMemory(m *workload.MemoryQoS) string {
	var parts []string
	for _, f := range [...]struct {
		name string
		n    workload.Optional[int]
	}{
		{"minPercent", m.MinPercent}, {"lowPercent", m.LowPercent}, {"highPercent", m.HighPercent},
		{"wmarkRatio", m.WmarkRatio}, {"wmarkScale", m.WmarkScale}, {"wmarkMinAdj", m.WmarkMinAdj}, {"priority", m.Priority},
	} {
		if f.n.Set {
			parts = append(parts, f.name+": "+strconv.Itoa(f.n.Value))
		}
	}
	if m.OOMGroup.Set {
		parts = append(parts, "oomGroup: "+strconv.FormatBool(m.OOMGroup.Value))
	}
	if m.Offload.Set {
		parts = append(parts, "offload: "+strconv.FormatBool(m.Offload.Value))
	}
	if m.Swap.Set {
		parts = append(parts, "swap: "+m.Swap.Value.String())
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// koordinatorOOM reads the score of the containers that the other annotation does not name.
func (r *reader) koordinatorOOM(text, source string) {
	for i := range r.candidates {
		if r.candidates[i].source == "annotation "+koordOOMs {
			return
		}
	}
	r.propose(candidate{key: oomScoreKey, value: strings.TrimSpace(text), source: source, origin: koordinator})
}

// koordinatorOOMs reads the scores by container, which take precedence over the pod's.
func (r *reader) koordinatorOOMs(text, source string) {
	var scores map[string]int64
	if !r.json(source, text, &scores) {
		return
	}
	if n, ok := scores[r.container.Name]; ok {
		r.propose(candidate{key: oomScoreKey, value: strconv.FormatInt(n, 10), source: source, origin: koordinator})
	}
}

func (r *reader) koordinatorEvict(text, source string) {
	if r.pod.Labels[koordEvict] != "false" {
		r.propose(candidate{key: evictKey, value: strings.TrimSpace(text), source: source, origin: koordinator, soft: true})
	}
}

func (r *reader) koordinatorIO(text, source string) {
	var q struct {
		Blocks []struct {
			Name string `json:"name"`
			Type string `json:"type"`
			IO   struct {
				ReadIOPS  *int64 `json:"readIOPS"`
				WriteIOPS *int64 `json:"writeIOPS"`
				ReadBPS   *int64 `json:"readBPS"`
				WriteBPS  *int64 `json:"writeBPS"`
				Weight    *int64 `json:"ioWeightPercent"`
			} `json:"ioCfg"`
		} `json:"blocks"`
	}
	if !r.json(source, text, &q) {
		return
	}
	var out workload.IO
	warned := false
	for i := range q.Blocks {
		b := &q.Blocks[i]
		if b.Type != "" && b.Type != "device" {
			if !warned {
				r.warn(source, "names the "+quote(b.Type)+" "+quote(b.Name)+", and Sluice reads only devices")
			}
			warned = true
			continue
		}
		if err := checkDevice(b.Name); err != nil {
			r.refuse(&candidate{source: source, value: b.Name}, err.Error())
			return
		}
		if !r.inRange(source, "readIOPS", b.IO.ReadIOPS, 0, maxIOPS) || !r.inRange(source, "writeIOPS", b.IO.WriteIOPS, 0, maxIOPS) ||
			!r.inRange(source, "readBPS", b.IO.ReadBPS, 0, math.MaxInt64) || !r.inRange(source, "writeBPS", b.IO.WriteBPS, 0, math.MaxInt64) ||
			!r.inRange(source, "ioWeightPercent", b.IO.Weight, 1, 100) {
			return
		}
		limit := func(n *int64) int64 { return int64(or(n, 0)) }
		out.Devices = append(out.Devices, workload.DeviceIO{Device: b.Name, Weight: optional(b.IO.Weight), Limits: workload.IOLimits{
			ReadBPS: limit(b.IO.ReadBPS), WriteBPS: limit(b.IO.WriteBPS), ReadIOPS: limit(b.IO.ReadIOPS), WriteIOPS: limit(b.IO.WriteIOPS)}})
	}
	if len(out.Devices) > 0 {
		r.tuning(ioKey, text, workload.Tuning{IO: out}, source, koordinator)
	}
}
