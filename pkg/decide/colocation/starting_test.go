package colocation

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestMemoryToStart(t *testing.T) {
	t.Parallel()
	granted := &workload.Request{Class: workload.BE}
	granted.Batch.MemoryRequest = workload.Some[int64](1 << 30)
	limited := &workload.Request{Class: workload.BE}
	limited.Batch.MemoryLimit = workload.Some[int64](64 << 20)
	for name, c := range map[string]struct {
		kubelets int64
		request  *workload.Request
		want     int64
	}{
		"a grant":                  {2 << 30, granted, 1 << 30},
		"neither grant nor limit":  {0, &workload.Request{Class: workload.BE}, LeastStart},
		"a large limit":            {2 << 30, &workload.Request{Class: workload.BE}, LeastStart},
		"a small limit":            {32 << 20, &workload.Request{Class: workload.BE}, 32 << 20},
		"a small limit by a grant": {2 << 30, limited, 64 << 20},
		"the runtime's unlimited":  {-1, &workload.Request{Class: workload.BE}, LeastStart},
	} {
		if got := MemoryToStart(c.kubelets, c.request); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

func TestReservations(t *testing.T) {
	t.Parallel()
	job := running("job/a", "besteffort", workload.BE)
	var v NodeView
	v.SetInventory(inventory(job))
	there := func(string) bool { return true }
	var r Reservations
	check := func(what string, now time.Time, want int64) {
		t.Helper()
		owed, by := r.Owed(now, &v, there)
		if owed != want || int64(by[job.Above]) != want || int64(by[job.PodPath]) != want {
			t.Errorf("%s: %d bytes are owed, %v, want %d", what, owed, by, want)
		}
	}
	check("nothing reserved", start, 0)
	r.Started(start, "job/a") // nothing was reserved for it
	check("nothing reserved", start, 0)
	r.Reserve(start, "job/a", job.Above, job.PodPath, 1000)
	if r.Admitted != 1000 {
		t.Errorf("admitted %d bytes, want 1000", r.Admitted)
	}
	check("created", start, 1000)
	v.Container("job/a").Container.Memory.Current = 300
	check("holds a part", start, 700)
	r.Started(start.Add(CreationTime), "job/a")
	check("started late", start.Add(CreationTime+startTime), 700)
	v.Container("job/a").Container.Memory.Current = 1500
	check("holds more", start.Add(CreationTime+startTime), 0)
	v.Container("job/a").Container.Memory.Current = 0
	check("after its time", start.Add(CreationTime+startTime+1), 0)
	check("once forgotten", start, 0)
	r.Reserve(start, "job/a", job.Above, job.PodPath, 1000)
	there = func(string) bool { return false }
	check("a container that is gone", start, 0)
}

func TestRefuseMemory(t *testing.T) {
	t.Parallel()
	if err := RefuseMemory(1<<30, 1<<30, 4<<30); err != nil {
		t.Errorf("room for exactly what it needs: %v", err)
	}
	if err := RefuseMemory(1<<30, -1, 4<<30); err == nil || !strings.Contains(err.Error(), "needs 1.0 GiB of memory: batch work may hold 4.0 GiB") || !strings.Contains(err.Error(), "0 MiB of that") {
		t.Errorf("without room: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	until := start.Add(time.Minute)
	for name, c := range map[string]struct {
		refusals Refusals
		now      time.Time
		want     Refusal
		text     string // text of the error
	}{
		"none":                   {Refusals{}, start, Refusal{}, ""},
		"batch goes without new": {Refusals{Batch: control.BatchState{Squeeze: true}}, start, Refusal{}, ""},
		"switched off":           {Refusals{Switch: control.Switch{To: control.SwitchOff}, Rule: "a rule"}, start, Refusal{NewBatch: true, Why: "batch is switched off (sluice batch on ends it)"}, "no batch work starts on this node now: batch is switched off"},
		"closed":                 {Refusals{Batch: control.BatchState{Closed: true, Why: "the window"}, Rule: "a rule"}, start, Refusal{NewBatch: true, Why: "the window"}, "now: the window"},
		"a rule":                 {Refusals{Rule: "a rule", Eviction: control.Refusal{Until: until}}, start, Refusal{NewBatch: true, Why: "a rule"}, "now: a rule"},
		"after an eviction":      {Refusals{Eviction: control.Refusal{Until: until, Why: "memory"}}, start, Refusal{NewBatch: true, Why: "memory", Until: until}, "until " + until.Local().Format(time.TimeOnly) + ": memory"},
		"long after an eviction": {Refusals{Eviction: control.Refusal{Until: until, Why: "memory"}}, until, Refusal{}, ""},
	} {
		got := c.refusals.NewBatch(c.now)
		if err := got.Err(); got != c.want || (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	evicted := []control.RefusedPod{{UID: "job", Until: until, Why: "it was evicted"}}
	if err := RefusePod(evicted, "job", start); err == nil || !strings.Contains(err.Error(), "it was evicted") {
		t.Errorf("a pod that was evicted: %v", err)
	}
	if err := RefusePod(evicted, "job", until); err != nil {
		t.Errorf("a pod that was evicted long ago: %v", err)
	}
	if err := RefusePod(evicted, "other", start); err != nil {
		t.Errorf("another pod: %v", err)
	}
}
