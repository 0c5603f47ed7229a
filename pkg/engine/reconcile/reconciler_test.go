package reconcile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// memory is a kernel whose cgroups have numbers only.
type memory struct {
	values map[Key]knobs.Value
	denied map[Key]bool
	writes int
}

func (k *memory) Apply(changes []knobs.Change) error {
	var errs []error
	for _, c := range changes {
		k.writes++
		if k.denied[KeyOf(&c)] {
			errs = append(errs, &cgroupfs.ChangeError{Change: c, Err: errors.New("no")})
			continue
		}
		k.values[KeyOf(&c)] = c.To
	}
	return errors.Join(errs...)
}

func (k *memory) Read(path string, knob knobs.Knob) (knobs.Value, error) {
	if v, ok := k.values[Key{path, knob}]; ok {
		return v, nil
	}
	return nil, cgroupfs.ErrGone
}

func (*memory) Same(_ knobs.Knob, want, have knobs.Value) bool { return want == have }

// rig is a Reconciler on a kernel in memory, whose time the test sets.
type rig struct {
	*Reconciler
	*memory
	now  time.Time
	pod  knobs.Object
	file string
}

const podUID = "uid"

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{memory: &memory{values: map[Key]knobs.Value{}, denied: map[Key]bool{}}, now: time.Unix(1e9, 0), file: filepath.Join(t.TempDir(), "journal")}
	j, err := journal.Open(r.file, "boot")
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	r.Reconciler = New(Options{
		Kernel: r.memory, Journal: j, Features: &knobs.Features{}, Log: log,
		Now:           func() time.Time { return r.now },
		MayWrite:      func() bool { return true },
		DriftInterval: func() time.Duration { return time.Second },
		Carried:       func(Key) (knobs.Value, bool) { return nil, false },
		Updating:      func(string) bool { return false },
		Starting:      func(string) bool { return false },
		Suspect:       func(knobs.Object, knobs.Knob, knobs.Value) string { return "somebody" },
		Blocking:      true,
	})
	r.pod = knobs.Object{Path: "/pod", Name: "ns/pod", Level: knobs.PodLevel}
	for k, v := range map[knobs.Knob]knobs.Value{knobs.Burst: knobs.Number(0), knobs.Idle: knobs.Number(0), knobs.Weight: knobs.Shares(100)} {
		r.values[Key{r.pod.Path, k}] = v
	}
	return r
}

func (r *rig) want(settings ...qos.Setting) {
	r.Want(r.pod, podUID, settings)
	r.Reconciler.Apply()
}

func (r *rig) expect(t *testing.T, k knobs.Knob, want knobs.Value) {
	t.Helper()
	if got := r.values[Key{r.pod.Path, k}]; got != want {
		t.Errorf("%s is %v, want %v", k, got, want)
	}
}

func number(k knobs.Knob, n knobs.Number) qos.Setting { return qos.Setting{Knob: k, Value: n} }

// Nothing is written before Apply, and nothing twice. A setting that is no longer wanted is
// restored, and the journal drops it.
func TestDeclareAndLetGo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Want(r.pod, podUID, []qos.Setting{number(knobs.Burst, 20)})
	r.expect(t, knobs.Burst, knobs.Number(0))
	r.Reconciler.Apply()
	r.expect(t, knobs.Burst, knobs.Number(20))
	r.Pass()
	r.want(number(knobs.Burst, 20))
	if r.writes != 1 {
		t.Errorf("%d writes, want 1", r.writes)
	}
	r.want()
	r.expect(t, knobs.Burst, knobs.Number(0))
	if left := r.Journal.All(); len(left) > 0 || r.Size() != (Size{}) {
		t.Errorf("left: %v, %+v", left, r.Size())
	}
}

// A setting that is declared again before Apply is not restored.
func TestWantedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(number(knobs.Burst, 20))
	r.Want(r.pod, podUID, nil)
	r.want(number(knobs.Burst, 20))
	r.expect(t, knobs.Burst, knobs.Number(20))
	if r.writes != 1 {
		t.Errorf("%d writes, want 1", r.writes)
	}
}

// A weight that is no longer wanted, and an idle that is wanted before the next Apply, leave the
// weight's original in the journal: the kernel resets the weight when idle ends.
func TestWeightBeforeIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(qos.Setting{Knob: knobs.Weight, ScalePercent: 1600})
	r.Want(r.pod, podUID, nil)
	r.want(number(knobs.Idle, 1))
	r.values[Key{r.pod.Path, knobs.Weight}] = knobs.Shares(1024) // as the kernel does with the write of 0
	r.want()
	r.expect(t, knobs.Idle, knobs.Number(0))
	r.expect(t, knobs.Weight, knobs.Shares(100))
	if left := r.Journal.All(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Drift is repaired at once some times, and then with a delay.
func TestDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(number(knobs.Burst, 20))
	at := Key{r.pod.Path, knobs.Burst}
	for range RepairsAtOnce {
		r.values[at] = knobs.Number(5)
		r.Pass()
		r.expect(t, knobs.Burst, knobs.Number(20))
	}
	r.values[at] = knobs.Number(5)
	r.Pass()
	r.expect(t, knobs.Burst, knobs.Number(5))
	if s := r.Status(nil, "pod", r.pod.Path); len(s) != 1 || s[0].Drift != RepairsAtOnce || s[0].Suspect != "somebody" || !s[0].Contested || r.Drift() != RepairsAtOnce {
		t.Errorf("status: %+v, %d drifts", s, r.Drift())
	}
	if got := r.Contested(); len(got) != 1 || got[0] != "cpu.burst of ns/pod" {
		t.Errorf("contested: %v", got)
	}
	r.now = r.now.Add(time.Hour)
	r.Pass()
	r.expect(t, knobs.Burst, knobs.Number(20))
}

// During a resize, bursts and idle have their original values, with the weight from before idle.
// What the kubelet writes meanwhile is no drift, and its weight becomes the original.
func TestSuspend(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	settings := []qos.Setting{number(knobs.Burst, 20), number(knobs.Idle, 1)}
	r.want(settings...)
	r.Suspend(podUID, r.now.Add(10*time.Second))
	r.expect(t, knobs.Burst, knobs.Number(0))
	r.expect(t, knobs.Idle, knobs.Number(0))
	r.Pass()
	r.want(settings...)
	r.expect(t, knobs.Burst, knobs.Number(0))
	r.values[Key{r.pod.Path, knobs.Weight}] = knobs.Shares(300)
	r.Resume(podUID)
	r.want(settings...)
	r.expect(t, knobs.Burst, knobs.Number(20))
	r.expect(t, knobs.Idle, knobs.Number(1))
	r.want()
	r.expect(t, knobs.Idle, knobs.Number(0))
	r.expect(t, knobs.Weight, knobs.Shares(300))
	if r.Drift() > 0 {
		t.Errorf("%d drifts", r.Drift())
	}
}

func TestSuspensionEndsByTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(number(knobs.Burst, 20))
	r.Suspend(podUID, r.now.Add(10*time.Second))
	if pods := r.ResumeOverdue(); len(pods) > 0 {
		t.Errorf("overdue at once: %v", pods)
	}
	r.now = r.now.Add(11 * time.Second)
	if pods := r.ResumeOverdue(); len(pods) != 1 || pods[0] != podUID {
		t.Errorf("overdue: %v", pods)
	}
	r.Pass()
	r.expect(t, knobs.Burst, knobs.Number(20))
}

// Passes try a refused value again at growing intervals; declaring it again tries it at once.
func TestRefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := Key{r.pod.Path, knobs.Burst}
	r.denied[at] = true
	r.want(number(knobs.Burst, 20))
	if !r.Waits(at, knobs.Number(20)) || r.Waits(at, knobs.Number(30)) {
		t.Error("the refused value doesn't wait, or another does")
	}
	for range 60 {
		r.now = r.now.Add(time.Second)
		r.Pass()
	}
	if r.writes < 4 || r.writes > 8 {
		t.Errorf("%d attempts in a minute of passes", r.writes)
	}
	if errs, total := r.WriteErrors(); total != r.writes || len(errs) != 1 || errs[0].Knob != "cpu.burst" {
		t.Errorf("%+v, %d in all, of %d", errs, total, r.writes)
	}
	if s := r.Setting(at); s.Problem() == "" || !r.Refused(at) {
		t.Errorf("%+v", s)
	}
	delete(r.denied, at)
	r.want(number(knobs.Burst, 20))
	r.expect(t, knobs.Burst, knobs.Number(20))
	if s := r.Setting(at); s.Problem() != "" || r.Refused(at) || r.Drift() > 0 {
		t.Errorf("%+v, %d drifts", s, r.Drift())
	}
}

// A value that can't be entered in the journal first is not written, except for CPUs and memory
// nodes.
func TestNothingIsWrittenBeforeTheJournal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.Journal.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(r.file)); err != nil {
		t.Fatal(err)
	}
	r.want(number(knobs.Burst, 20))
	r.expect(t, knobs.Burst, knobs.Number(0))
	if s := r.Setting(Key{r.pod.Path, knobs.Burst}); s.Problem() == "" || !r.Unsaved() {
		t.Errorf("%+v", s)
	}
	cpus := knobs.Change{Object: r.pod, Knob: knobs.CPUs, To: knobs.CPUSet{}}
	if failed, err := r.Write([]knobs.Change{cpus}); err != nil || len(failed) > 0 || r.writes != 1 {
		t.Errorf("%v, %v, %d writes", failed, err, r.writes)
	}
	if err := os.MkdirAll(filepath.Dir(r.file), 0o700); err != nil {
		t.Fatal(err)
	}
	r.Pass()
	r.expect(t, knobs.Burst, knobs.Number(20))
}

// The Reconciler keeps nothing of a cgroup that is gone, and writes nothing to it.
func TestForget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.denied[Key{r.pod.Path, knobs.Burst}] = true
	r.want(number(knobs.Burst, 20))
	r.Want(r.pod, podUID, nil)
	r.Forget(r.pod.Path)
	writes := r.writes
	r.Reconciler.Apply()
	if r.Size() != (Size{}) || len(r.Journal.All()) > 0 || r.writes != writes {
		t.Errorf("left: %+v, %v, %d writes more", r.Size(), r.Journal.All(), r.writes-writes)
	}
}

// Recheck finds changes by other programs, and Apply writes the repairs.
func TestRecheck(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := Key{r.pod.Path, knobs.Burst}
	if r.Recheck(at) {
		t.Error("a change was found of what is not wanted")
	}
	r.want(number(knobs.Burst, 20))
	if r.Recheck(at) {
		t.Error("a change was found where there was none")
	}
	r.values[at] = knobs.Number(5)
	if !r.Recheck(at) {
		t.Error("the change was not found")
	}
	r.expect(t, knobs.Burst, knobs.Number(5))
	r.Reconciler.Apply()
	r.expect(t, knobs.Burst, knobs.Number(20))
	r.values[at] = knobs.Number(5)
	r.Recheck(at)
	r.Forget(r.pod.Path)
	r.Reconciler.Apply()
	r.expect(t, knobs.Burst, knobs.Number(5))
}

// In preview nothing is written. The settings of an earlier run are restored when it ends.
func TestPreview(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(number(knobs.Burst, 20))
	may := false
	r.MayWrite = func() bool { return may }
	r.ReleaseUnwanted(func(Key) bool { return false })
	r.want()
	r.Pass()
	r.expect(t, knobs.Burst, knobs.Number(20))
	may = true
	r.Retry()
	r.expect(t, knobs.Burst, knobs.Number(0))
}

// A dry run of Restore changes neither the kernel nor the journal.
func TestRestoreDry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(number(knobs.Burst, 20), number(knobs.Idle, 0))
	mine := func(*journal.Entry) bool { return false }
	before := len(r.Journal.All())
	got, err := Restore(r.memory, r.Journal, mine, true)
	if err != nil || len(got.Changes) != 1 || len(r.Journal.All()) != before {
		t.Errorf("%+v, %v; the journal has %d entries of %d", got, err, len(r.Journal.All()), before)
	}
	r.expect(t, knobs.Burst, knobs.Number(20))
	if _, err := Restore(r.memory, r.Journal, mine, false); err != nil || len(r.Journal.All()) > 0 {
		t.Errorf("%v; the journal keeps %v", err, r.Journal.All())
	}
	r.expect(t, knobs.Burst, knobs.Number(0))
}

// deferred returns a rig whose slow writes the test finishes.
func deferred(t *testing.T) (r *rig, finish func()) {
	t.Helper()
	r = newRig(t)
	var begun, posted []func()
	r.Blocking = false
	r.Starting = func(string) bool { return false }
	r.Failed = func(Key) {}
	r.Spawn = func(work func()) { begun = append(begun, work) }
	r.Post = func(_ string, event func()) { posted = append(posted, event) }
	r.values[Key{r.pod.Path, knobs.IOWeight}] = knobs.PerDevice("")
	return r, func() {
		for len(begun)+len(posted) > 0 {
			work := append(begun, posted...)
			begun, posted = nil, nil
			for _, do := range work {
				do()
			}
		}
	}
}

func (r *rig) weight(text string) {
	r.want(qos.Setting{Knob: knobs.IOWeight, Value: knobs.PerDevice(text)})
}

// untouched fails the test if a setting of Sluice is left.
func (r *rig) untouched(t *testing.T) {
	t.Helper()
	r.expect(t, knobs.IOWeight, knobs.PerDevice(""))
	if left := r.Journal.All(); len(left) > 0 || r.Size() != (Size{}) {
		t.Errorf("left: %v, %+v", left, r.Size())
	}
}

// When a setting is released, one write may be in progress and another waiting. The waiting one is
// never made, and the value of the other counts as Sluice's, not as a newer one.
func TestLetGoBehindAWrite(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]int{"under way": maxWriters, "waiting": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, finish := deferred(t)
			r.weight("8:0 20")
			finish()
			r.slow.running = maxWriters - free
			r.weight("8:0 100")
			r.weight("8:0 20")
			r.weight("8:0 50")
			r.want()
			r.slow.running -= maxWriters - free
			finish()
			r.Pass()
			finish()
			r.untouched(t)
		})
	}
}

// The write in progress when a setting is released may fail. What was written before it counts as
// Sluice's, and is restored, too.
func TestLetGoBehindAFailure(t *testing.T) {
	t.Parallel()
	r, finish := deferred(t)
	r.weight("8:0 20")
	finish()
	at := Key{r.pod.Path, knobs.IOWeight}
	r.denied[at] = true
	r.weight("8:0 100")
	r.want()
	finish()
	r.expect(t, knobs.IOWeight, knobs.PerDevice("8:0 20"))
	delete(r.denied, at)
	r.now = r.now.Add(time.Hour) // longer than any back-off
	r.Pass()
	finish()
	r.untouched(t)
}

// A cgroup whose weight can't be read does not become idle: the kernel changes the weight when idle
// ends, and nobody would know what it was.
func TestIdleNeedsTheWeight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	weight := Key{r.pod.Path, knobs.Weight}
	delete(r.values, weight)
	for range 2 { // the second time the pass tries it
		r.want(number(knobs.Idle, 1))
		r.Pass()
		r.expect(t, knobs.Idle, knobs.Number(0))
	}
	r.values[weight] = knobs.Shares(100)
	r.Pass()
	r.expect(t, knobs.Idle, knobs.Number(1))
	r.values[weight] = knobs.Shares(3) // as the kernel does
	r.want()
	r.expect(t, knobs.Idle, knobs.Number(0))
	r.expect(t, knobs.Weight, knobs.Shares(100))
}
