package workload

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestMemoryRequest(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	const guaranteed, burstable, bestEffort = "/kubepods/pod1", "/kubepods/burstable/pod1", "/kubepods/besteffort/pod1"
	for name, c := range map[string]struct {
		parent      string
		score       int
		limit, node int64
		want        int64
		wantExact   bool
	}{
		"guaranteed":                    {parent: guaranteed, score: -997, limit: 3 * gib, node: 64 * gib, want: 3 * gib, wantExact: true},
		"guaranteed, limit not told":    {parent: guaranteed, score: -997, node: 64 * gib},
		"guaranteed, unlimited":         {parent: guaranteed, score: -997, limit: -1, node: 64 * gib},
		"best effort":                   {parent: bestEffort, score: 1000, limit: gib, node: 64 * gib, wantExact: true},
		"burstable, a tenth":            {parent: burstable, score: 900, node: 1000 * gib, want: 100 * gib},
		"burstable, rounded up":         {parent: burstable, score: 998, node: 1001, want: 3},
		"burstable, at most its limit":  {parent: burstable, score: 900, limit: 7 * gib, node: 1000 * gib, want: 7 * gib},
		"burstable, less than a step":   {parent: burstable, score: 999, node: 64 * gib},
		"burstable, nearly everything":  {parent: burstable, score: 3, node: 1000, want: 997},
		"burstable, critical":           {parent: burstable, score: -997, node: 64 * gib},
		"burstable, node size unknown":  {parent: burstable, score: 500},
		"burstable, the largest node":   {parent: burstable, score: 3, node: math.MaxInt64, want: math.MaxInt64/1000*997 + (807*997+999)/1000},
		"outside of the kubelet's tree": {parent: "/system.slice/pod1", score: 500, limit: gib, node: 64 * gib},
	} {
		pod := &Pod{CgroupParent: c.parent}
		container := &Container{OOMScoreAdj: c.score, Resources: Resources{MemoryLimit: c.limit}}
		got, exact := MemoryRequest(pod, container, c.node)
		if got != c.want || exact != c.wantExact {
			t.Errorf("%s: got %d, %v, want %d, %v", name, got, exact, c.want, c.wantExact)
		}
	}
}

// The inferred request is at most the original, and less than one step below it.
func TestMemoryRequestInvertsTheKubelet(t *testing.T) {
	t.Parallel()
	pod := &Pod{CgroupParent: "/kubepods/burstable/pod1"}
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 1<<45).Draw(t, "capacity")
		request := rapid.Int64Range(0, capacity).Draw(t, "request")
		score := min(max(1000-1000*request/capacity, 3), 999)
		got, _ := MemoryRequest(pod, &Container{OOMScoreAdj: int(score)}, capacity)
		if got > request {
			t.Fatalf("capacity %d, request %d: inferred %d, which is more", capacity, request, got)
		}
		if score > 3 && score < 999 && request-got > capacity/1000+1 {
			t.Fatalf("capacity %d, request %d: inferred %d, which is more than a step less", capacity, request, got)
		}
	})
}
