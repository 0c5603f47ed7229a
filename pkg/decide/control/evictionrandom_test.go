package control

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// No pod is evicted that may not be, twice at the same time, or because the clock jumps.
func TestEvictionProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := newEviction()
		s := newStage(60*gib, 40*gib)
		for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
			s.add(actor{uid: string(rune('a' + i)), class: rapid.SampledFrom([]workload.Class{workload.BE, workload.LS, workload.LSE}).Draw(t, "class"),
				never: rapid.Bool().Draw(t, "never"), allow: rapid.SampledFrom([]workload.Actions{0, workload.EvictPod}).Draw(t, "allow"),
				anon: rapid.Int64Range(0, 1000).Draw(t, "anon")})
		}
		under := map[string]bool{}
		var last time.Time
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s.tick()
			jump := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 0, -10, 10}).Draw(t, "jump")) * time.Second
			s.Now = s.Now.Add(jump)
			got, _ := e.Step(&s.View, 0, shortOf(ResourceMemory, rapid.Int64Range(0, 3000).Draw(t, "need")*mib))
			if v := got.Evict; v != nil {
				i := 0
				for s.Pods[i].UID != v.UID {
					i++
				}
				p := &s.Pods[i]
				switch {
				case jump != 0 || p.Evict.Never || p.Class != workload.BE && p.Allow&workload.EvictPod == 0:
					t.Fatalf("evicts %+v, jump %v", p, jump)
				case under[v.UID]:
					t.Fatalf("evicts %s twice", v.UID)
				case !last.IsZero() && s.Now.After(last) && s.Now.Sub(last) < 4*time.Second:
					t.Fatalf("%v after the last", s.Now.Sub(last))
				}
				under[v.UID], last = true, s.Now
			}
			for _, uid := range slices.Sorted(maps.Keys(under)) {
				switch rapid.IntRange(0, 3).Draw(t, "answer") {
				case 0:
					e.Done(uid, EvictCRI, nil, s.Now)
					s.remove(uid)
					delete(under, uid)
				case 1:
					e.Done(uid, EvictCRI, errors.New("no"), s.Now)
					delete(under, uid)
				}
			}
		}
	})
}

func TestEvictionAllocs(t *testing.T) {
	e := newEviction()
	noAllocs(t, crowd(), func(v *View) []Decision { _, d := e.Step(v, 5000, nil); return d })
}

func BenchmarkEviction(b *testing.B) {
	e, s := newEviction(), crowd()
	b.ReportAllocs()
	for b.Loop() {
		e.Step(s.tick(), 5000, nil)
	}
}
