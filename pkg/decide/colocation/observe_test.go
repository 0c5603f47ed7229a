package colocation

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestObserveChanges gives a view samples that tell what has changed, some of which it misses, and another view the
// same samples without telling.
func TestObserveChanges(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	inv := inventory(
		running("web/a", "burstable", workload.LS), running("web/b", "burstable", workload.LS),
		running("job/a", "besteffort", workload.BE), running("low/a", "burstable", workload.BE), running("low/b", "burstable", workload.BE),
	)
	var changes, whole NodeView
	changes.SetInventory(inv)
	whole.SetInventory(inv)
	ids := []string{
		"web/a", "gone/a", "low/a", "web/b", "low/b", "job/a",
		BatchCgroupTarget + "/kubepods/besteffort", AllPodsTarget, PodTarget + "web", PodTarget + "low", PodTarget + "gone",
	}
	s := observe.Snapshot{Now: start}
	for _, id := range ids {
		s.Containers = append(s.Containers, observe.Container{ID: id})
	}
	s.Changes = observe.Changes{Number: 1, Partial: true, Containers: []int{0}} // since a sample that no view got
	changes.Observe(&s, 0)
	whole.Observe(&s, 0)
	some := 0 // samples of which the view took only what has changed
	for range 5000 {
		s.Changes.Number++
		s.Changes.Partial, s.Changes.Containers = true, s.Changes.Containers[:0]
		if r.IntN(50) == 0 { // another list
			s.Changes.Partial, s.Containers = false, make([]observe.Container, len(ids))
			r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			for i, id := range ids {
				s.Containers[i].ID = id
			}
		}
		for i := range s.Containers {
			if s.Changes.Partial && r.IntN(4) > 0 {
				continue
			}
			c := uses(s.Containers[i].ID, workload.MilliCPU(r.IntN(100)), r.Int64N(100))
			c.CPU.Throttled, c.CPU.Periods = r.Int64N(10), 10
			if r.IntN(5) > 0 {
				c.CPU.StatAt = start
			}
			s.Containers[i], s.Changes.Containers = c, append(s.Changes.Containers, i)
		}
		if r.IntN(20) == 0 {
			continue
		}
		if r.IntN(100) == 0 {
			changes.SetInventory(inv)
			whole.SetInventory(inv)
		}
		if changes.number == s.Changes.Number-1 && s.Changes.Partial {
			some++
		}
		untold := s
		untold.Changes = observe.Changes{}
		changes.Observe(&s, 0)
		whole.Observe(&untold, 0)
		if !reflect.DeepEqual(changes.View, whole.View) || !reflect.DeepEqual(changes.Held, whole.Held) {
			t.Fatalf("after sample %d:\n%+v\nwant\n%+v", s.Changes.Number, changes.View, whole.View)
		}
	}
	if some < 1000 {
		t.Errorf("%d samples told what has changed, which is too few for this test", some)
	}
}
