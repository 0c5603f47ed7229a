package render

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/migrate"
	"github.com/sluice-dev/sluice/pkg/view/whatif"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// evil is a name that must not reach a terminal: it sets the title, clears the screen with 7-bit
// and 8-bit sequences, switches to right-to-left text, and starts new lines.
const evil = "team/\x1b]0;owned\a\x1b[2J\u009b2J\u202eweb\u2028\r\nroot/pod\t\x00/x\xff"

// poison sets all empty texts below a value, and gives lists and maps the expected number of
// elements.
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

// checkPrintable fails the test if a terminal would interpret part of a text.
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

// Every text of the status, including fields that are added later, is displayed without control
// characters.
func TestHostileStatus(t *testing.T) {
	t.Parallel()
	s := poisoned[status.Status](t)
	s.Containers[0].Class, s.Containers[1].Class = workload.LSE, workload.BE
	s.Containers[0].State, s.Containers[1].State = placement.Reserved, placement.Held
	object := poisoned[status.Restored](t)
	for what, write := range map[string]func(io.Writer) error{
		"status":         func(w io.Writer) error { return Status(w, s, false) },
		"status -o wide": func(w io.Writer) error { return Status(w, s, true) },
		"explain":        func(w io.Writer) error { return Explain(w, s, s.Containers, []audit.Entry{*poisoned[audit.Entry](t)}) },
		"batch":          func(w io.Writer) error { return Batch(w, poisoned[batchswitch.Report](t)) },
		"log":            func(w io.Writer) error { return Decision(w, poisoned[audit.Entry](t), true) },
		"doctor":         func(w io.Writer) error { return Doctor(w, poisoned[doctor.Report](t)) },
		"restore":        func(w io.Writer) error { return Restored(w, object, evil, false) },
		"config diff":    func(w io.Writer) error { return ConfigDiff(w, poisoned[status.ConfigDiff](t)) },
		"migrate": func(w io.Writer) error {
			p := poisoned[migrate.Plan](t)
			for i := range p.Pods {
				p.Pods[i].Containers[0].Class, p.Pods[i].Containers[1].Class = workload.LSE, workload.LSR
			}
			return Migration(w, p)
		},
		"plan": func(w io.Writer) error {
			return Plan(w, []whatif.Plan{{Pod: evil, Answers: poisoned[struct{ All []status.Answer }](t).All, Containers: make([]workload.Container, 2)}})
		},
	} {
		checkPrintable(t, what, text(t, write))
	}

	var out bytes.Buffer
	if err := terminal.JSON(&out, s); err != nil {
		t.Fatal(err)
	}
	checkPrintable(t, "JSON", out.String())
	var back struct{ Containers []struct{ Ref string } }
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Containers[0].Ref != strings.ToValidUTF8(evil, "\ufffd") {
		t.Errorf("JSON: another name comes back: %v, %q", err, back.Containers[0].Ref)
	}
}
