package control

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// crew returns up to 8 BE pods of random tiers, with memory of both kinds.
func crew(t *rapid.T) []actor {
	var pods []actor
	for i := range rapid.IntRange(2, 8).Draw(t, "pods") {
		pods = append(pods, actor{uid: string(rune('a' + i)), class: workload.BE, order: rapid.IntRange(-2, 2).Draw(t, "order"),
			tier: workload.Tier(rapid.IntRange(int(workload.TierFree), int(workload.TierMid)).Draw(t, "tier")),
			anon: rapid.Int64Range(0, 9000).Draw(t, "anon"), cache: rapid.Int64Range(0, 3000).Draw(t, "cache")})
	}
	return pods
}

// No pod is evicted while one of a lower tier holds some of what is short.
func TestEvictionFollowsTiers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pods := crew(t)
		s := newStage(60*gib, 40*gib, pods...)
		e := newEviction()
		e.Step(&s.View, 0, nil)
		got, _ := e.Step(s.tick(), 0, shortOf(ResourceMemory, rapid.Int64Range(1, 30000).Draw(t, "need")*mib))
		if got.Evict == nil {
			for _, a := range pods {
				if a.anon >= 1 {
					t.Fatalf("nobody is evicted of %+v", pods)
				}
			}
			return
		}
		victim := pods[got.Evict.UID[0]-'a']
		for _, a := range pods {
			if a.tier < victim.tier && a.anon >= 1 {
				t.Fatalf("%+v is evicted before %+v", victim, a)
			}
		}
	})
}

// No page cache is taken from a pod while one of a lower tier has page cache to give.
func TestReclaimFollowsTiers(t *testing.T) {
	t.Parallel()
	took := false
	rapid.Check(t, func(t *rapid.T) {
		pods := crew(t)
		s := newStage(0, 0, pods...)
		s.Node.Memory.Available = rapid.Int64Range(1, 40).Draw(t, "available") * gib
		s.Node.Memory.Free = rapid.Int64Range(0, 5).Draw(t, "free") * gib
		m := newMemory()
		m.Step(&s.View)
		got, _ := m.Step(s.tick())
		given := map[string]int64{}
		for _, r := range got.Reclaim {
			given[r.ID] += r.Bytes
		}
		for _, a := range pods {
			if given[a.uid] == 0 {
				continue
			}
			took = true
			for _, lower := range pods {
				// What a container keeps of its cache is below leastCache and a step of 1 MiB.
				if lower.tier < a.tier && lower.cache*mib-given[lower.uid] > leastCache+mib {
					t.Fatalf("%+v gives %s, and %+v only %s", a, MemoryText(given[a.uid]), lower, MemoryText(given[lower.uid]))
				}
			}
		}
	})
	if !took {
		t.Error("nothing was ever taken")
	}
}
