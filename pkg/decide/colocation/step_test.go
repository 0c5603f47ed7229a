package colocation

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestAuthority(t *testing.T) {
	t.Parallel()
	const on, preview, off = control.On, control.Preview, control.Off
	for _, c := range []struct {
		loop, own    control.Mode
		writes       bool
		want         control.Mode
		decides, act bool
	}{
		{on, "", true, on, true, true},
		{on, "", false, preview, true, false},
		{preview, "", true, preview, true, false},
		{preview, on, true, on, true, true},
		{on, off, true, off, false, false},
		{off, "", true, off, false, false},
	} {
		may := Authority{Loop: c.loop, Writes: c.writes}
		if may.Of(c.own) != c.want || may.Decides(c.own) != c.decides || may.Acts(c.own) != c.act {
			t.Errorf("a controller with mode %q in %+v is %s", c.own, may, may.Of(c.own))
		}
	}
	may := Authority{Loop: on, Writes: true}
	for own, heeds := range map[control.Mode]bool{on: false, preview: true, off: true} {
		if may.Heeds(own, preview) != heeds || !may.Heeds(own, on) {
			t.Errorf("a controller in mode %s heeds one in preview: %t, want %t", own, !heeds, heeds)
		}
	}
}

// busyNode returns a node with a service, a batch container with a limit, and for each action a
// rule that triggers.
func busyNode(t *testing.T) (*NodeView, *Settings, Controllers) {
	t.Helper()
	job := running("job/a", "besteffort", workload.BE)
	job.Request.Batch.CPULimit = workload.Some[workload.MilliCPU](2000)
	v := &NodeView{}
	v.SetInventory(inventory(running("web/a", "burstable", workload.LS), job))
	cfg := control.DefaultConfig()
	cfg.Mode, cfg.Eviction.By = control.On, control.EvictCRI
	for _, action := range []control.RuleAction{control.RuleRefuse, control.RuleThrottle, control.RuleEvict} {
		cfg.Rules = append(cfg.Rules, control.Rule{Name: string(action), Metric: "node.cpu", Watermark: 50, Action: action, StepPercent: 50, FloorPercent: 10})
	}
	s := &Settings{Config: &cfg, Authority: Authority{Loop: control.On, Writes: true}, PoolLaw: []control.PoolConfig{{Name: "all"}}, Zone: time.UTC}
	c, err := NewControllers(s, Learned{})
	if err != nil {
		t.Fatal(err)
	}
	return v, s, c
}

// sample enters a sample of a busy node that many seconds after the start.
func sample(v *NodeView, second int) {
	now := start.Add(time.Duration(second) * time.Second)
	s := &observe.Snapshot{
		Now: now, Node: observe.Node{CPU: observe.NodeCPU{At: now, Usage: 7800}},
		Containers: []observe.Container{uses("web/a", 5800, 1<<30), uses("job/a", 2000, 1<<30)},
	}
	for i := range s.Containers {
		s.Containers[i].CPU.At, s.Containers[i].Memory.At = now, now
	}
	v.Observe(s, 0)
}

func TestStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change            func(*Settings, *Inputs)
		quota             workload.MilliCPU // of the batch container; 0 if it has no quota of the loop's
		refuses, evicts   bool
		memory, decisions bool
		failed            int // number of evictions that failed
	}{
		"on":                   {func(*Settings, *Inputs) {}, 1000, true, true, true, true, 0},
		"nobody evicts":        {func(_ *Settings, in *Inputs) { in.Evicts = false }, 1000, true, false, true, true, 1},
		"the pod is resized":   {func(_ *Settings, in *Inputs) { in.Resizing = map[string]bool{"job": true} }, 0, true, true, true, true, 0},
		"nothing is written":   {func(_ *Settings, in *Inputs) { in.Writes = false }, 0, false, false, true, true, 0},
		"no eviction":          {func(s *Settings, _ *Inputs) { s.Eviction.Mode = control.Off }, 1000, true, false, true, true, 0},
		"no memory controller": {func(s *Settings, _ *Inputs) { s.Memory.Mode = control.Off }, 1000, true, true, false, true, 0},
	} {
		v, s, controllers := busyNode(t)
		in := &Inputs{Config: s.Config, Authority: s.Authority, Given: 2000, Owed: 77, Evicts: true}
		c.change(s, in)
		want := NewCPUDesired()
		var refuses, evicts, memory, decisions bool
		var quota workload.MilliCPU
		for second := range 20 {
			sample(v, second)
			want.Containers["gone"] = want.Containers["web/a"]
			d := controllers.Step(v, in, want)
			refuses, evicts = refuses || d.RuleRefuse != "", evicts || d.Evict != nil
			memory, decisions = memory || d.Memory != nil, decisions || len(d.Decisions) > 0
			if q := workload.MilliCPU(want.Containers["job/a"].Quota.Milli()); quota == 0 {
				quota = q
			}
			if _, kept := want.Containers["gone"]; kept {
				t.Fatalf("%s: the quota of a container that nobody wants any more stays", name)
			}
		}
		if quota != c.quota || refuses != c.refuses || evicts != c.evicts || memory != c.memory || decisions != c.decisions {
			t.Errorf("%s: quota %d, refuses %t, evicts %t, memory %t, decisions %t", name, quota, refuses, evicts, memory, decisions)
		}
		if got := controllers.Eviction.Counts().Failed; (got > 0) != (c.failed > 0) {
			t.Errorf("%s: %d evictions failed", name, got)
		}
		if v.Granted != 77 {
			t.Errorf("%s: the controllers don't know what is reserved: %d", name, v.Granted)
		}
	}
}

// A forecast gives a notice where the loop acts and forecasts count, or the loop is in preview; it
// closes the node unless the switch is on. A window evicts only where pods are evicted.
func TestStepNotices(t *testing.T) {
	t.Parallel()
	evicting := func(s *Settings) {
		s.Windows = []control.Window{{From: "00:00", To: "24:00", Evict: true}}
	}
	for name, c := range map[string]struct {
		change func(*Settings)
		to     control.SwitchState
		kind   control.NoticeKind
		closed bool
	}{
		"forecasts count":         {func(*Settings) {}, control.SwitchAuto, control.NoticeSqueeze, true},
		"the switch is on":        {func(*Settings) {}, control.SwitchOn, control.NoticeSqueeze, false},
		"forecasts in preview":    {func(s *Settings) { s.Prediction.Mode = control.Preview }, control.SwitchAuto, "", false},
		"all in preview":          {func(s *Settings) { s.Prediction.Mode, s.Loop = control.Preview, control.Preview }, control.SwitchAuto, control.NoticeSqueeze, true},
		"no forecasts":            {func(s *Settings) { s.Prediction.Mode = control.Off }, control.SwitchAuto, "", false},
		"no loop":                 {func(s *Settings) { s.Loop = control.Off }, control.SwitchAuto, "", false},
		"a window evicts":         {evicting, control.SwitchAuto, control.NoticeEvict, true},
		"nobody is evicted":       {func(s *Settings) { evicting(s); s.Eviction.By = control.EvictReport }, control.SwitchAuto, control.NoticeSqueeze, true},
		"a window, and no notice": {func(s *Settings) { evicting(s); s.Notices.Within = 0 }, control.SwitchAuto, "", true},
	} {
		v, s, _ := busyNode(t)
		s.Prediction.Mode = control.On
		c.change(s)
		const days = 10 * 24 * time.Hour // the epoch is too early to have learned before it
		learned := predict.NewSet(predict.DefaultConfig())
		for before := 48 * time.Hour; before > 0; before -= time.Minute {
			learned.Add(start.Add(days-before), predict.Key{Kind: predict.Node, Resource: predict.CPU}, 100)
		}
		controllers, err := NewControllers(s, Learned{Usage: learned})
		if err != nil {
			t.Fatal(err)
		}
		in := &Inputs{Config: s.Config, Authority: s.Authority}
		var active control.Notice
		for second := range 40 {
			sample(v, second)
			v.Now = v.Now.Add(days)
			v.Node.CPU.At, v.Node.Memory.At, v.MemoryTotal = v.Now, v.Now, 64<<30
			to := control.Switch{To: c.to}
			controllers.StepWindows(v, in, to)
			controllers.StepPrediction(v, in)
			active, _ = controllers.StepNotices(v, in, to)
		}
		if active.Kind != c.kind || v.Batch.Closed != c.closed || (v.Batch.Why != "") != c.closed {
			t.Errorf("%s: %+v, batch %+v", name, active, v.Batch)
		}
	}
}

// Renew keeps a controller whose part of the configuration has not changed.
func TestRenew(t *testing.T) {
	t.Parallel()
	always := []string{"Interference", "Noisy", "OverAsk", "Outgrown", "Benefit"}
	for name, c := range map[string]struct {
		change func(*Settings)
		fresh  []string
	}{
		"nothing":            {func(*Settings) {}, nil},
		"the batch budget":   {func(s *Settings) { s.Batch.ThresholdPercent = 33 }, []string{"Batch", "Lend", "Notices"}},
		"the batch floor":    {func(s *Settings) { s.Batch.FloorPercent = 5 }, []string{"Batch", "Culprit", "Lend", "Notices"}},
		"the culprit":        {func(s *Settings) { s.Culprit.Mode = control.Off }, []string{"Culprit"}},
		"noisy pods":         {func(s *Settings) { s.Noisy.Mode = control.On }, []string{"Separation"}},
		"bounds":             {func(s *Settings) { s.SLO.Mode = control.Off }, []string{"Bounds"}},
		"what batch leaves":  {func(s *Settings) { s.Batch.Reserved = 500 }, []string{"Batch", "Lend", "Notices", "Offering"}},
		"burst":              {func(s *Settings) { s.Burst.All = true }, []string{"Burst"}},
		"a mode":             {func(s *Settings) { s.Burst.Mode = control.Off }, []string{"Burst"}},
		"eviction":           {func(s *Settings) { s.Eviction.RefuseNew = true }, []string{"Eviction"}},
		"notices":            {func(s *Settings) { s.Notices.Within = time.Hour }, []string{"Notices"}},
		"rules":              {func(s *Settings) { s.Rules = s.Rules[1:] }, []string{"Rules", "PreviewRules"}},
		"windows":            {func(s *Settings) { s.Windows = []control.Window{{From: "09:00", To: "10:00"}} }, []string{"Windows"}},
		"the pools' law":     {func(s *Settings) { s.PoolLaw = []control.PoolConfig{{Name: "all", Low: 1}} }, []string{"Windows", "Notices", "Pools", "Batch", "Demotion", "Memory", "Rules", "PreviewRules", "Lend"}},
		"exclusive pools":    {func(s *Settings) { s.ExclusivePools = true }, []string{"Windows", "Notices", "Pools", "Batch", "Demotion", "Memory", "Rules", "PreviewRules", "Lend"}},
		"nothing is written": {func(s *Settings) { s.Writes = false }, []string{"Notices", "Pools", "Batch", "Cache", "Burst", "Culprit", "Bounds", "Demotion", "Memory", "Rules", "PreviewRules", "Eviction", "Lend", "Offering"}},
	} {
		_, was, before := busyNode(t)
		now, cfg := *was, *was.Config
		now.Config = &cfg
		c.change(&now)
		after, err := before.Renew(was, &now, true)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var fresh []string
		x, y := reflect.ValueOf(before), reflect.ValueOf(after)
		for i := range x.NumField() {
			if field := x.Type().Field(i).Name; x.Field(i).Pointer() != y.Field(i).Pointer() {
				fresh = append(fresh, field)
			}
		}
		slices.Sort(fresh)
		slices.Sort(c.fresh)
		if !slices.Equal(fresh, c.fresh) {
			t.Errorf("%s: new are %v, want %v", name, fresh, c.fresh)
		}
		for _, field := range always {
			if slices.Contains(fresh, field) {
				t.Errorf("%s: %s has forgotten what it learned", name, field)
			}
		}
	}
	_, was, before := busyNode(t)
	if after, err := before.Renew(was, was, false); err != nil || after.Cache == before.Cache {
		t.Errorf("with other classes of RDT the cache controller begins anew: %v", err)
	}
	broken, cfg := *was, *was.Config
	broken.Config = &cfg
	cfg.Windows = []control.Window{{From: "25:00", To: "10:00"}}
	if _, err := before.Renew(was, &broken, true); err == nil {
		t.Error("windows that can't be are accepted")
	}
}
