package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func rulePools() []PoolConfig {
	return []PoolConfig{{Name: "critical"}, {Name: "online"}, {Name: "batch"}}
}

func newRules(t testing.TB, rules ...Rule) *Rules {
	t.Helper()
	r, err := NewRules(rules, On, On, rulePools(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// at sets the node's CPU usage in percent.
func (s *stage) at(percent int) *View {
	s.Node.CPU.Usage = workload.MilliCPU(percent) * 100
	return s.tick()
}

func TestRuleTriggersAndRestores(t *testing.T) {
	t.Parallel()
	r := newRules(t, Rule{Name: "busy", Metric: "node.cpu", Watermark: 80, TriggerAfter: 3, RestoreAfter: 2, Action: RuleRefuse, CoolDown: 2 * time.Second})
	s := newStage(60*gib, 40*gib)
	for i, step := range []struct {
		percent int
		refuses bool
		tells   string
	}{
		{81, false, ""}, {81, false, ""}, {80, false, ""}, // not three measurements in a row
		{81, false, ""}, {99, false, ""}, {81, true, "trigger"}, {81, true, ""},
		{50, true, ""}, {81, true, ""}, {50, true, ""},
		{50, true, "restore"}, {50, true, ""}, {50, false, ""}, // after the cool-down
		{50, false, ""}, {81, false, ""},
	} {
		got, decisions := r.Step(s.at(step.percent))
		told := ""
		for _, d := range decisions {
			told += d.Action
		}
		if (got.Refuse != "") != step.refuses || told != step.tells {
			t.Errorf("step %d: refuses %q, tells %+v", i, got.Refuse, decisions)
		}
	}
	// Repeated measurements count neither for nor against the rule.
	s.at(99)
	for range 5 {
		r.Step(&s.View)
	}
	s.Now = s.Now.Add(10 * time.Second)
	if got, decisions := r.Step(&s.View); got.Refuse != "" || decisions != nil {
		t.Errorf("one sample looked at often counts more: %v", decisions)
	}
}

func TestRuleThrottle(t *testing.T) {
	t.Parallel()
	r := newRules(t, Rule{Name: "busy", Metric: "node.cpu", Watermark: 80, Action: RuleThrottle, StepPercent: 20, FloorPercent: 40})
	s := newStage(60*gib, 40*gib,
		actor{uid: "floor", class: workload.BE, limit: 1000},
		actor{uid: "request", class: workload.BE, limit: 1000, request: 700},
		actor{uid: "unlimited", class: workload.BE, cpu: 2000},
		actor{uid: "ls", class: workload.LS, limit: 1000},
		actor{uid: "permits", class: workload.LS, limit: 1000, allow: workload.Throttle})
	r.Step(s.at(10))
	step := func(percent int, want string) {
		t.Helper()
		got, _ := r.Step(s.at(percent))
		var limits []string
		for _, l := range got.Throttles {
			limits = append(limits, l.ID+" "+l.Limit.String())
		}
		if text := strings.Join(limits, ", "); text != want {
			t.Errorf("at %d%%: %s, want %s", percent, text, want)
		}
	}
	step(90, "floor 0.8, request 0.8, unlimited 1.6, permits 0.8")
	step(90, "floor 0.64, request 0.7, unlimited 1.28, permits 0.64")
	step(90, "floor 0.512, request 0.7, unlimited 1.024, permits 0.512")
	step(90, "floor 0.409, request 0.7, unlimited 0.819, permits 0.409")
	step(90, "floor 0.4, request 0.7, unlimited 0.8, permits 0.4")
	s.remove("permits")
	s.Containers[0].Limit = 300 // another program has resized it
	step(10, "request 0.84, unlimited 0.96")
	step(10, "unlimited 1.152")
	for range 3 {
		r.Step(s.at(10))
	}
	step(10, "")
	s.Containers[0].Limit, s.Containers[2].CPU.Usage = leastQuota, 120
	step(90, "request 0.8, unlimited 0.1") // the limits stay high enough that a container which holds a lock makes progress
	s.Containers[0].Limit, s.Containers[2].CPU.Usage = 300, 2000
	for range 9 {
		r.Step(s.at(10))
	}
	if len(r.limits) > 0 {
		t.Errorf("keeps %v", r.limits)
	}
}

func TestRuleReclaimsAndEvicts(t *testing.T) {
	t.Parallel()
	r := newRules(t,
		Rule{Name: "cache", Metric: "node.psi.memory", Watermark: 20, Action: RuleReclaim, StepPercent: 10, CoolDown: 5 * time.Second},
		Rule{Name: "disk", Metric: "node.disk", Watermark: 90, Action: RuleEvict, Grace: 30 * time.Second, CoolDown: time.Minute})
	s := newStage(60*gib, 40*gib, actor{uid: "be", class: workload.BE, anon: 500, cache: 500}, actor{uid: "ls", class: workload.LS, cache: 500})
	r.Step(&s.View)
	s.Node.Pressure.Memory, s.Node.Disk.Used = 0.25, 0.95
	reclaims, evicts := 0, 0
	for range 10 {
		got, _ := r.Step(s.tick())
		for _, w := range got.Reclaim {
			reclaims++
			if w != (Reclaim{ID: "be", Bytes: 100 * mib, Until: 900 * mib}) {
				t.Errorf("asks for %+v", w)
			}
		}
		for _, w := range got.Evict {
			evicts++
			if w.Resource != ResourceIO || w.Grace != 30*time.Second || w.Pause != time.Minute || !strings.Contains(w.Why, "rule disk found node.disk at 95.0%, over 90%") {
				t.Errorf("asks for %+v", w)
			}
		}
	}
	if reclaims != 2 || evicts != 10 {
		t.Errorf("reclaims %d times, evicts %d times in 10 s", reclaims, evicts)
	}
}

// TestRuleThatCannotReclaim checks that, if the kernel can't reclaim memory from a container, the
// rule says so once each time it triggers and asks for nothing.
func TestRuleThatCannotReclaim(t *testing.T) {
	t.Parallel()
	r := newRules(t, Rule{Name: "cache", Metric: "node.cpu", Watermark: 80, Action: RuleReclaim, StepPercent: 10})
	s := newStage(60*gib, 40*gib, actor{uid: "be", class: workload.BE, anon: 500, cache: 500})
	s.NoReclaim = true
	r.Step(s.at(10))
	var told []string
	for _, percent := range []int{90, 90, 90, 10, 90} {
		got, decisions := r.Step(s.at(percent))
		if len(got.Reclaim) > 0 {
			t.Errorf("asks for %+v", got.Reclaim)
		}
		for _, d := range decisions {
			told = append(told, d.Action)
		}
	}
	if want := []string{"refused", "restore", "refused"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

func TestRuleMetrics(t *testing.T) {
	t.Parallel()
	s := newStage(60*gib, 40*gib, actor{uid: "be", class: workload.BE, anon: 5 << 10, cpu: 2500}, actor{uid: "ls", class: workload.LS, anon: 10 << 10})
	n := &s.Node
	n.CPU.Usage, n.Load.Tasks, n.Disk.Used = 5500, 15, 0.42
	n.Pressure.CPU, n.Pressure.Memory, n.Pressure.MemoryFull, n.Pressure.IO, n.Pressure.IOFull = 0.11, 0.12, 0.13, 0.14, 0.15
	s.Pools[1] = Pool{Name: "online", Size: 4, Usage: 3000, Pressure: 0.2, At: s.Now}
	s.Containers[1].Pressure.Memory, s.Containers[1].Pressure.IO = 0.21, 0.22
	pools := rulePools()
	pools[1].Memory = 20 * gib
	want := map[string]float64{
		"node.cpu": 55, "node.memory": 40, "node.load": 150, "node.disk": 42, "node.psi.cpu": 11, "node.psi.memory": 12,
		"node.psi.memory.full": 13, "node.psi.io": 14, "node.psi.io.full": 15, "batch.cpu": 25, "batch.memory": 5,
		"pool.online.cpu": 75, "pool.online.memory": 50, "pool.online.psi.cpu": 20, "pool.online.psi.memory": 21, "pool.online.psi.io": 22,
	}
	s.Expected = Forecasts{Pools: []workload.MilliCPU{0, 2400}, Soon: Amount{CPU: 7000, MemoryBytes: 25 * gib}}
	want["node.cpu.predicted"], want["node.memory.predicted"], want["pool.online.cpu.predicted"] = 70, 25, 60
	names := []string{"online", "batch"}
	for _, name := range RuleMetrics(names) {
		if strings.HasPrefix(name, "pool.batch.") {
			continue
		}
		m, err := parseMetric(name, names)
		if err != nil {
			t.Fatal(err)
		}
		got, _, ok := m.value(&s.View, time.Second, pools)
		if !ok || got < want[name]-0.01 || got > want[name]+0.01 {
			t.Errorf("%s is %v, %v, want %v", name, got, ok, want[name])
		}
		expected := s.Expected
		s.Now, s.Expected = s.Now.Add(time.Minute), Forecasts{}
		if _, _, ok := m.value(&s.View, time.Second, pools); ok {
			t.Errorf("%s is known a minute later", name)
		}
		s.Now, s.Expected = s.Now.Add(-time.Minute), expected
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	if _, err := parseMetric("pool.batch.cpu.predicted", names); err == nil {
		t.Error("a forecast of the batch pool, which has none")
	}
}

// A container that never starts or runs in a virtual machine does not hide the usage of batch work
// or of its pool from rules. An idle container, which is measured less often, does not make either
// unknown.
func TestRulesWithoutFiguresOfOne(t *testing.T) {
	t.Parallel()
	s := newStage(60*gib, 40*gib, actor{uid: "be", class: workload.BE, anon: 50 << 10, cpu: 5000},
		actor{uid: "ghost", class: workload.BE}, actor{uid: "idle", class: workload.BE})
	s.Containers[1].Unseen = true
	for _, name := range []string{"batch.cpu", "batch.memory", "pool.batch.memory", "pool.batch.psi.memory"} {
		m, err := parseMetric(name, []string{"batch"})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			s.tick()
			s.Containers[1].CPU, s.Containers[1].Container.Memory, s.Containers[1].Pressure = observe.ContainerCPU{}, observe.ContainerMemory{}, observe.Pressure{}
			s.Containers[2].CPU.Interval, s.Containers[2].CPU.At = 4*time.Second, s.Now.Add(-4*time.Second)
			if got, at, ok := m.value(&s.View, time.Second, rulePools()); !ok || !at.Equal(s.Now) || got != 50 && name != "pool.batch.psi.memory" {
				t.Errorf("%s is %v of %v ago, known: %v", name, got, s.Now.Sub(at), ok)
			}
		}
	}
	memory := newMemory()
	if got, _ := memory.Step(&s.View); got.BatchLimit == 0 {
		t.Error("no limit of memory")
	}
	s.Containers[1].Unseen = false
	if got, _ := newMemory().Step(&s.View); got.BatchLimit != 0 {
		t.Error("a limit though what a running container holds isn't known")
	}
}

func TestNewRules(t *testing.T) {
	t.Parallel()
	rules := []Rule{{Name: "a", Metric: "node.cpu"}, {Name: "b", Metric: "node.cpu", Mode: On}, {Name: "c", Metric: "node.cpu", Mode: Off}}
	for mode, want := range map[Mode]string{On: "b", Preview: "a", Off: "c"} {
		r, err := NewRules(rules, mode, Preview, rulePools(), time.Second)
		if err != nil || len(r.rules) != 1 || r.rules[0].Name != want {
			t.Errorf("mode %s has %+v, %v", mode, r.rules, err)
		}
	}
	if _, err := NewRules([]Rule{{Name: "a", Metric: "node.cpus"}}, On, On, nil, time.Second); err == nil || !strings.Contains(err.Error(), "did you mean node.cpu?") {
		t.Error(err)
	}
}

// However the load varies, a limit stays between floor and original, changes only after the rule
// has triggered, and returns to its original in the end.
func TestRulesProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rule := Rule{Name: "busy", Metric: "node.cpu", Watermark: 80, Action: RuleThrottle,
			TriggerAfter: rapid.IntRange(0, 3).Draw(t, "trigger"), RestoreAfter: rapid.IntRange(0, 3).Draw(t, "restore"),
			StepPercent: rapid.IntRange(1, 90).Draw(t, "step"), FloorPercent: rapid.IntRange(0, 100).Draw(t, "floor")}
		r, err := NewRules([]Rule{rule}, On, On, nil, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s := newStage(60*gib, 40*gib)
		for i := range rapid.IntRange(1, 4).Draw(t, "pods") {
			limit := rapid.Int64Range(0, 4000).Draw(t, "limit")
			s.add(actor{uid: string(rune('a' + i)), class: workload.BE, limit: workload.MilliCPU(limit), request: workload.MilliCPU(rapid.Int64Range(0, limit).Draw(t, "request"))})
		}
		for range 40 {
			got, _ := r.Step(s.at(rapid.SampledFrom([]int{10, 90}).Draw(t, "load")))
			for _, l := range got.Throttles {
				c := &s.Containers[slices.IndexFunc(s.Containers, func(c Container) bool { return c.ID == l.ID })]
				if floor := max(c.Request, c.Limit*workload.MilliCPU(rule.FloorPercent)/100, leastQuota); l.Limit < floor || l.Limit >= c.Limit {
					t.Fatalf("%s has %s, between %s and %s", l.ID, l.Limit, floor, c.Limit)
				}
			}
		}
		for range 4000 {
			r.Step(s.at(10))
		}
		if len(r.limits) > 0 {
			t.Fatalf("left are %+v", r.limits)
		}
	})
}

func TestCheckRules(t *testing.T) {
	t.Parallel()
	good := Rule{Name: "a", Metric: "pool.online.cpu", Watermark: 80, Action: RuleRefuse}
	with := func(change func(*Rule)) []Rule {
		r := good
		change(&r)
		return []Rule{r}
	}
	for want, rules := range map[string][]Rule{
		"":                                   {good},
		"[1].name \"a\" is there twice":      {good, good},
		"[0].name is missing":                with(func(r *Rule) { r.Name = "" }),
		"did you mean pool.online.cpu?":      with(func(r *Rule) { r.Metric = "pool.onlin.cpu" }),
		"did you mean node.psi.io?":          with(func(r *Rule) { r.Metric = "node.psi.oi" }),
		"is not a metric; there are":         with(func(r *Rule) { r.Metric = "temperature of the room" }),
		"[0].watermark 0: must be":           with(func(r *Rule) { r.Watermark = 0 }),
		"[0].triggerAfter -1: must be":       with(func(r *Rule) { r.TriggerAfter = -1 }),
		"[0].restoreAfter -1: must be":       with(func(r *Rule) { r.RestoreAfter = -1 }),
		"[0].coolDown -1s: must be":          with(func(r *Rule) { r.CoolDown = -time.Second }),
		"[0].action is missing":              with(func(r *Rule) { r.Action = "" }),
		"[0].stepPercent 0: must be 1 to 90": with(func(r *Rule) { r.Action = RuleThrottle }),
		"[0].stepPercent is for throttle":    with(func(r *Rule) { r.StepPercent = 1 }),
		"[0].floorPercent is for throttle":   with(func(r *Rule) { r.FloorPercent = 1 }),
		"[0].floorPercent 101: must be":      with(func(r *Rule) { r.Action, r.StepPercent, r.FloorPercent = RuleThrottle, 10, 101 }),
		"[0].grace is for evict":             with(func(r *Rule) { r.Grace = time.Second }),
		"[0].grace 2h0m0s: must be":          with(func(r *Rule) { r.Action, r.Grace = RuleEvict, 2*time.Hour }),
	} {
		problemsAre(t, CheckRules(rules, []string{"online"}), want)
	}
	var action RuleAction
	if err := action.UnmarshalText([]byte("kill")); err == nil || err.Error() != "must be refuse, throttle, reclaim or evict" {
		t.Error(err)
	}
}

// problemsAre checks that there is exactly one problem with that text; "" stands for none.
func problemsAre(t *testing.T, got []Problem, want string) {
	t.Helper()
	if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0].Key+" "+got[0].Text, want)) {
		t.Errorf("got %+v, want %q", got, want)
	}
}

func TestCheckMemoryAndEviction(t *testing.T) {
	t.Parallel()
	memory, eviction := DefaultConfig().Memory, DefaultConfig().Eviction
	problemsAre(t, memory.Check(), "")
	problemsAre(t, eviction.Check(), "")
	memory.SafePercent = 68
	problemsAre(t, memory.Check(), "safePercent 68: must be below 68, which is evictPercent less evictMarginPercent")
	eviction.MemoryPause = 0
	problemsAre(t, eviction.Check(), "memoryPause 0s: must be 1s to 1h0m0s")
	eviction = DefaultConfig().Eviction
	eviction.Socket = "cri.sock"
	problemsAre(t, eviction.Check(), "socket \"cri.sock\": must be an absolute path")
	var b Bytes
	if err := b.UnmarshalText([]byte("1.5Gi")); err != nil || int64(b) != gib*3/2 {
		t.Error(b, err)
	}
	if b.UnmarshalText([]byte("-1")) == nil || b.UnmarshalText([]byte("lots")) == nil {
		t.Error("takes anything")
	}
}

func FuzzMetric(f *testing.F) {
	for _, name := range append(RuleMetrics([]string{"online"}), "", "pool.", "pool.online", "pool.online.", "node") {
		f.Add(name)
	}
	known := RuleMetrics([]string{"online"})
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parseMetric(text, []string{"online"}); (err == nil) != slices.Contains(known, text) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func manyRules(t testing.TB) *Rules {
	return newRules(t,
		Rule{Name: "a", Metric: "node.cpu", Watermark: 80, Action: RuleThrottle, StepPercent: 10},
		Rule{Name: "b", Metric: "batch.memory", Watermark: 80, Action: RuleReclaim, StepPercent: 10},
		Rule{Name: "c", Metric: "pool.online.psi.memory", Watermark: 80, Action: RuleEvict},
		Rule{Name: "d", Metric: "node.psi.cpu", Watermark: 80, Action: RuleRefuse})
}

func TestRulesAllocs(t *testing.T) {
	r, s := manyRules(t), crowd()
	noAllocs(t, s, func(v *View) []Decision { _, d := r.Step(v); return d })
	r.Step(s.at(90))
	for range 100 {
		r.Step(s.tick())
	}
	noAllocs(t, s, func(v *View) []Decision { _, d := r.Step(v); return d })
}

func BenchmarkRules(b *testing.B) {
	r, s := manyRules(b), crowd()
	b.ReportAllocs()
	for b.Loop() {
		r.Step(s.tick())
	}
}
