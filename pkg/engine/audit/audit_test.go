package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func decision(controller, object string) *control.Decision {
	return &control.Decision{Controller: controller, Object: object, Action: "grow", From: "2 CPUs", To: "4 CPUs", Why: "load 80 %", Facts: []control.Fact{{Name: "usage_cpus", Value: 1.6}}}
}

func read(t *testing.T, dir string, f Filter) (objects []string, broken int) {
	t.Helper()
	broken, err := Read(os.DirFS(dir), f, func(e Entry) error { objects = append(objects, e.Object); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return objects, broken
}

func TestTrail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trail := Open(dir, logrus.New())
	ctx, cancel := context.WithCancel(t.Context())
	for i, d := range []*control.Decision{decision("pools", "pool online"), decision("burst", "container a/b/c"), decision("burst", "container a/bc/c"), decision("eviction", "pod a/b")} {
		trail.Record(noon.Add(time.Duration(i)*time.Minute), control.On, d)
	}
	cancel()
	trail.Run(ctx) // writes the waiting entries
	for name, test := range map[string]struct {
		Filter
		want string
	}{
		"all":          {Filter{}, "pool online,container a/b/c,container a/bc/c,pod a/b"},
		"a pod":        {Filter{Object: "a/b"}, "container a/b/c,pod a/b"},
		"a container":  {Filter{Object: "a/b/c"}, "container a/b/c"},
		"a pool":       {Filter{Object: "online"}, "pool online"},
		"a time":       {Filter{Since: noon.Add(2 * time.Minute)}, "container a/bc/c,pod a/b"},
		"a controller": {Filter{Controller: "burst", Since: noon.Add(time.Minute)}, "container a/b/c,container a/bc/c"},
		"nothing":      {Filter{Object: "x"}, ""},
	} {
		if got, _ := read(t, dir, test.Filter); strings.Join(got, ",") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, fileName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the trail's mode is %v, %v", info.Mode(), err)
	}
}

// A disk that accepts no writes costs entries, but never delays the loop.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	var text strings.Builder
	log.SetOutput(&text)
	trail := Open(file, log) // a file in the place of the folder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range waiting + 10 {
		trail.Record(noon, control.Preview, decision("pools", "pool online"))
	}
	trail.Run(ctx)
	if trail.Dropped() != waiting+10 || strings.Count(text.String(), "can't be written") != 1 {
		t.Errorf("%d entries dropped, log: %s", trail.Dropped(), text.String())
	}
}

// No file exceeds its maximum size. lumberjack removes the oldest file at a time of its own
// choosing.
func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trail := Open(dir, logrus.New())
	long := decision("pools", "pool online")
	long.Why = strings.Repeat("x", 100_000)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		trail.Record(noon, control.On, long)
		trail.Run(ctx)
	}
	if kept, _ := read(t, dir, Filter{}); len(kept) != 100 {
		t.Errorf("%d entries kept", len(kept))
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 2 {
		t.Errorf("files %q, %v", names, err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > fileMB<<20 {
			t.Errorf("%s: %d bytes, %v", name, info.Size(), err)
		}
	}
}

// A crash or a full disk truncates the last line.
func TestBrokenLines(t *testing.T) {
	t.Parallel()
	dir := fstest.MapFS{
		"audit.jsonl":                         {Data: []byte(`{"time":"2026-05-01T12:00:00Z","object":"pool b"}` + "\n" + `{"time":"2026-`)},
		"audit-2026-04-30T12-00-00.000.jsonl": {Data: []byte(`{"time":"2026-04-30T11:00:00Z","object":"pool a"}` + "\n\x00\x00\n")},
	}
	var objects []string
	broken, err := Read(dir, Filter{}, func(e Entry) error { objects = append(objects, e.Object); return nil })
	if err != nil || broken != 2 || strings.Join(objects, ",") != "pool a,pool b" {
		t.Errorf("%q, %d broken, %v", objects, broken, err)
	}
	stop := errors.New("enough")
	if _, err := Read(dir, Filter{}, func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func FuzzScan(f *testing.F) {
	f.Add(`{"time":"2026-05-01T12:00:00Z","object":"pool b","facts":[{"name":"a","value":1}]}`)
	f.Add("{}\n[]\n\"")
	f.Fuzz(func(_ *testing.T, text string) {
		scan(strings.NewReader(text), &Filter{Object: "b"}, func(Entry) error { return nil })
	})
}

// Read returns a movement once, as a whole, at the time of its first step. If its end is not in
// the trail, Read returns its first step.
func TestMovementsAreJoined(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trail := Open(dir, logrus.New())
	step := func(object string, steps int, seconds time.Duration) *control.Decision {
		d := decision("batch", object)
		if d.Steps, d.Ongoing = steps, steps == 1; steps > 1 {
			d.LastStepAt, d.To = noon.Add(seconds*time.Second), "whole"
		}
		return d
	}
	ctx, cancel := context.WithCancel(t.Context())
	trail.Record(noon, control.On, step("a", 1, 0))
	trail.Record(noon.Add(1*time.Second), control.On, step("lost", 1, 0))
	trail.Record(noon.Add(2*time.Second), control.On, decision("pools", "between"))
	trail.Record(noon, control.On, step("a", 7, 5))
	trail.Record(noon.Add(6*time.Second), control.On, decision("pools", "after"))
	cancel()
	trail.Run(ctx)
	for since, want := range map[time.Duration]string{0: "a 7 whole,lost 1 4 CPUs,between 0 4 CPUs,after 0 4 CPUs", 4 * time.Second: "a 7 whole,after 0 4 CPUs"} {
		var got []string
		_, err := Read(os.DirFS(dir), Filter{Since: noon.Add(since)}, func(e Entry) error {
			got = append(got, fmt.Sprint(e.Object, " ", e.Steps, " ", e.To))
			return nil
		})
		if err != nil || strings.Join(got, ",") != want {
			t.Errorf("since %v: %q, %v", since, got, err)
		}
	}
}

// A first step without an end holds back only a bounded number of entries.
func TestJoinerIsBounded(t *testing.T) {
	t.Parallel()
	handed := 0
	j := joiner{do: func(Entry) error { handed++; return nil }}
	for range 3 * mostWaiting {
		if err := j.add(Entry{Time: noon, Decision: control.Decision{Ongoing: true, Steps: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(j.waiting) != mostWaiting || handed != 2*mostWaiting {
		t.Errorf("%d wait, %d were handed over", len(j.waiting), handed)
	}
}
