package agent

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/originals"
	"github.com/sluice-dev/sluice/pkg/plan"
)

// shows is a kernel in which each setting has one value.
type shows struct {
	Kernel
	value plan.Value
}

func (k shows) Read(string, plan.Knob) (plan.Value, error) { return k.value, nil }

func (shows) Same(_ plan.Knob, want, have plan.Value) bool { return want == have }

// What the lifeline has written in Sluice's place counts as Sluice's, so that it can be
// given back; what somebody else has written doesn't.
func TestRecall(t *testing.T) {
	t.Parallel()
	cpus := func(n int) plan.CPUQuota {
		return plan.CPUQuota{Quota: time.Duration(n) * 100 * time.Millisecond, Period: 100 * time.Millisecond}
	}
	box := plan.Object{Path: "/kubepods/besteffort", Name: "besteffort", Level: plan.ClassLevel}
	floor := []plan.Change{{Object: box, Knob: plan.Quota, To: cpus(1)}, {Object: plan.Object{Path: "/other"}, Knob: plan.Quota, To: cpus(1)}}
	for shown, want := range map[plan.CPUQuota]plan.CPUQuota{cpus(1): cpus(1), cpus(3): cpus(2)} {
		book, err := originals.Open("", "boot")
		if err != nil {
			t.Fatal(err)
		}
		book.Keep(box, plan.Quota, unlimited)
		book.Wrote(box.Path, plan.Quota, cpus(2))
		Recall(shows{value: shown}, book, floor)
		if e, _ := book.Entry(box.Path, plan.Quota); e.Wrote != plan.Value(want) || e.Value != plan.Value(unlimited) {
			t.Errorf("shown %s: wrote %v, original %v", shown, e.Wrote, e.Value)
		}
		if _, kept := book.Entry("/other", plan.Quota); kept {
			t.Error("what Sluice never set is in the book")
		}
		Recall(nil, book, floor)
	}
}
