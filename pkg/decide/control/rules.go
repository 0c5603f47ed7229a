package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Rules applies the operator's rules (as in Crane): each watches one metric, acts while it
// stays above a watermark, and stops once it has stayed below. One Rules holds the rules of one
// mode; those in preview have their own Rules, whose desired changes are dropped.
type Rules struct {
	rules    []rule
	pools    []PoolConfig
	interval time.Duration
	pace     pace

	limits    map[string]*slowed // by container ID
	round     int
	desired   RulesDesired
	decisions []Decision
}

// RulesDesired is what the rules want. Its slices are valid until the next step.
type RulesDesired struct {
	Refuse    string // why no new BE pods may start; "" if they may
	Throttles []Throttle
	Reclaim   []Reclaim
	Evict     []EvictRequest // requests for Eviction.Step
}

// Throttle is a CPU limit that a container should have in place of its own.
type Throttle struct {
	ID    string
	Limit workload.MilliCPU
}

// rule is a rule with its state.
type rule struct {
	Rule
	metric    metric
	sampledAt time.Time // time of the last sample
	value     float64
	above     int // consecutive samples above the watermark
	below     int
	triggered bool
	acted     time.Time // time of the action's last step
	restored  time.Time
	why       string // reason of the trigger
}

// slowed is a container whose CPU limit a rule has lowered.
type slowed struct {
	limit workload.MilliCPU // current limit
	full  workload.MilliCPU // its own limit, or its usage if it has none
	rule  int
	round int
}

// NewRules returns the controller of the rules that have the mode. A rule without a mode has
// the one in others. CheckRules reports mistakes in the rules.
func NewRules(rules []Rule, mode, others Mode, pools []PoolConfig, interval time.Duration) (*Rules, error) {
	r := &Rules{pools: pools, interval: interval, pace: pace{interval: interval}, limits: map[string]*slowed{}}
	names := make([]string, len(pools))
	for i := range pools {
		names[i] = pools[i].Name
	}
	for _, c := range rules {
		if c.Mode == "" {
			c.Mode = others
		}
		if c.Mode != mode {
			continue
		}
		m, err := parseMetric(c.Metric, names)
		if err != nil {
			return nil, fmt.Errorf("rule %s: metric %q: %w", c.Name, c.Metric, err)
		}
		c.TriggerAfter, c.RestoreAfter = max(c.TriggerAfter, 1), max(c.RestoreAfter, 1)
		r.rules = append(r.rules, rule{Rule: c, metric: m})
	}
	return r, nil
}

// Step decides. A sample that is unknown is not counted, so that the rule keeps its state.
func (r *Rules) Step(v *View) (RulesDesired, []Decision) {
	r.decisions = r.decisions[:0]
	d := &r.desired
	d.Refuse, d.Throttles, d.Reclaim, d.Evict = "", d.Throttles[:0], d.Reclaim[:0], d.Evict[:0]
	_, steady := r.pace.next(v.Now)
	for i := range r.rules {
		rule := &r.rules[i]
		r.sample(v, rule)
		switch rule.Action {
		case RuleRefuse:
			if d.Refuse == "" && (rule.triggered || waiting(rule.restored, v.Now, rule.CoolDown)) {
				d.Refuse = rule.why
			}
		case RuleThrottle:
			if steady {
				r.throttle(v, i)
			}
		case RuleReclaim:
			if steady && !v.NoReclaim && rule.due(v.Now) {
				r.reclaim(v, rule)
			}
		case RuleEvict:
			if steady && rule.triggered {
				d.Evict = append(d.Evict, EvictRequest{Resource: rule.metric.resource(), Why: rule.why, Cause: "rule", Grace: rule.Grace, Pause: rule.CoolDown})
			}
		}
	}
	r.limitsWanted(v)
	if len(r.decisions) == 0 {
		return *d, nil
	}
	return *d, r.decisions
}

// sample evaluates a rule's metric if there is a new measurement.
func (r *Rules) sample(v *View, rule *rule) {
	value, at, ok := rule.metric.value(v, r.interval, r.pools)
	if !ok || at.Equal(rule.sampledAt) {
		return
	}
	rule.sampledAt, rule.value = at, value
	if value > float64(rule.Watermark) {
		rule.above, rule.below = rule.above+1, 0
	} else {
		rule.above, rule.below = 0, rule.below+1
	}
	switch {
	case !rule.triggered && rule.above >= rule.TriggerAfter:
		rule.triggered, rule.acted = true, time.Time{}
		rule.why = "rule " + rule.Name + " found " + rule.condition()
		action, does := "trigger", "the rule does "+string(rule.Action)
		if rule.Action == RuleReclaim && v.NoReclaim {
			action, does = "refused", "the rule does nothing: this kernel takes no memory back from a container (Linux 5.19 on cgroup v2 does); action throttle or evict would work"
		}
		r.report(rule, action, fmt.Sprintf("%s, %d samples in a row: %s", rule.condition(), rule.above, does))
	case rule.triggered && rule.below >= rule.RestoreAfter:
		rule.triggered, rule.acted, rule.restored = false, time.Time{}, v.Now
		r.report(rule, "restore", fmt.Sprintf("%s, %d samples in a row: the rule ends", rule.condition(), rule.below))
	}
}

func (rule *rule) condition() string {
	side := "not over"
	if rule.value > float64(rule.Watermark) {
		side = "over"
	}
	return fmt.Sprintf("%s at %.1f%%, %s %d%%", rule.Metric, rule.value, side, rule.Watermark)
}

func (r *Rules) report(rule *rule, action, why string) {
	r.decisions = append(r.decisions, Decision{Controller: "rules", Object: "rule " + rule.Name, Action: action, Why: why,
		Facts: []Fact{{rule.Metric, rule.value}, {"watermark", float64(rule.Watermark)}}})
}

// due reports whether the next step of the action is due, and records it as done.
func (rule *rule) due(now time.Time) bool {
	if !rule.triggered || waiting(rule.acted, now, rule.CoolDown) {
		return false
	}
	rule.acted = now
	return true
}

// throttle lowers limits by a step while the rule is triggered, and raises them again once it
// is restored. Only the first of several rules lowers the limit of a container.
func (r *Rules) throttle(v *View, index int) {
	rule := &r.rules[index]
	down := rule.triggered
	if waiting(rule.acted, v.Now, rule.CoolDown) {
		return
	}
	moved := 0
	for i := range v.Containers {
		c := &v.Containers[i]
		t := r.limits[c.ID]
		switch {
		case t != nil && t.rule != index, t == nil && !down:
			continue
		case t == nil:
			full := c.Limit
			if full == 0 && uses(v, c, r.interval) {
				full = c.CPU.Usage
			}
			if full <= leastQuota || !permits(v, c, workload.Throttle) {
				continue
			}
			t = &slowed{limit: full, full: full, rule: index}
			r.limits[c.ID] = t
		}
		if next := rule.next(t, c.Request, down); next != t.limit {
			t.limit = next
			moved++
		}
	}
	if moved > 0 {
		rule.acted = v.Now
		action, way := "throttle", "lowered"
		if !down {
			action, way = "raise", "raised"
		}
		r.report(rule, action, fmt.Sprintf("%s: the CPU limits of %d containers are %s by %d%%", rule.condition(), moved, way, rule.StepPercent))
	}
}

// next returns the limit after one step: q × (1 − step) but not below the request and the
// floor, or q × (1 + step) but not above what the container had.
func (rule *rule) next(t *slowed, request workload.MilliCPU, down bool) workload.MilliCPU {
	if !down {
		return min(max(t.limit*workload.MilliCPU(100+rule.StepPercent)/100, t.limit+1), t.full)
	}
	floor := max(request, t.full*workload.MilliCPU(rule.FloorPercent)/100, leastQuota)
	return min(t.limit, max(t.limit*workload.MilliCPU(100-rule.StepPercent)/100, floor))
}

// limitsWanted lists the containers with a lowered limit, and drops those that have their own
// limit again or are gone. If another program has changed a limit meanwhile, that limit is the
// one to return to.
func (r *Rules) limitsWanted(v *View) {
	if len(r.limits) == 0 {
		return
	}
	r.round++
	for i := range v.Containers {
		c := &v.Containers[i]
		t := r.limits[c.ID]
		if t == nil {
			continue
		}
		if c.Limit > 0 && c.Limit != t.full {
			t.full = c.Limit
			t.limit = min(t.limit, t.full)
		}
		if t.limit >= t.full && !r.rules[t.rule].triggered {
			continue
		}
		t.round = r.round
		if t.limit < t.full {
			r.desired.Throttles = append(r.desired.Throttles, Throttle{c.ID, t.limit})
		}
	}
	for id, t := range r.limits {
		if t.round != r.round {
			delete(r.limits, id)
		}
	}
}

// reclaim requests a part of the memory of each container that permits it.
func (r *Rules) reclaim(v *View, rule *rule) {
	requested := 0
	for i := range v.Containers {
		c := &v.Containers[i]
		bytes := bytesPart(c.Container.Memory.Current, rule.StepPercent)
		if bytes < mib || !permits(v, c, workload.Reclaim) || !knownSlowly(v.Now, c.Container.Memory.At, r.interval) {
			continue
		}
		r.desired.Reclaim = append(r.desired.Reclaim, Reclaim{ID: c.ID, Bytes: bytes, Until: c.Container.Memory.Current - bytes})
		requested++
	}
	if requested > 0 {
		r.report(rule, "reclaim", fmt.Sprintf("%s: %d containers are asked for %d%% of their memory", rule.condition(), requested, rule.StepPercent))
	}
}

// resource returns the resource that is short while the metric is high.
func (m *metric) resource() Resource {
	switch m.kind {
	case metricNodeMemory, metricNodePSIMemory, metricNodePSIMemoryFull, metricBatchMemory, metricPoolMemoryUse, metricPoolPSIMemory, metricNodeMemoryPredicted:
		return ResourceMemory
	case metricNodeDisk, metricNodePSIIO, metricNodePSIIOFull, metricPoolPSIIO:
		return ResourceIO
	}
	return ResourceCPU
}
