package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// byKubernetes is one whose evictions the API server carries out.
func byKubernetes(change func(*EvictionConfig)) *Eviction {
	cfg := DefaultConfig().Eviction
	cfg.By = EvictKubernetes
	if change != nil {
		change(&cfg)
	}
	return NewEviction(cfg, On, time.Second)
}

// batch makes BE pods of 200 MiB, named a, b, c, ...
func batch(n int) (all []actor) {
	for i := range n {
		all = append(all, actor{uid: string(rune('a' + i)), class: workload.BE, anon: 200})
	}
	return all
}

func critical() []EvictRequest {
	return []EvictRequest{{Resource: ResourceMemory, Why: "memory is critical", Need: gib, Pause: 2 * time.Second, Urgent: true}}
}

func refused(why string) error { return fmt.Errorf("%w: %s", evictorder.ErrRefused, why) }

// steps runs for that many seconds, and lists whom it evicts, as "second:uid/by". Each eviction
// ends at once as answer says; one that it does not answer stays under way.
func steps(e *Eviction, s *stage, seconds int, requests []EvictRequest, answer func(v *Victim) (err error, answers bool)) (evicted []string) {
	for i := range seconds {
		got, _ := e.Step(s.tick(), 0, requests)
		if v := got.Evict; v != nil {
			evicted = append(evicted, fmt.Sprintf("%d:%s/%s", i+1, v.UID, v.By))
			if err, answers := answer(v); answers {
				e.Done(v.UID, v.By, err, s.Now)
			}
		}
	}
	return evicted
}

// A disruption budget lets the next pod go at the next step, without the pause between two
// evictions, and the refused one a minute later.
func TestEvictionRefusedByBudget(t *testing.T) {
	t.Parallel()
	e, s := byKubernetes(nil), newStage(60*gib, 40*gib, batch(3)...)
	e.Step(&s.View, 0, nil)
	got := steps(e, s, 70, shortOf(ResourceMemory, gib), func(v *Victim) (error, bool) { return refused("budget web"), v.UID != "c" })
	if want := []string{"1:a/kubernetes", "2:b/kubernetes", "3:c/kubernetes"}; !slices.Equal(got, want) {
		t.Errorf("evicts %v, want %v", got, want)
	}
	if e.Counts() != (EvictionCounts{Refused: 2}) {
		t.Errorf("counts %+v", e.Counts())
	}
	e.Done("c", EvictKubernetes, refused("budget web"), s.Now)
	_, decisions := e.Step(s.tick(), 0, nil)
	if len(decisions) != 1 || decisions[0].Action != "refused" || !strings.Contains(decisions[0].Why, "budget web") {
		t.Errorf("tells %+v", decisions)
	}
}

// While nobody carries orders out, no pod is to blame: each is tried again when somebody is
// there, and none for ten seconds.
func TestEvictionWithoutSluiceKube(t *testing.T) {
	t.Parallel()
	e, s := byKubernetes(nil), newStage(60*gib, 40*gib, batch(2)...)
	e.Step(&s.View, 0, nil)
	away := true
	got := steps(e, s, 30, shortOf(ResourceMemory, gib), func(*Victim) (error, bool) {
		defer func() { away = false }()
		if away {
			return fmt.Errorf("pod: %w", evictorder.ErrNobody), true
		}
		return nil, false
	})
	if want := []string{"1:a/kubernetes", "11:a/kubernetes"}; !slices.Equal(got, want) {
		t.Errorf("evicts %v, want %v", got, want)
	}
}

func TestEvictionLastResort(t *testing.T) {
	t.Parallel()
	silent := func(*Victim) (error, bool) { return nil, false }
	for name, test := range map[string]struct {
		noCRI    bool
		requests []EvictRequest
		answer   func(v *Victim) (error, bool)
		want     []string
	}{
		"no answer within 3 s: the same pod": {requests: critical(), answer: silent, want: []string{"1:a/kubernetes", "4:a/cri"}},
		"accepted, and no effect within 3 s": {requests: critical(), answer: func(v *Victim) (error, bool) { return nil, v.By == EvictKubernetes },
			want: []string{"1:a/kubernetes", "3:b/kubernetes", "4:a/cri"}},
		"nobody is connected: at once": {requests: critical(), answer: func(v *Victim) (error, bool) { return evictorder.ErrNobody, v.By == EvictKubernetes },
			want: []string{"1:a/kubernetes", "2:a/cri"}},
		"all are refused: at once": {requests: critical(), answer: func(v *Victim) (error, bool) { return refused("budget"), v.By == EvictKubernetes },
			want: []string{"1:a/kubernetes", "2:b/kubernetes", "3:a/cri"}},
		"without the runtime's socket": {noCRI: true, requests: critical(), answer: silent, want: []string{"1:a/kubernetes"}},
		"not at the critical mark":     {requests: shortOf(ResourceMemory, gib), answer: silent, want: []string{"1:a/kubernetes"}},
		"the runtime fails": {requests: critical(), answer: func(v *Victim) (error, bool) { return errors.New("the shim is dead"), v.By == EvictCRI },
			want: []string{"1:a/kubernetes", "4:a/cri", "6:b/cri"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, s := byKubernetes(nil), newStage(60*gib, 40*gib, batch(2)...)
			s.HasCRI = !test.noCRI
			e.Step(&s.View, 0, nil)
			if got := steps(e, s, 10, test.requests, test.answer); !slices.Equal(got, test.want) {
				t.Errorf("evicts %v, want %v", got, test.want)
			}
		})
	}
}

// An eviction that has helped begins the wait for the last resort anew.
func TestEvictionThatHelpsNeedsNoLastResort(t *testing.T) {
	t.Parallel()
	e, s := byKubernetes(nil), newStage(60*gib, 40*gib, batch(6)...)
	s.HasCRI = true
	e.Step(&s.View, 0, nil)
	for i := range 12 {
		got, _ := e.Step(s.tick(), 0, critical())
		if got.Evict == nil {
			continue
		}
		if got.Evict.By != EvictKubernetes {
			t.Fatalf("second %d: %+v", i, got.Evict)
		}
		e.Done(got.Evict.UID, EvictKubernetes, nil, s.Now)
		s.remove(got.Evict.UID)
	}
	if e.Counts().Evicted != 6 {
		t.Errorf("counts %+v", e.Counts())
	}
}

// A jump of the clock never hurries the last resort.
func TestEvictionLastResortAndTheClock(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		e, s := byKubernetes(nil), newStage(60*gib, 40*gib, batch(1)...)
		s.HasCRI = true
		e.Step(&s.View, 0, nil)
		steps(e, s, 1, critical(), func(*Victim) (error, bool) { return nil, false })
		s.Now = s.Now.Add(jump)
		got := steps(e, s, 1, critical(), func(*Victim) (error, bool) { return nil, false })
		if len(got) > 0 {
			t.Errorf("after a jump of %v it evicts %v", jump, got)
		}
	}
}

// The cool-down begins with the decision, before anybody has carried it out, and ends with a
// refusal.
func TestEvictionCoolDownComesFirst(t *testing.T) {
	t.Parallel()
	e, s := byKubernetes(nil), newStage(60*gib, 40*gib, batch(1)...)
	e.Step(&s.View, 0, nil)
	got, _ := e.Step(s.tick(), 0, shortOf(ResourceMemory, gib))
	if got.Evict == nil || got.Refuse.Until != s.Now.Add(5*time.Minute) || got.Evict.CoolDown != got.Refuse.Until {
		t.Fatalf("%+v", got)
	}
	e.Done("a", EvictKubernetes, refused("budget"), s.Now)
	if got, _ = e.Step(s.tick(), 0, nil); !got.Refuse.Until.IsZero() {
		t.Errorf("refused, and it cools down: %+v", got.Refuse)
	}
}

func TestEvictionBudget(t *testing.T) {
	t.Parallel()
	owners := map[string]evictorder.Pod{"a": {Owner: "Job ns/x"}, "b": {Owner: "Job ns/x"}, "c": {Owner: "Job ns/y"}}
	for name, test := range map[string]struct {
		change   func(*EvictionConfig)
		requests []EvictRequest
		closed   bool // the operator evicts all
		want     string
	}{
		"no bound":                    {func(c *EvictionConfig) { c.MaxPerHour, c.MaxPerOwnerPerHour = 0, 0 }, shortOf(ResourceMemory, 0), false, "a b c d"},
		"two for the node":            {func(c *EvictionConfig) { c.MaxPerHour = 2 }, shortOf(ResourceMemory, 0), false, "a b"},
		"one of an owner":             {func(c *EvictionConfig) { c.MaxPerOwnerPerHour = 1 }, shortOf(ResourceMemory, 0), false, "a c d"},
		"not at the critical mark":    {func(c *EvictionConfig) { c.MaxPerHour, c.MaxPerOwnerPerHour = 1, 1 }, []EvictRequest{{Resource: ResourceMemory, Why: "critical", Urgent: true}}, false, "a b c d"},
		"not for what operators want": {func(c *EvictionConfig) { c.MaxPerHour, c.MaxPerOwnerPerHour = 1, 1 }, nil, true, "a b c d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, s := byKubernetes(test.change), newStage(60*gib, 40*gib, batch(4)...)
			s.APIPods = owners
			s.Batch = BatchState{Closed: test.closed, Evict: test.closed, Why: "batch is switched off"}
			e.Step(&s.View, 0, nil)
			var got []string
			run := func(seconds int) {
				steps(e, s, seconds, test.requests, func(v *Victim) (error, bool) {
					got = append(got, v.UID)
					s.remove(v.UID)
					return nil, true
				})
			}
			run(60)
			if strings.Join(got, " ") != test.want {
				t.Fatalf("evicts %v within a minute, want %s", got, test.want)
			}
			run(3600)
			if slices.Sort(got); strings.Join(got, " ") != "a b c d" {
				t.Errorf("evicts %v within an hour more, want all", got)
			}
		})
	}
}

// The API's priorities order pods, and spare those that the cluster cannot do without.
func TestEvictionByPriority(t *testing.T) {
	t.Parallel()
	e, s := byKubernetes(nil), newStage(60*gib, 40*gib, batch(3)...)
	s.APIPods = map[string]evictorder.Pod{"a": {Priority: evictorder.CriticalPriority}, "b": {Priority: 10}, "c": {Priority: -10}}
	e.Step(&s.View, 0, nil)
	got := steps(e, s, 60, shortOf(ResourceMemory, 0), func(v *Victim) (error, bool) { s.remove(v.UID); return nil, true })
	if want := []string{"1:c/kubernetes", "5:b/kubernetes"}; !slices.Equal(got, want) {
		t.Errorf("evicts %v, want %v", got, want)
	}
}

// Of pods that use about as much, the youngest goes: it loses the least work.
func TestEvictionOfTheYoungest(t *testing.T) {
	t.Parallel()
	s := newStage(60*gib, 40*gib, actor{uid: "old", class: workload.BE, anon: 200}, actor{uid: "young", class: workload.BE, anon: 150}, actor{uid: "small", class: workload.BE, anon: 20})
	for i, age := range []time.Duration{time.Hour, time.Minute, time.Second} {
		s.Containers[i].Created = s.Now.Add(-age)
	}
	e := byKubernetes(nil)
	e.Step(&s.View, 0, nil)
	got := steps(e, s, 1, shortOf(ResourceMemory, 0), func(*Victim) (error, bool) { return nil, true })
	if want := []string{"1:young/kubernetes"}; !slices.Equal(got, want) {
		t.Errorf("evicts %v, want %v", got, want)
	}
}
