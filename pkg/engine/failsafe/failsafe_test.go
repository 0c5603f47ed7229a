package failsafe

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if changes, err := Load(dir, "boot"); changes != nil || err != nil {
		t.Errorf("without a file: %v, %v", changes, err)
	}
	want := []knobs.Change{
		{Object: knobs.Object{Path: "/kubepods/pod1/a", Name: "x/pod1/a", Level: knobs.ContainerLevel}, Knob: knobs.CPUs, To: knobs.CPUSet(cpuset.Range(0, 7)), Why: "LS"},
		{Object: knobs.Object{Path: "/kubepods/besteffort", Name: "besteffort", Level: knobs.ClassLevel}, Knob: knobs.Quota, From: knobs.CPUQuota{Quota: -1}, To: knobs.CPUQuota{Quota: 20 * time.Millisecond, Period: 100 * time.Millisecond}, Why: "BE"},
	}
	if err := Save(dir, "boot", want); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(dir, "boot"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Load(dir, "another boot"); got != nil || err != nil {
		t.Errorf("of another boot: %+v, %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(dir, planFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for range 2 {
		if err := Forget(dir); err != nil {
			t.Error(err)
		}
		if got, err := Load(dir, "boot"); got != nil || err != nil {
			t.Errorf("a forgotten plan: %+v, %v", got, err)
		}
	}
}

// An entry that can't be read costs only itself.
func TestBrokenPlan(t *testing.T) {
	t.Parallel()
	got, err := parse([]byte(`{"boot":"b","changes":[{"name":"x","knob":"cpuset.cpus","to":"a-b"},{"name":"y","knob":"cpu.idle","to":"1"}]}`), "b")
	if err == nil || len(got) != 1 || got[0].Object.Name != "y" {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = parse([]byte(`{"boot":"b","changes":[{"name":"x","knob":"cpu.of_the_future","to":"1"},{"name":"y","knob":"cpu.idle","to":"1"},7]}`), "b")
	if err == nil || len(got) != 1 || got[0].Object.Name != "y" {
		t.Errorf("beside a setting of another version: %+v, %v", got, err)
	}
}

func TestNote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, ok := TakeReport(dir); ok {
		t.Error("word of what nobody did")
	}
	want := Report{Time: time.Unix(5, 0).UTC(), Why: "why", Changes: 3}
	if err := SaveReport(dir, want); err != nil {
		t.Fatal(err)
	}
	if got, ok := TakeReport(dir); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := TakeReport(dir); ok {
		t.Error("told twice")
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	type act struct {
		at  time.Duration
		why string
	}
	const stalled, gone = "the plugin has given no sign of life for 5s", "the plugin has ended, and none came in its place"
	for name, test := range map[string]struct {
		play      func(beats chan<- struct{})
		successor time.Duration // when a successor comes
		fails     int           // number of first attempts that fail
		lingers   time.Duration // how long the ending plugin is taken for a successor
		want      []act
	}{
		"ends":               {play: func(chan<- struct{}) {}, want: []act{{5 * time.Second, gone}}},
		"ends slowly":        {play: func(chan<- struct{}) {}, lingers: 4 * time.Second, want: []act{{5 * time.Second, gone}}},
		"is replaced":        {play: func(chan<- struct{}) {}, successor: 3 * time.Second},
		"is replaced late":   {play: func(chan<- struct{}) {}, successor: 6 * time.Second, want: []act{{5 * time.Second, gone}}},
		"lives, and ends":    {play: beat(20, time.Second), want: []act{{25 * time.Second, gone}}},
		"stalls, and ends":   {play: func(chan<- struct{}) { time.Sleep(8 * time.Second) }, want: []act{{5 * time.Second, stalled}, {13 * time.Second, gone}}},
		"stalls long":        {play: func(chan<- struct{}) { time.Sleep(12 * time.Second) }, successor: 1, want: []act{{5 * time.Second, stalled}}},
		"the kernel refuses": {play: func(chan<- struct{}) { time.Sleep(12 * time.Second) }, successor: 1, fails: 1, want: []act{{5 * time.Second, stalled}, {10 * time.Second, stalled}}},
		"stalls twice": {
			play:      func(b chan<- struct{}) { time.Sleep(6 * time.Second); b <- struct{}{}; time.Sleep(7 * time.Second) },
			successor: 1, want: []act{{5 * time.Second, stalled}, {11 * time.Second, stalled}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				beats := make(chan struct{})
				go func() { test.play(beats); close(beats) }()
				var got []act
				w := Watcher{
					Beats: beats,
					Succeeded: func() bool {
						return time.Since(began) < test.lingers || test.successor > 0 && time.Since(began) >= test.successor
					},
					Act: func(why string) error {
						got = append(got, act{time.Since(began), why})
						if len(got) <= test.fails {
							return errors.New("refused")
						}
						return nil
					},
				}
				if err := w.Watch(t.Context()); err != nil {
					t.Error(err)
				}
				if !reflect.DeepEqual(got, test.want) {
					t.Errorf("acted %v, want %v", got, test.want)
				}
			})
		})
	}
}

func beat(n int, every time.Duration) func(chan<- struct{}) {
	return func(beats chan<- struct{}) {
		for range n {
			time.Sleep(every)
			beats <- struct{}{}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"boot":"b","changes":[{"path":"/a","knob":"cpuset.cpus","to":"0-3"}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		parse(data, "b")
	})
}
