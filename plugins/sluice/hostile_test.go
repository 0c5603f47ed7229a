package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// evil is a name that nobody should be able to print: it sets a terminal's title,
// clears it in 7 and in 8 bits, writes from right to left, and begins lines anew.
const evil = "team/\x1b]0;owned\a\x1b[2J\u009b2J\u202eweb\u2028\r\nroot/pod\t\x00/x\xff"

// poison sets all texts below a value, in as many elements as there are to be, and
// leaves what is already set.
func poison(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		if v.String() == "" {
			v.SetString(evil)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for _, field := range v.Fields() {
			if field.CanSet() {
				poison(field, depth)
			}
		}
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			poison(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range v.Len() {
				poison(v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if depth > 0 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			poison(key, depth)
			poison(value, depth-1)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	}
}

func poisoned[T any](t *testing.T) *T {
	t.Helper()
	value := new(T)
	poison(reflect.ValueOf(value).Elem(), 8)
	return value
}

// checkPrintable fails where a terminal would act on a text.
func checkPrintable(t *testing.T, what, text string) {
	t.Helper()
	if !strings.Contains(text, "owned") {
		t.Errorf("%s: the name is not in it: nothing is tested\n%q", what, text)
	}
	for line := range strings.Lines(text) {
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: not printable: %q", what, line)
		}
	}
}

// Each text of the status, those that are added later too, is shown as it may be.
func TestHostileStatus(t *testing.T) {
	t.Parallel()
	s := poisoned[status.Status](t)
	s.Containers[0].Class, s.Containers[1].Class = workload.LSE, workload.BE
	s.Containers[0].State, s.Containers[1].State = placement.Reserved, placement.Held
	checkPrintable(t, "status", statusText(s, false))
	checkPrintable(t, "status -o wide", statusText(s, true))
	checkPrintable(t, "explain", explainText(s, s.Containers, podTrail(s.Loop, podNames(s.Containers)[0])))
	checkPrintable(t, "batch", batchText(&batchReport{Switch: s.Loop.Batch.Switch, Batch: &s.Loop.Batch, Lacks: []string{evil}}))
	checkPrintable(t, "log", entryText(poisoned[audit.Entry](t), true))
	checkPrintable(t, "doctor", doctorText(poisoned[doctor.Report](t)))
	object := knobs.Object{Path: evil, Name: evil}
	checkPrintable(t, "restore", restoredText(agent.Restored{Changes: []knobs.Change{{Object: object, Knob: knobs.CPUs, To: knobs.CPUSet{}}}, Newer: []string{evil}}, evil, false))

	var out bytes.Buffer
	if err := writeJSON(&out, s); err != nil {
		t.Fatal(err)
	}
	checkPrintable(t, "JSON", out.String())
	var back struct{ Containers []struct{ Ref string } }
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Containers[0].Ref != strings.ToValidUTF8(evil, "\ufffd") {
		t.Errorf("JSON: another name comes back: %v, %q", err, back.Containers[0].Ref)
	}
}

// A shell takes what completion offers as it is typed.
func TestHostileCompletion(t *testing.T) {
	t.Parallel()
	s := calm()
	for _, name := range []string{evil, "a/$(reboot)/c", "a/`reboot`/c", "a/b;c/d", "a/b c/d", "-a/b/c", "a/é/c"} {
		s.Containers = append(s.Containers, status.Container{Ref: name})
	}
	socket := serve(t, plugin{status: s})
	for _, args := range [][]string{{"explain", "--status-socket", socket, ""}, {"log", "--status-socket", socket, "--pod", ""}} {
		got := run(t, "", append([]string{"__complete"}, args...)...)
		if want := "batch/db-0\ndata/db-0\ndata/db-1\n:4\n"; got.out != want {
			t.Errorf("%s: %q, want %q", args[0], got.out, want)
		}
	}
}

func TestHostileErrors(t *testing.T) {
	t.Parallel()
	s := calm()
	s.Containers = []status.Container{{Ref: "a/" + evil + "/c", ID: "1"}, {Ref: "b/" + evil + "/c", ID: "12"}}
	got := run(t, "", "explain", "1", "--status-socket", serve(t, plugin{status: s}))
	checkPrintable(t, "error", got.errs)
	if got.exit != exitFailure {
		t.Errorf("exit %d", got.exit)
	}
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: \"\\e[2Jowned\"}\nspec: {containers: [{name: \"\\e[2Jc\", resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}\n"
	checkPrintable(t, "plan", run(t, manifest, "plan", "-f", "-", "--machine", "4 cores").errs)
	manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: \"\\e[2Jowned\", annotations: {class.sluice.dev: \"\\e[2J\"}}\nspec: {containers: [{name: \"\\e[2Jc\"}]}\n"
	checkPrintable(t, "plan", run(t, manifest, "plan", "-f", "-", "--machine", "4 cores").out)
}

// One entry of the log is one line, whatever it names.
func TestHostileLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		cfg := config.Default()
		cfg.Log.Format, cfg.Log.File = config.LogFormat(format), filepath.Join(t.TempDir(), "log")
		log, err := newLog(cfg, "")
		if err != nil {
			t.Fatal(err)
		}
		log.WithFields(logrus.Fields{"container": evil, "why": "\n" + evil}).WithError(os.ErrExist).Warn("Container refused")
		text, err := os.ReadFile(cfg.Log.File)
		if err != nil || strings.Count(string(text), "\n") != 1 || bytes.ContainsAny(text, "\x1b\a\r\x00") {
			t.Errorf("%s: %v: %q", format, err, text)
		}
	}
}
