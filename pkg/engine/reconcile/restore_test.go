package reconcile

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
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

// Where Sluice was killed between the journal's record of a write and the write, the kernel has the
// value of the write before, or the original, or a part of a quota. All count as Sluice's; what
// another program has written doesn't.
func TestAfterCrash(t *testing.T) {
	t.Parallel()
	quota := func(milliseconds, period int) knobs.CPUQuota {
		return knobs.CPUQuota{Quota: time.Duration(milliseconds) * time.Millisecond, Period: time.Duration(period) * time.Millisecond}
	}
	half := knobs.CPUQuota{Quota: -1, Period: 200 * time.Millisecond}
	pod := knobs.Object{Path: "/pod", Name: "ns/pod", Level: knobs.PodLevel}
	original, before, wrote := quota(100, 100), quota(20, 100), quota(10, 200)
	for shown, ours := range map[knobs.CPUQuota]bool{original: true, before: true, wrote: true, half: true, quota(50, 100): false} {
		j, err := journal.Open("", "boot")
		if err != nil {
			t.Fatal(err)
		}
		j.Record(pod, knobs.Quota, original)
		j.RecordWrite(pod.Path, knobs.Quota, before)
		j.RecordWrite(pod.Path, knobs.Quota, wrote)
		kernel := &memory{values: map[Key]knobs.Value{{pod.Path, knobs.Quota}: shown}}
		AfterCrash(kernel, j)
		if e, _ := j.Entry(pod.Path, knobs.Quota); (e.Wrote == knobs.Value(shown)) != ours || e.Value != knobs.Value(original) {
			t.Errorf("the kernel has %s: the journal has %v as written, and the original %v", shown, e.Wrote, e.Value)
		}
		r, err := Restore(kernel, j, func(*journal.Entry) bool { return false }, false)
		if has := kernel.values[Key{pod.Path, knobs.Quota}]; err != nil || (has == knobs.Value(original)) != ours || (len(r.Newer) == 0) != ours {
			t.Errorf("the kernel had %s: restored to %v, newer %v, %v", shown, has, r.Newer, err)
		}
	}
}

// The same holds for sluice restore without a start in between.
func TestRestoreAfterACrash(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(number(knobs.Burst, 20))
	r.Journal.RecordWrite(r.pod.Path, knobs.Burst, knobs.Number(30))
	result, err := Restore(r.memory, r.Journal, func(*journal.Entry) bool { return false }, false)
	if err != nil || len(result.Newer) > 0 {
		t.Errorf("newer %v, %v", result.Newer, err)
	}
	r.expect(t, knobs.Burst, knobs.Number(0))
}

// What the runtime has written for Sluice counts as Sluice's too: what its record has, what an update
// names that it may not have made, and runc's conversion of both.
func TestWrittenByTheRuntime(t *testing.T) {
	t.Parallel()
	const original, before, now, wrote = knobs.Shares(2), knobs.Shares(512), knobs.Shares(1024), knobs.Shares(700)
	runc := func(s knobs.Shares) knobs.Shares { return cgroupfs.SharesOf(cgroupfs.RuncWeightOf(s)) }
	for shown, ours := range map[knobs.Shares]bool{before: true, now: true, runc(before): true, runc(now): true, 300: false, runc(wrote): false} {
		c := knobs.Object{Path: "/pod/c", Name: "ns/pod/c", Level: knobs.ContainerLevel}
		j, err := journal.Open("", "boot")
		if err != nil {
			t.Fatal(err)
		}
		j.Record(c, knobs.Weight, original)
		j.RecordCarried(c.Path, knobs.Weight, before)
		j.RecordCarried(c.Path, knobs.Weight, now)
		j.RecordWrite(c.Path, knobs.Weight, wrote)
		kernel := &memory{values: map[Key]knobs.Value{{c.Path, knobs.Weight}: shown}}
		r, err := Restore(kernel, j, func(*journal.Entry) bool { return false }, false)
		if has := kernel.values[Key{c.Path, knobs.Weight}]; err != nil || (has == knobs.Value(original)) != ours || (len(r.Newer) == 0) != ours {
			t.Errorf("the kernel had %s: restored to %v, newer %v, %v", shown, has, r.Newer, err)
		}
	}
}

// A quota of Sluice's that Sluice lifts is no setting any more: what releases it leaves it lifted, and
// sluice restore has the original, also where Sluice was killed before it lifted the quota.
func TestLiftedQuota(t *testing.T) {
	t.Parallel()
	quota := func(milliseconds int) knobs.CPUQuota {
		return knobs.CPUQuota{Quota: time.Duration(milliseconds) * time.Millisecond, Period: 100 * time.Millisecond}
	}
	original, setting, newer := quota(200), quota(167), quota(300)
	for shown, restored := range map[knobs.CPUQuota]knobs.CPUQuota{
		knobs.UnlimitedQuota(): original, setting: original, original: original, newer: newer,
	} {
		r := newRig(t)
		at := Key{r.pod.Path, knobs.Quota}
		r.values[at] = original
		r.want(qos.Setting{Knob: knobs.Quota, Value: setting})
		r.expect(t, knobs.Quota, setting)
		r.Journal.RecordLift(at.Path, at.Knob)
		r.values[at] = shown
		r.ReleaseUnwanted(func(Key) bool { return false })
		r.want()
		r.Pass()
		r.expect(t, knobs.Quota, shown)
		result, err := Restore(r.memory, r.Journal, func(*journal.Entry) bool { return false }, false)
		if err != nil || len(result.Newer) > 0 || len(r.Journal.All()) > 0 {
			t.Errorf("%s: newer %v, %v, left %v", shown, result.Newer, err, r.Journal.All())
		}
		r.expect(t, knobs.Quota, restored)
	}
}
