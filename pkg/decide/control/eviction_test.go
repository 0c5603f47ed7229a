package control

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// newEviction returns an Eviction in mode on.
func newEviction() *Eviction {
	cfg := DefaultConfig().Eviction
	cfg.By = EvictCRI
	return NewEviction(cfg, On, time.Second)
}

func shortOf(r Resource, need int64) []EvictRequest {
	return []EvictRequest{{Resource: r, Why: "there is too little", Need: need}}
}

func TestEvictionOrder(t *testing.T) {
	t.Parallel()
	be := func(uid string, change func(*actor)) actor {
		a := actor{uid: uid, class: workload.BE, anon: 100, cpu: 100}
		if change != nil {
			change(&a)
		}
		return a
	}
	large := be("large", func(a *actor) { a.anon = 200 })
	busy := be("busy", func(a *actor) { a.cpu = 200 })
	for name, test := range map[string]struct {
		resource Resource
		request  EvictRequest
		actors   []actor
		want     string
	}{
		"the largest user of memory":        {resource: ResourceMemory, actors: []actor{busy, large}, want: "large"},
		"the largest user of CPU":           {resource: ResourceCPU, actors: []actor{busy, large}, want: "busy"},
		"the tier goes before use":          {resource: ResourceMemory, actors: []actor{large, be("free", func(a *actor) { a.tier = workload.TierFree })}, want: "free"},
		"the tier goes before the order":    {resource: ResourceMemory, actors: []actor{be("free", func(a *actor) { a.tier, a.order = workload.TierFree, 9 }), be("mid", func(a *actor) { a.tier, a.order = workload.TierMid, -9 }), large}, want: "free"},
		"the order within a tier":           {resource: ResourceMemory, actors: []actor{large, be("first", func(a *actor) { a.order = -1 })}, want: "first"},
		"memory of which nothing is held":   {resource: ResourceMemory, actors: []actor{be("none", func(a *actor) { a.anon, a.cpu, a.order = 0, 900, -9 })}},
		"CPU of which nothing is used":      {resource: ResourceCPU, actors: []actor{be("idle", func(a *actor) { a.cpu = 9 })}},
		"who holds some goes before none":   {resource: ResourceMemory, actors: []actor{be("none", func(a *actor) { a.anon, a.order = 0, -9 }), large}, want: "large"},
		"all, also who uses nothing":        {request: EvictRequest{All: true}, actors: []actor{be("idle", func(a *actor) { a.cpu = 0 })}, want: "idle"},
		"never is never taken":              {resource: ResourceMemory, actors: []actor{be("never", func(a *actor) { a.never = true })}},
		"LS isn't":                          {resource: ResourceMemory, actors: []actor{{uid: "ls", class: workload.LS, anon: 1000}}},
		"LS that permits it":                {resource: ResourceMemory, actors: []actor{{uid: "ls", class: workload.LS, allow: workload.EvictPod, anon: 100}}, want: "ls"},
		"BE before LS that permits it":      {resource: ResourceMemory, actors: []actor{{uid: "ls", class: workload.LS, allow: workload.EvictPod, order: -5}, large}, want: "large"},
		"permits something else":            {resource: ResourceMemory, actors: []actor{{uid: "ls", class: workload.LS, allow: workload.Throttle}}},
		"BE alone":                          {request: EvictRequest{BEOnly: true}, actors: []actor{{uid: "ls", class: workload.LS, allow: workload.EvictPod}}},
		"of a pool":                         {request: EvictRequest{Pool: workload.Some(1)}, actors: []actor{large, {uid: "ls", class: workload.LS, allow: workload.EvictPod, cpu: 100}}, want: "ls"},
		"two that are alike, by uid":        {actors: []actor{be("b", nil), be("a", nil)}, want: "a"},
		"a pod without order has order 0":   {actors: []actor{be("a", func(a *actor) { a.order = 1 }), be("b", nil)}, want: "b"},
		"a lower order before a larger use": {resource: ResourceMemory, actors: []actor{be("b", func(a *actor) { a.order = -1 }), large}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, s := newEviction(), newStage(60*gib, 40*gib, test.actors...)
			test.request.Resource, test.request.Why = test.resource, "there is too little"
			requests := []EvictRequest{test.request}
			if got, _ := e.Step(&s.View, 0, requests); got.Evict != nil {
				t.Errorf("evicts in its first step, without knowing how time goes: %+v", got.Evict)
			}
			got, decisions := e.Step(s.tick(), 0, requests)
			uid := ""
			if got.Evict != nil {
				uid = got.Evict.UID
			}
			if uid != test.want || len(decisions) != 1 || !strings.Contains(decisions[0].Why, "there is too little") {
				t.Errorf("got %q, want %q: %+v", uid, test.want, decisions)
			}
			if test.want == "" {
				if _, decisions = e.Step(s.tick(), 0, requests); decisions != nil {
					t.Errorf("that there is nobody is told again: %+v", decisions)
				}
			}
		})
	}
}

// There are two waits: between evictions, and after one before new BE pods start.
func TestEvictionWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request EvictRequest
		want    time.Duration // wait between two evictions
	}{
		"CPU":    {EvictRequest{Resource: ResourceCPU}, 20 * time.Second},
		"memory": {EvictRequest{Resource: ResourceMemory}, 4 * time.Second},
		"I/O":    {EvictRequest{Resource: ResourceIO}, 20 * time.Second},
		"a rule": {EvictRequest{Resource: ResourceIO, Pause: 7 * time.Second}, 7 * time.Second},
		"none":   {EvictRequest{Pause: -1}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEviction()
			s := newStage(60*gib, 40*gib, actor{uid: "a", class: workload.BE, anon: 10, cpu: 10}, actor{uid: "b", class: workload.BE, anon: 10, cpu: 10})
			for i := range s.Containers {
				s.Containers[i].IO.WriteBPS = 100
			}
			e.Step(&s.View, 0, nil)
			var at []time.Time
			for range 30 {
				got, _ := e.Step(s.tick(), 0, []EvictRequest{test.request})
				if got.Evict == nil {
					continue
				}
				at = append(at, s.Now)
				e.Done(got.Evict.UID, EvictCRI, nil, s.Now)
				s.remove(got.Evict.UID)
			}
			if len(at) != 2 || at[1].Sub(at[0]) != test.want {
				t.Fatalf("evicts at %v, want %v between", at, test.want)
			}
			got, _ := e.Step(s.tick(), 0, nil)
			if got.Refuse.Until != at[1].Add(5*time.Minute) || got.Refuse.Why == "" || len(got.Refuse.Pods) != 2 {
				t.Errorf("refuses %+v", got.Refuse)
			}
			for range 300 {
				got, _ = e.Step(s.tick(), 0, nil)
			}
			if !got.Refuse.Until.IsZero() || len(got.Refuse.Pods) > 0 {
				t.Errorf("after the cool-down it refuses %+v", got.Refuse)
			}
			if e.Counts() != (EvictionCounts{Evicted: 2}) {
				t.Errorf("counts %+v", e.Counts())
			}
		})
	}
}

// While an eviction is in progress, and until its memory is measured as free, no other pod is
// evicted for the same need.
func TestEvictionAssumesItsEffect(t *testing.T) {
	t.Parallel()
	e := newEviction()
	s := newStage(60*gib, 40*gib, actor{uid: "a", class: workload.BE, anon: 3000}, actor{uid: "b", class: workload.BE, anon: 2000})
	e.Step(&s.View, 0, nil)
	step := func(need int64) string {
		got, _ := e.Step(s.tick(), 0, shortOf(ResourceMemory, need*mib))
		if got.Evict == nil {
			return ""
		}
		return got.Evict.UID
	}
	if got := step(2500); got != "a" {
		t.Fatalf("takes %q", got)
	}
	for range 10 { // the eviction is requested and not answered
		if got := step(9999); got != "" {
			t.Fatalf("takes %q while a is on its way", got)
		}
	}
	e.Done("a", EvictCRI, nil, s.Now)
	for range 10 {
		if got := step(2500); got != "" {
			t.Fatalf("takes %q though a gives enough", got)
		}
	}
	if got := step(3500); got != "b" {
		t.Fatalf("takes %q, a gives 3000 MiB of 3500", got)
	}
	e.Done("b", EvictCRI, nil, s.Now)
	s.remove("a")
	s.remove("b")
	if got := step(3500); got != "" {
		t.Fatalf("takes %q of nobody", got)
	}
}

func TestEvictionFails(t *testing.T) {
	t.Parallel()
	e := newEviction()
	s := newStage(60*gib, 40*gib, actor{uid: "a", class: workload.BE, anon: 200}, actor{uid: "b", class: workload.BE, anon: 100})
	e.Step(&s.View, 0, nil)
	got, _ := e.Step(s.tick(), 0, shortOf(ResourceMemory, gib))
	if got.Evict == nil || got.Refuse.Until.IsZero() {
		t.Fatalf("got %+v", got)
	}
	e.Done("a", EvictCRI, errors.New("the shim is dead"), s.Now)
	got, decisions := e.Step(s.tick(), 0, shortOf(ResourceMemory, gib))
	if !got.Refuse.Until.IsZero() || len(got.Refuse.Pods) > 0 || got.Evict != nil {
		t.Errorf("one that failed counts: %+v", got)
	}
	if len(decisions) != 1 || decisions[0].Action != "failed" || !strings.Contains(decisions[0].Why, "the shim is dead") {
		t.Errorf("tells %+v", decisions)
	}
	var taken []string
	for range 62 {
		if got, _ = e.Step(s.tick(), 0, shortOf(ResourceMemory, gib)); got.Evict != nil {
			taken = append(taken, got.Evict.UID)
			e.Done(got.Evict.UID, EvictCRI, errors.New("the shim is dead"), s.Now)
		}
	}
	if strings.Join(taken, " ") != "b a" {
		t.Errorf("then takes %v, want another, and the first again a minute later", taken)
	}
	if e.Counts() != (EvictionCounts{Failed: 3}) {
		t.Errorf("counts %+v", e.Counts())
	}
	e.Done("nobody", EvictCRI, nil, s.Now)
}

func TestEvictionWithoutAnswerOrEffect(t *testing.T) {
	t.Parallel()
	e := newEviction()
	s := newStage(60*gib, 40*gib, actor{uid: "a", class: workload.BE, anon: 200})
	e.Step(&s.View, 0, nil)
	e.Step(s.tick(), 0, shortOf(ResourceMemory, 0))
	run := func(seconds int) (actions []string) {
		for range seconds {
			_, decisions := e.Step(s.tick(), 0, nil)
			for _, d := range decisions {
				actions = append(actions, d.Action)
			}
		}
		return actions
	}
	if got := run(120); len(got) != 1 || got[0] != "failed" || e.Counts().Failed != 1 {
		t.Errorf("without an answer: %v", got)
	}
	run(60)
	got, _ := e.Step(s.tick(), 0, shortOf(ResourceMemory, 0))
	if got.Evict == nil {
		t.Fatal("it isn't tried again")
	}
	e.Done("a", EvictCRI, nil, s.Now)
	if got := run(60); len(got) != 1 || got[0] != "still there" {
		t.Errorf("without effect: %v", got)
	}
}

// TestEvictionOfWhatTheKubeletKeeps checks an evicted pod for which the kubelet creates new
// containers that never start. The pod is not evicted again, and its memory counts as freed.
func TestEvictionOfWhatTheKubeletKeeps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request []EvictRequest
		closed  bool
	}{"for memory": {request: shortOf(ResourceMemory, gib)}, "by the switch": {closed: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEviction()
			s := newStage(60*gib, 40*gib, actor{uid: "a", class: workload.BE, anon: 2000, cpu: 500})
			s.Batch = BatchState{Closed: test.closed, Evict: test.closed, Why: "batch is switched off"}
			e.Step(&s.View, 0, nil)
			got, _ := e.Step(s.tick(), 0, test.request)
			if got.Evict == nil {
				t.Fatal("nobody is evicted")
			}
			e.Done("a", EvictCRI, nil, s.Now)
			s.Containers[0].Container.Memory, s.Containers[0].CPU.Usage = observe.ContainerMemory{}, 0
			for range 200 {
				got, decisions := e.Step(s.tick(), 0, test.request)
				if got.Evict != nil || slices.ContainsFunc(decisions, func(d Decision) bool { return d.Action != "nobody" }) {
					t.Fatalf("it is evicted again, or told of: %+v %+v", got.Evict, decisions)
				}
			}
			if got := e.assumed(ResourceMemory); got != 0 {
				t.Errorf("%d bytes count as still to come", got)
			}
		})
	}
}

// TestEvictionRefusesAtOnce checks that new containers are refused during a pod's grace period, in
// which the kubelet would restart each of its containers that has ended.
func TestEvictionRefusesAtOnce(t *testing.T) {
	t.Parallel()
	e := newEviction()
	s := newStage(60*gib, 40*gib, actor{uid: "a", class: workload.BE, anon: 2000})
	e.Step(&s.View, 0, nil)
	request := shortOf(ResourceMemory, gib)
	request[0].Grace = 10 * time.Minute
	for range 300 { // longer than the cool-down, but within the grace period
		got, _ := e.Step(s.tick(), 0, request)
		if len(got.Refuse.Pods) != 1 || got.Refuse.Pods[0].UID != "a" || !got.Refuse.Pods[0].Until.After(s.Now) ||
			!strings.Contains(got.Refuse.Pods[0].Why, "is being evicted: there is too little") {
			t.Fatalf("refuses %+v", got.Refuse)
		}
	}
	e.Done("a", EvictCRI, errors.New("the runtime is away"), s.Now)
	if got, _ := e.Step(s.tick(), 0, nil); len(got.Refuse.Pods) != 0 {
		t.Errorf("it goes on running, and is refused: %+v", got.Refuse)
	}
}

// In preview, or by report, nobody answers the request; each pod is reported once.
func TestEvictionOnlyTells(t *testing.T) {
	t.Parallel()
	cri := DefaultConfig().Eviction
	cri.By = EvictCRI
	for name, e := range map[string]*Eviction{
		"report":  NewEviction(DefaultConfig().Eviction, On, time.Second),
		"preview": NewEviction(cri, Preview, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(60*gib, 40*gib, actor{uid: "a", class: workload.BE, anon: 200}, actor{uid: "b", class: workload.BE, anon: 200})
			e.Step(&s.View, 0, nil)
			told, refused := 0, false
			for range 200 {
				got, decisions := e.Step(s.tick(), 0, shortOf(ResourceMemory, gib))
				told += len(decisions)
				refused = refused || !got.Refuse.Until.IsZero()
			}
			if told != 3 || e.Counts() != (EvictionCounts{Reported: 2}) || refused != (name == "preview") {
				t.Errorf("%d decisions, %+v, refused: %v", told, e.Counts(), refused)
			}
		})
	}
}

func TestEvictionBySatisfaction(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig().Eviction
	cfg.By, cfg.SatisfactionPercent = EvictCRI, 60
	for name, test := range map[string]struct {
		granted, used, request workload.MilliCPU
		after                  int // in seconds; 0 for never
	}{
		"half, all of it used": {granted: 2000, used: 950, request: 2000, after: 61},
		"half, not used":       {granted: 2000, used: 900, request: 2000},
		"over the bound":       {granted: 2500, used: 1250, request: 2000},
		"nothing is granted":   {granted: 0, used: 1000, request: 2000},
		"nothing is requested": {granted: 2000, used: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := NewEviction(cfg, On, time.Second)
			s := newStage(60*gib, 40*gib,
				actor{uid: "a", class: workload.BE, cpu: test.used, request: test.request},
				actor{uid: "b", class: workload.BE, cpu: test.used, request: test.request})
			e.Step(&s.View, test.granted, nil)
			after := 0
			for i := range 100 {
				got, _ := e.Step(s.tick(), test.granted, nil)
				if got.Evict != nil && after == 0 {
					after = i + 1
					if !strings.Contains(got.Evict.Why, "BE has 2 CPUs of the 4 that it requested, under 60%, for 1m0s, and uses 1.9 of them") {
						t.Error(got.Evict.Why)
					}
				}
			}
			if after != test.after {
				t.Errorf("evicts after %d s", after)
			}
		})
	}
}

func TestEvictionBySwitch(t *testing.T) {
	t.Parallel()
	e := newEviction()
	s := newStage(60*gib, 40*gib, actor{uid: "a", class: workload.BE}, actor{uid: "ls", class: workload.LS, allow: workload.EvictPod}, actor{uid: "b", class: workload.BE})
	s.Batch = BatchState{Closed: true, Evict: true, Why: "batch is switched off"}
	e.Step(&s.View, 0, nil)
	for range 2 {
		got, _ := e.Step(s.tick(), 0, nil)
		if got.Evict == nil || got.Evict.Why != "batch is switched off" {
			t.Fatalf("got %+v", got)
		}
		e.Done(got.Evict.UID, EvictCRI, nil, s.Now)
		s.remove(got.Evict.UID)
	}
	if len(s.Pods) != 1 || s.Pods[0].UID != "ls" {
		t.Errorf("left are %+v", s.Pods)
	}
}
