package agent

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
)

// lossy is an audit trail on a full disk.
type lossy struct{}

func (lossy) Record(time.Time, control.Mode, *control.Decision) {}

func (lossy) Dropped() int { return 3 }

// looping returns a node whose loop the test steps.
func looping(t *testing.T, set func(*config.Config)) (n *testNode, now *time.Time) {
	t.Helper()
	n = newNode(t, setup{})
	n.stop()
	c := config.Default()
	c.Control.Mode = control.On
	set(c)
	log := logrus.New()
	log.SetOutput(&n.log)
	now = new(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	n.agent = New(Options{
		Config: c, Machine: n.machine, Host: fstest.MapFS{"proc": {}}, Kernel: n.kernel, Log: log,
		Clock: func() time.Time { return *now }, StateDir: t.TempDir(), Audit: lossy{},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { n.agent.Run(ctx); close(done) }()
	n.stop = func() { cancel(); <-done }
	t.Cleanup(n.stop)
	n.connect("")
	n.synchronize()
	return n, now
}

// seen returns what a sampler would measure now.
func seen(now time.Time, ids ...string) *observe.Snapshot {
	s := &observe.Snapshot{Now: now, CPUs: make([]observe.CPU, 8)}
	s.Node.CPU = observe.NodeCPU{At: now, Interval: time.Second, Usage: 3000}
	s.Node.Memory = observe.NodeMemory{At: now, Total: 8 << 30, Available: 4 << 30}
	for i := range s.CPUs {
		s.CPUs[i] = observe.CPU{Busy: 0.5, Known: true}
	}
	for _, id := range ids {
		s.Containers = append(s.Containers, observe.Container{
			ID:       id,
			CPU:      observe.ContainerCPU{At: now, Interval: time.Second, Usage: 1500, Periods: 10, Throttled: 4},
			Pressure: observe.Pressure{At: now, CPU: 0.25},
			Memory:   observe.ContainerMemory{At: now, Current: 2 << 30, WorkingSet: 1 << 30},
		})
	}
	return s
}

func statusOf(t *testing.T, n *testNode) *status.Status {
	t.Helper()
	s, err := n.agent.Status()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNoLoopIsLeftOut(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 2)
		s := statusOf(t, n)
		if s.Loop != nil || s.Pools[0].Load != nil || s.Containers[0].Usage != nil {
			t.Errorf("%+v", s)
		}
	})
}

func TestLoopStatus(t *testing.T) {
	t.Parallel()
	n, now := looping(t, func(*config.Config) {})
	n.run("web", "LS", 2)
	n.run("job", "BE", 0)
	if l := statusOf(t, n).Loop; l == nil || !l.MeasuredAt.IsZero() || l.Batch.Known {
		t.Fatalf("before the first look: %+v", l)
	}
	until := now.Add(time.Hour)
	if err := batchswitch.Write(n.agent.options.StateDir, batchswitch.Setting{To: control.SwitchOff, Until: until}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		*now = now.Add(time.Second)
		n.agent.Tick(seen(*now, "web", "job"))
	}
	s := statusOf(t, n)
	l := s.Loop
	want := status.Batch{
		State: status.BatchClosed, Why: "batch is switched off", NextChangeAt: until, Switch: status.Switch{State: "off", EndsAt: until},
		Mechanism: l.Batch.Mechanism, Known: true, Budget: l.Batch.Budget, BudgetCPUs: l.Batch.BudgetCPUs, Floor: 200, ThresholdPercent: 65, ThresholdWhy: l.Batch.ThresholdWhy, Used: 1500, Cgroups: l.Batch.Cgroups,
	}
	if !reflect.DeepEqual(l.Batch, want) || l.Batch.Budget == 0 {
		t.Errorf("batch is %+v, want %+v", l.Batch, want)
	}
	if !l.MeasuredAt.Equal(*now) || l.Mode != control.On || l.Problem != "" || l.DroppedAuditEntries != 3 || l.StateDir != n.agent.options.StateDir {
		t.Errorf("%+v", l)
	}
	if l.Refusal == nil || !l.Refusal.NewBatch || l.Node.CPU.Usage != 3000 || l.Node.CPU.Limit != 8000 {
		t.Errorf("refusal %+v, node %+v", l.Refusal, l.Node)
	}
	if load := l.Node.CPULoadPercent; len(load) != 8 || load[7] != 50 {
		t.Errorf("load by CPU: %v", load)
	}
	windows := l.Controllers[slices.IndexFunc(l.Controllers, func(c status.Controller) bool { return c.Name == "windows" })]
	if windows.Mode != control.On || windows.Last == nil || windows.Last.Action != "close" {
		t.Errorf("windows: %+v", windows)
	}
	if !slices.ContainsFunc(l.Counts, func(c status.Count) bool { return c.Controller == "windows" && c.Action == "close" && c.Count == 1 }) {
		t.Errorf("counts: %+v", l.Counts)
	}
	for _, c := range s.Containers {
		if u := c.Usage; u == nil || u.CPU.Usage != 1500 || u.CPU.ThrottledFraction != 0.4 || u.Memory.WorkingSetBytes != 1<<30 || u.Pressure.CPUFraction != 0.25 {
			t.Errorf("%s: %+v", c.Ref, u)
		}
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// A status that was handed out does not change while the loop continues.
func TestLoopStatusIsACopy(t *testing.T) {
	t.Parallel()
	n, now := looping(t, func(*config.Config) {})
	n.run("web", "LS", 2)
	n.run("job", "BE", 0)
	step := func() {
		*now = now.Add(time.Second)
		n.agent.Tick(seen(*now, "web", "job"))
	}
	step()
	s := statusOf(t, n)
	before, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // the race detector reports shared memory
		defer close(done)
		for range 20 {
			json.Marshal(s)
		}
	}()
	n.run("job2", "BE", 0)
	if err := batchswitch.Write(n.agent.options.StateDir, batchswitch.Setting{To: control.SwitchOff}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		step()
	}
	<-done
	if after, err := json.Marshal(s); err != nil || string(after) != string(before) {
		t.Errorf("%v\nbefore %s\nafter  %s", err, before, after)
	}
}

func TestPoolsLoad(t *testing.T) {
	t.Parallel()
	n, now := looping(t, func(c *config.Config) { c.Pools.Mode = config.Exclusive })
	n.run("web", "LS", 2)
	for range 3 {
		*now = now.Add(time.Second)
		n.agent.Tick(seen(*now, "web"))
	}
	s := statusOf(t, n)
	all := 0
	for _, p := range s.Pools {
		l := p.Load
		if l == nil || (l.LoadFraction > 0) != (p.Name == "online") || l.LoadFraction > 1 || l.BandHighPercent == 0 || l.SizeCPUs != p.CPUs.Size() {
			t.Errorf("%s: %+v", p.Name, l)
			continue
		}
		all += l.WantedCPUs
	}
	if all != 8 || s.Loop.Batch.Mechanism != "pools" || !s.Loop.Batch.Known {
		t.Errorf("%d CPUs wanted; %+v", all, s.Loop.Batch)
	}
}
