package journal

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

func object(path string) knobs.Object {
	return knobs.Object{Path: path, Name: "shop" + path, Level: knobs.ContainerLevel}
}

func open(t testing.TB, file, boot string) *Journal {
	t.Helper()
	b, err := Open(file, boot)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "originals")
	b := open(t, file, "boot")
	b.Record(object("/a"), knobs.Burst, knobs.CPUBurst(5000))
	b.RecordWrite("/a", knobs.Burst, knobs.CPUBurst(7000))
	b.RecordWrite("/a", knobs.Burst, knobs.CPUBurst(9000))
	b.RecordCarried("/a", knobs.Burst, knobs.CPUBurst(6000))
	b.RecordCarried("/a", knobs.Burst, knobs.CPUBurst(8000))
	b.Record(object("/made"), knobs.Burst, knobs.CPUBurst(5000))
	b.RecordCarried("/made", knobs.Burst, knobs.CPUBurst(6000))
	b.RecordCarried("/made", knobs.Burst, knobs.CPUBurst(8000))
	b.ForgetCarriedBefore("/made")
	lifted, wrote := knobs.MicroQuota(200_000, 100_000), knobs.MicroQuota(166_667, 100_000)
	b.Record(object("/lifted"), knobs.Quota, lifted)
	b.RecordWrite("/lifted", knobs.Quota, wrote)
	b.RecordLift("/lifted", knobs.Quota)
	b.RecordLift("/lifted", knobs.Quota)
	b.RecordLift("/none", knobs.Quota)
	b.Record(object("/a"), knobs.Idle, knobs.Number(0))
	b.Record(object("/b"), knobs.Idle, knobs.Number(0))
	b.Record(object("/c"), knobs.Idle, knobs.Number(0))
	b.Drop("/a", knobs.Idle)
	b.Forget("/b")
	if err := b.SaveState("irqs", map[string]string{"1": "0-3"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err != nil { // there is no Close, because the process is killed
		t.Fatal(err)
	}
	want := []Entry{
		{object("/a"), knobs.Burst, knobs.CPUBurst(5000), knobs.CPUBurst(9000), knobs.CPUBurst(7000), knobs.CPUBurst(8000), knobs.CPUBurst(6000)},
		{object("/c"), knobs.Idle, knobs.Number(0), nil, nil, nil, nil},
		{object("/lifted"), knobs.Quota, lifted, nil, wrote, nil, nil},
		{object("/made"), knobs.Burst, knobs.CPUBurst(5000), nil, nil, knobs.CPUBurst(8000), nil},
	}
	for range 2 { // the second round opens what the first one has rewritten
		again := open(t, file, "boot")
		if got := again.All(); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		var irqs map[string]string
		if ok, err := again.State("irqs", &irqs); !ok || err != nil || irqs["1"] != "0-3" {
			t.Errorf("%v %v %v", irqs, ok, err)
		}
	}
}

func TestEndsWithTheBoot(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "originals")
	b := open(t, file, "one")
	b.Record(object("/a"), knobs.Idle, knobs.Number(0))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if left := open(t, file, "two").All(); len(left) > 0 {
		t.Errorf("%v is kept of an earlier boot", left)
	}
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	good := `{"path":"/a","name":"n","level":2,"knob":"cpu.idle","value":"0"}` + "\n"
	for name, test := range map[string]struct {
		text string
		kept int
		bad  bool
	}{
		"empty":             {"", 0, false},
		"one":               {`{"boot":"b"}` + "\n" + good, 1, false},
		"half a line":       {`{"boot":"b"}` + "\n" + good + `{"path":"/b","kn`, 1, true},
		"a bad one between": {`{"boot":"b"}` + "\n" + `{"path":"/b","knob":"cpu.idle","value":"x"}` + "\n" + good, 1, true},
		"written, not kept": {`{"boot":"b"}` + "\n" + `{"path":"/b","knob":"cpu.idle","wrote":"1"}` + "\n", 0, true},
		"nothing named":     {`{"boot":"b"}` + "\n{}\n" + good, 1, true},
		"another boot":      {`{"boot":"c"}` + "\n" + good, 0, false},
		"no text at all":    {"\x00\x01\n", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "originals")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := Open(file, "b")
			if len(b.All()) != test.kept || (err != nil) != test.bad {
				t.Fatalf("kept %v, error %v", b.All(), err)
			}
			if err != nil && !strings.Contains(err.Error(), "line ") {
				t.Errorf("%v does not name the line", err)
			}
			if again := open(t, file, "b"); len(again.All()) != test.kept {
				t.Errorf("the file was not made good: %v", again.All())
			}
		})
	}
}

func TestFolderComesLater(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "later")
	file := filepath.Join(folder, "originals")
	b, err := Open(file, "b")
	if err == nil {
		t.Fatal("no error without a folder")
	}
	b.Record(object("/a"), knobs.Idle, knobs.Number(0))
	if err := b.Flush(); err == nil {
		t.Fatal("flushed to nowhere")
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := open(t, file, "b").All(); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// After every Flush the file has the same entries as the memory, and stays short.
func TestFileFollows(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(folder, "")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "originals")
		b, err := Open(file, "b")
		if err != nil {
			t.Fatal(err)
		}
		type at struct {
			path string
			knob knobs.Knob
		}
		model := map[at]Entry{}
		all := []knobs.Knob{knobs.Burst, knobs.Idle, knobs.WmarkRatio}
		value := func(k knobs.Knob, n int) knobs.Value {
			if k == knobs.Burst {
				return knobs.CPUBurst(n * 1000)
			}
			return knobs.Number(n)
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			a := at{rapid.SampledFrom([]string{"/a", "/b", "/c"}).Draw(t, "path"), rapid.SampledFrom(all).Draw(t, "knob")}
			n := value(a.knob, rapid.IntRange(0, 3).Draw(t, "n"))
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				b.Record(object(a.path), a.knob, n)
				if old, ok := model[a]; !ok || old.Value != n {
					model[a] = Entry{Object: object(a.path), Knob: a.knob, Value: n}
				}
			case 2:
				b.RecordWrite(a.path, a.knob, n)
				if e, ok := model[a]; ok && e.Wrote != n {
					e.Before, e.Wrote = e.Wrote, n
					model[a] = e
				}
			case 3:
				b.RecordLift(a.path, a.knob)
				if e, ok := model[a]; ok && e.Wrote != nil {
					e.Before, e.Wrote = e.Wrote, nil
					model[a] = e
				}
			case 4:
				b.Drop(a.path, a.knob)
				delete(model, a)
			default:
				b.Forget(a.path)
				maps.DeleteFunc(model, func(other at, _ Entry) bool { return other.path == a.path })
			}
		}
		if err := b.Flush(); err != nil {
			t.Fatal(err)
		}
		again, err := Read(file, "b")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range again.All() {
			if model[at{e.Object.Path, e.Knob}] != e {
				t.Fatalf("%v, want %v", e, model[at{e.Object.Path, e.Knob}])
			}
		}
		if len(again.All()) != len(model) || !slices.Equal(again.All(), b.All()) {
			t.Fatalf("%v, want %v", again.All(), model)
		}
	})
}

func TestStaysShort(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "originals")
	b := open(t, file, "b")
	for i := range 20_000 {
		b.Record(object("/a"), knobs.Idle, knobs.Number(i%2))
		if err := b.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Size() > 200_000 {
		t.Errorf("the file has %d bytes for one value (%v)", info.Size(), err)
	}
}

// A version that doesn't know a setting keeps its line: after a downgrade and an upgrade the
// original is still there.
func TestSettingsOfAnotherVersion(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "originals")
	newer := `{"boot":"1"}
{"path":"/a","name":"shop/a","level":2,"knob":"cpu.future","value":"7"}
{"path":"/a","knob":"cpu.future","wrote":"9"}
{"path":"/b","knob":"cpu.future","value":"1"}
{"path":"/b","knob":"cpu.future"}
{"path":"/c","knob":"cpu.future","value":"1"}
{"path":"/d","knob":"cpu.future","wrote":"1"}
`
	if err := os.WriteFile(file, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Open(file, "1")
	if err == nil || !strings.Contains(err.Error(), "cpu.future") {
		t.Errorf("opened with %v", err)
	}
	if all := b.All(); len(all) > 0 {
		t.Errorf("it lists %v, which it can't give back", all)
	}
	b.Record(object("/a"), knobs.Idle, knobs.Number(0))
	b.Forget("/c")
	for range 2 { // as opened, and again from the rewritten file
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(text); !strings.Contains(got, `{"path":"/a","name":"shop/a","level":2,"knob":"cpu.future","value":"7","wrote":"9"}`) || strings.Contains(got, `"/b"`) || strings.Contains(got, `"/d"`) {
			t.Errorf("the file has\n%s", got)
		}
		b, _ = Open(file, "1")
	}
	if len(b.unknownLines) != 1 {
		t.Errorf("kept of another version: %v", b.unknownLines)
	}
	elsewhere, err := Open("", "1")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.Add(b)
	if len(elsewhere.unknownLines) != 1 {
		t.Error("another journal doesn't take over what it doesn't know")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"boot":"b"}` + "\n" + `{"path":"/a","knob":"cpu.idle","value":"0","wrote":"1"}`))
	f.Add([]byte(`{"boot":"b"}` + "\n" + `{"other":"irqs","state":{"1":null}}`))
	file := filepath.Join(f.TempDir(), "originals")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		b, _ := Read(file, "b")
		for _, e := range b.All() {
			if e.Value == nil || e.Object.Path == "" {
				t.Errorf("%+v can't be given back", e)
			}
		}
	})
}

// BenchmarkRecord measures the six originals of a container's start, and the write alone.
func BenchmarkRecord(b *testing.B) {
	b.Run("book", func(b *testing.B) {
		j := open(b, filepath.Join(b.TempDir(), "originals"), "b")
		n := 0
		for b.Loop() {
			n++
			for k := knobs.Burst; k < knobs.Burst+6; k++ {
				j.Record(object("/a"), k, knobs.Number(n))
			}
			if err := j.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		file, err := os.Create(filepath.Join(b.TempDir(), "plain"))
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		line := make([]byte, 600)
		for b.Loop() {
			if _, err := file.Write(line); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A journal with long states is rewritten before it is large, but not each time if the entries
// themselves are large.
func TestCompactionByBytes(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]int{"little is kept": 0, "much is kept": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "journal")
			b, err := Open(file, "boot")
			if err != nil {
				t.Fatal(err)
			}
			if err := b.SaveState("large", strings.Repeat("x", kept)); err != nil {
				t.Fatal(err)
			}
			made, before := 0, os.FileInfo(nil)
			const states = 900 // too few to rewrite the file because of their number
			for i := range states {
				if err := errors.Join(b.SaveState("cores", strings.Repeat("y", 32<<10+i)), b.Flush()); err != nil {
					t.Fatal(err)
				}
				info, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				if before != nil && !os.SameFile(before, info) {
					made++
				}
				before = info
				if limit := int64(2<<20 + 6*kept); info.Size() > limit {
					t.Fatalf("after %d states the file has %d bytes, more than %d", i, info.Size(), limit)
				}
			}
			if made == 0 || made > 40 {
				t.Errorf("the file was made anew %d times", made)
			}
		})
	}
}
