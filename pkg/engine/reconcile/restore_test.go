package reconcile

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// shows is a kernel in which every setting has the same value.
type shows struct {
	Kernel
	value knobs.Value
}

func (k shows) Read(string, knobs.Knob) (knobs.Value, error) { return k.value, nil }

func (shows) Same(_ knobs.Knob, want, have knobs.Value) bool { return want == have }

// What the failsafe has written counts as Sluice's, so that it can be restored; what other
// programs have written doesn't.
func TestAfterFailsafe(t *testing.T) {
	t.Parallel()
	cpus := func(n int) knobs.CPUQuota {
		return knobs.CPUQuota{Quota: time.Duration(n) * 100 * time.Millisecond, Period: 100 * time.Millisecond}
	}
	unlimited := knobs.CPUQuota{Quota: -1}
	box := knobs.Object{Path: "/kubepods/besteffort", Name: "besteffort", Level: knobs.ClassLevel}
	floor := []knobs.Change{{Object: box, Knob: knobs.Quota, To: cpus(1)}, {Object: knobs.Object{Path: "/other"}, Knob: knobs.Quota, To: cpus(1)}}
	for shown, want := range map[knobs.CPUQuota]knobs.CPUQuota{cpus(1): cpus(1), cpus(3): cpus(2)} {
		j, err := journal.Open("", "boot")
		if err != nil {
			t.Fatal(err)
		}
		j.Record(box, knobs.Quota, unlimited)
		j.RecordWrite(box.Path, knobs.Quota, cpus(2))
		AfterFailsafe(shows{value: shown}, j, floor)
		if e, _ := j.Entry(box.Path, knobs.Quota); e.Wrote != knobs.Value(want) || e.Value != knobs.Value(unlimited) {
			t.Errorf("shown %s: wrote %v, original %v", shown, e.Wrote, e.Value)
		}
		if _, kept := j.Entry("/other", knobs.Quota); kept {
			t.Error("what Sluice never set is in the book")
		}
	}
}
