package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

func TestEvictionOfStuckPods(t *testing.T) {
	t.Parallel()
	often := []int{0, 10, 20, 30, 40, 50, 60, 70, 80, 90}
	job := map[string]evictorder.Pod{"stuck": {UID: "stuck", Owner: "Job ns/j"}}
	owned := func(by string) map[string]evictorder.Pod {
		return map[string]evictorder.Pod{"stuck": {UID: "stuck", Owner: by}}
	}
	for name, test := range map[string]struct {
		pod     StuckPod
		refused []int // seconds at which the node refuses to start it
		api     map[string]evictorder.Pod
		by      EvictBy
		runs    workload.Class // class of a container of it that runs; unset if none does
		want    []string
	}{
		"batch work after 30 s":                   {refused: often, api: job, want: []string{"30:stuck/kubernetes"}},
		"batch work that is refused once":         {refused: []int{0}, api: job},
		"batch work that is refused once more":    {refused: []int{0, 15}, api: job, want: []string{"30:stuck/kubernetes"}},
		"batch work that is refused for a moment": {refused: []int{0, 5, 14}, api: job},
		"batch work of which a container runs":    {refused: often, api: job, runs: workload.BE},
		"a pin after 60 s":                        {pod: StuckPod{Pinned: true}, refused: often, api: job, want: []string{"60:stuck/kubernetes"}},
		"a pin that is refused for half of that":  {pod: StuckPod{Pinned: true}, refused: []int{0, 30}, api: job, want: []string{"60:stuck/kubernetes"}},
		"a pin that is refused for less":          {pod: StuckPod{Pinned: true}, refused: []int{0, 29}, api: job},
		"a pin of which a container runs":         {pod: StuckPod{Pinned: true}, refused: often, api: job, runs: workload.LSR},
		"a pod that must stay":                    {pod: StuckPod{Never: true}, refused: often, api: job},
		"a pod of a DaemonSet":                    {refused: often, api: owned("DaemonSet ns/d")},
		"a pod of something else":                 {refused: often, api: owned("DaemonSetLike ns/d"), want: []string{"30:stuck/kubernetes"}},
		"a pod without an owner":                  {refused: often, api: owned(""), want: []string{"30:stuck/kubernetes"}},
		"a pod of which the API has told nothing": {refused: often},
		"a pod of a critical priority":            {refused: often, api: map[string]evictorder.Pod{"stuck": {UID: "stuck", Priority: evictorder.CriticalPriority}}},
		"not through the runtime":                 {refused: often, api: job, by: EvictCRI},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := byKubernetes(func(c *EvictionConfig) {
				if test.by != "" {
					c.By = test.by
				}
			})
			s := newStage(60*gib, 40*gib)
			if test.runs != workload.Unclassified {
				s.add(actor{uid: "stuck", class: test.runs})
			}
			e.Step(&s.View, 0, nil)
			s.APIPods = test.api
			p := test.pod
			p.UID, p.Ref, p.Why, p.Since = "stuck", "ns/stuck", "no room", s.Now
			began := s.Now
			var got []string
			for i := range 100 {
				if slices.Contains(test.refused, i) {
					p.Last = began.Add(time.Duration(i) * time.Second)
				}
				s.Stuck = []StuckPod{p}
				for _, v := range steps(e, s, 1, nil, func(*Victim) (error, bool) { return nil, true }) {
					got = append(got, strings.Replace(v, "1:", fmt.Sprintf("%d:", i+1), 1))
				}
			}
			if len(got) > 1 {
				got = got[:1] // the kubelet goes on trying, which has a test of its own
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("evicts %v, want %v", got, test.want)
			}
			if got, _ := e.Step(s.tick(), 0, nil); !got.Refuse.Until.IsZero() || len(got.Refuse.Pods) > 0 {
				t.Errorf("a pod that never ran begins a cool-down: %+v", got.Refuse)
			}
		})
	}
}

// A stuck pod whose eviction was accepted is left alone while it ends, and evicted again if the
// kubelet still tries to start it a minute later.
func TestEvictionOfStuckPodsIsNotRepeated(t *testing.T) {
	t.Parallel()
	e, s := byKubernetes(nil), newStage(60*gib, 40*gib)
	s.APIPods = map[string]evictorder.Pod{"p": {UID: "p"}}
	e.Step(&s.View, 0, nil)
	began := s.Now
	run := func(seconds int, tries bool) (n int) {
		last := s.Now
		for range seconds {
			if tries {
				last = s.Now
			}
			s.Stuck = []StuckPod{{UID: "p", Ref: "ns/p", Why: "no room", Since: began, Last: last}}
			n += len(steps(e, s, 1, nil, func(*Victim) (error, bool) { return nil, true }))
		}
		return n
	}
	if n := run(31, true); n != 1 {
		t.Fatalf("%d evictions", n)
	}
	if n := run(100, false); n != 0 {
		t.Errorf("%d evictions of a pod that the kubelet is ending", n)
	}
	if n := run(30, true); n != 1 {
		t.Errorf("%d evictions of a pod that the kubelet still tries to start", n)
	}
}

// If a bound per hour keeps a stuck pod on the node, one decision names the bound and why the pod
// cannot start. The pod is evicted when the hour is over.
func TestEvictionOfStuckPodsSaysWhatKeepsThem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node, owner int
		want        string
	}{
		"the node's bound":  {node: 1, want: "maxPerHour"},
		"the owner's bound": {owner: 1, want: "control.eviction.maxPerOwnerPerHour is 1, and as many pods of Job ns/j were evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := byKubernetes(func(c *EvictionConfig) { c.MaxPerHour, c.MaxPerOwnerPerHour = test.node, test.owner })
			s := newStage(60*gib, 40*gib)
			s.APIPods = map[string]evictorder.Pod{"a": {UID: "a", Owner: "Job ns/j"}, "b": {UID: "b", Owner: "Job ns/j"}}
			began := s.Now
			var evicted []string
			told := map[string]int{}
			for range 3700 {
				s.tick()
				s.Stuck = nil
				for _, uid := range []string{"a", "b"} {
					if !slices.Contains(evicted, uid) {
						s.Stuck = append(s.Stuck, StuckPod{UID: uid, Ref: "ns/" + uid, Why: "no room", Since: began, Last: s.Now})
					}
				}
				got, decisions := e.Step(&s.View, 0, nil)
				for _, d := range decisions {
					if d.Action != "stays" {
						continue
					}
					told[d.Object]++
					if !strings.Contains(d.Why, test.want) || !strings.Contains(d.Why, "no room") || len(evicted) != 1 {
						t.Errorf("after %v: %s", evicted, d.Why)
					}
				}
				if got.Evict != nil {
					evicted = append(evicted, got.Evict.UID)
					e.Done(got.Evict.UID, got.Evict.By, nil, s.Now)
				}
			}
			if len(told) != 1 || told["ns/b"] != 1 || !slices.Equal(evicted, []string{"a", "b"}) {
				t.Errorf("told of %v, and evicted %v", told, evicted)
			}
		})
	}
}

// Where each evicted pod has a successor on the same node that is refused as well, the bounds per
// hour hold for the node and for each owner, whatever the API server answers, and when.
func TestEvictionOfStuckPodsIsBounded(t *testing.T) {
	t.Parallel()
	const most, mostOfOwner = 7, 3
	rapid.Check(t, func(t *rapid.T) {
		e := byKubernetes(func(c *EvictionConfig) { c.MaxPerHour, c.MaxPerOwnerPerHour = most, mostOfOwner })
		s := newStage(60*gib, 40*gib)
		s.APIPods = map[string]evictorder.Pod{}
		owners := []string{"", "DaemonSet ns/d", "Job ns/a", "Job ns/b", "Job ns/c"}
		pods := 0
		start := func(owner string) {
			pods++
			uid := fmt.Sprint("pod", pods)
			s.APIPods[uid] = evictorder.Pod{UID: uid, Owner: owner}
			s.Stuck = append(s.Stuck, StuckPod{UID: uid, Ref: "ns/" + uid, Since: s.Now})
		}
		for _, owner := range rapid.SliceOfN(rapid.SampledFrom(owners), 1, 8).Draw(t, "owners") {
			start(owner)
		}
		slow := time.Duration(rapid.IntRange(0, 100).Draw(t, "slow")) * time.Second // until an answer comes
		refuses := rapid.SampledFrom([]int{0, 2, 5}).Draw(t, "refuses")             // every so many answers, one is a refusal; none if 0
		answers := 0
		type order struct {
			uid string
			at  time.Time
		}
		var orders []order
		var evicted []pastEviction
		e.Step(&s.View, 0, nil)
		for range 5000 {
			for i := range s.Stuck {
				s.Stuck[i].Last = s.Now
			}
			if got, _ := e.Step(s.tick(), 0, nil); got.Evict != nil {
				orders = append(orders, order{got.Evict.UID, s.Now})
			}
			for ; len(orders) > 0 && s.Now.Sub(orders[0].at) >= slow; orders = orders[1:] {
				uid := orders[0].uid
				if answers++; refuses > 0 && answers%refuses == 0 {
					e.Done(uid, EvictKubernetes, refused("budget"), s.Now)
					continue
				}
				e.Done(uid, EvictKubernetes, nil, s.Now)
				owner := s.APIPods[uid].Owner
				evicted = append(evicted, pastEviction{s.Now, owner})
				checkHour(t, evicted, s.Now, most, mostOfOwner)
				s.Stuck = slices.DeleteFunc(s.Stuck, func(p StuckPod) bool { return p.UID == uid })
				delete(s.APIPods, uid)
				start(owner)
			}
		}
	})
}

// checkHour fails if more pods were evicted in the last hour than the bounds allow, or one that a
// DaemonSet owns.
func checkHour(t *rapid.T, evicted []pastEviction, now time.Time, most, mostOfOwner int) {
	all, of := 0, map[string]int{}
	for _, p := range evicted {
		if now.Sub(p.at) < time.Hour {
			all++
			of[p.owner]++
		}
	}
	for owner, n := range of {
		if owner != "" && n > mostOfOwner || strings.HasPrefix(owner, "DaemonSet") {
			t.Fatalf("%d pods of %q are evicted within an hour, at most %d may be", n, owner, mostOfOwner)
		}
	}
	if all > most {
		t.Fatalf("%d pods are evicted within an hour, at most %d may be", all, most)
	}
}
