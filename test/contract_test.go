package test

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/view/whatif"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// served lists the types that users read as JSON.
func served() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[status.Status](),
		reflect.TypeFor[status.Answer](),
		reflect.TypeFor[status.ConfigDiff](),
		reflect.TypeFor[status.Restored](),
		reflect.TypeFor[statusapi.Log](),
		reflect.TypeFor[batchswitch.Report](),
		reflect.TypeFor[whatif.Plan](),
		reflect.TypeFor[doctor.Report](),
		reflect.TypeFor[sim.Result](),
		reflect.TypeFor[topology.Machine](),
	}
}

// unitless lists the fields whose numbers need no unit in their names, with the reason.
func unitless() map[string]string {
	return map[string]string{
		"status.Usage.waitingThreads":  "a mean number of threads",
		"status.NodeUsage.loadAverage": "a mean number of tasks, by the kernel's own name",
		"control.Fact.value":           "the unit is part of the fact's name",
	}
}

// units lists the endings of names that are units, with the types that may have them.
func units() map[string][]reflect.Type {
	number, count := reflect.TypeFor[float64](), reflect.TypeFor[int]()
	return map[string][]reflect.Type{
		"At":        {reflect.TypeFor[time.Time]()},
		"Nanos":     {reflect.TypeFor[time.Duration]()},
		"MilliCPU":  {reflect.TypeFor[workload.MilliCPU]()},
		"Bytes":     {reflect.TypeFor[int64]()},
		"Seconds":   {reflect.TypeFor[int64](), number},
		"Hours":     {number, count},
		"CPUs":      {number, count},
		"Fraction":  {number}, // of 1
		"Ratio":     {number}, // may exceed 1
		"Percent":   {number, count},
		"PerSecond": {number},
		"BitRate":   {reflect.TypeFor[observe.BitRate]()},
		"PerHour":   {number},
	}
}

// unitOf returns the ending of a name that is a unit; "" for none.
func unitOf(name string) string {
	for unit := range units() {
		if strings.HasSuffix(name, unit) || strings.EqualFold(name, unit) {
			return unit
		}
	}
	return ""
}

// synonyms lists names that are not used, with the name that is used in their place.
func synonyms() map[string]string {
	return map[string]string{"reason": "why", "error": "problem", "n": "count", "setting": "knob", "since": "changedAt", "until": "endsAt"}
}

// TestServedNames checks that names of numbers in the JSON contain the unit, as
// docs/compatibility.md promises, and that nothing has two names.
func TestServedNames(t *testing.T) {
	t.Parallel()
	exceptions := unitless()
	checked := 0
	for at, f := range servedFields(t) {
		checked++
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if better, ok := synonyms()[name]; ok {
			t.Errorf("%s is named %q elsewhere", at, better)
		}
		unit, of := unitOf(name), element(f.Type)
		types, known := units()[unit]
		switch {
		case known && !slices.Contains(types, of) && of.Kind() != reflect.String && of.Kind() != reflect.Struct && !isText(of):
			t.Errorf("%s ends in %s, which a %s can't have", at, unit, of)
		case known || exceptions[at] != "":
			delete(exceptions, at)
		case of == reflect.TypeFor[time.Time]() && name != "time":
			t.Errorf("%s is a point in time: its name must end in At", at)
		case of == reflect.TypeFor[time.Duration]():
			t.Errorf("%s is marshaled as nanoseconds: its name must end in Nanos", at)
		case of == reflect.TypeFor[workload.MilliCPU]():
			t.Errorf("%s is CPU in thousandths: its name must end in MilliCPU", at)
		case of == reflect.TypeFor[int64](), of.Kind() == reflect.Float64:
			t.Errorf("%s has no unit in its name; a count is an int", at)
		}
	}
	if checked < 200 {
		t.Errorf("only %d fields were found", checked)
	}
	for at := range exceptions {
		t.Errorf("%s is an exception and there is no such field", at)
	}
}

// TestServedNamesInGo checks that the names of the status' fields in Go are those of the JSON,
// except for units that the field's type implies.
func TestServedNamesInGo(t *testing.T) {
	t.Parallel()
	for at, f := range servedFields(t) {
		if !strings.HasPrefix(at, "status.") {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch element(f.Type) {
		case reflect.TypeFor[time.Duration](), reflect.TypeFor[workload.MilliCPU](), reflect.TypeFor[observe.BitRate]():
			name = strings.TrimSuffix(name, unitOf(name))
		}
		if !strings.EqualFold(name, f.Name) {
			t.Errorf("%s is %s in Go", at, f.Name)
		}
	}
}

// servedFields returns the fields of all served types, and of the types within them, by their
// names in Go and JSON: "status.Pool.rcfRatio".
func servedFields(t *testing.T) map[string]reflect.StructField {
	t.Helper()
	all := map[string]reflect.StructField{}
	seen := map[reflect.Type]bool{}
	for queue := served(); len(queue) > 0; queue = queue[1:] {
		of := queue[0]
		if seen[of] {
			continue
		}
		seen[of] = true
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() {
				continue
			}
			part := element(f.Type)
			if part.Kind() == reflect.Struct && !isText(part) {
				queue = append(queue, part)
			}
			switch {
			case f.Anonymous && name == "":
			case name == "":
				t.Errorf("%s.%s has no name in JSON", of, f.Name)
			default:
				all[of.String()+"."+name] = f
			}
		}
	}
	return all
}

// element returns the type of a field's value, or of a list's elements.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && !isText(t) {
		t = t.Elem()
	}
	return t
}

// isText reports whether a type marshals itself, as times and sets do.
func isText(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
