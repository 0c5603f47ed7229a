package nodereport

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func sample() *Report {
	return &Report{
		Schema: Schema, MeasuredAt: time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC),
		Requested: Amount{MilliCPU: 4000, MemoryBytes: 8 << 30},
		Used:      &Amount{MilliCPU: 1500, MemoryBytes: 3 << 30},
		Sellable:  &Offers{Amount{MilliCPU: 6000, MemoryBytes: 20 << 30}, Amount{MilliCPU: 2000, MemoryBytes: 10 << 30}},
		Bound:     Offers{Amount{MilliCPU: 1000, MemoryBytes: 1 << 30}, Amount{}},

		Scheduling: &Scheduling{AllocatableMilliCPU: 31000, OvercommitRatio: 0.161, RoomMilliCPU: new(int64(4000))},
	}
}

// The annotation is read by other programs: its keys stay as they are.
func TestText(t *testing.T) {
	t.Parallel()
	text, err := sample().Text()
	want := `{"schema":1,"measuredAt":"2026-11-23T07:00:00Z","requested":{"milliCPU":4000,"memoryBytes":8589934592},` +
		`"used":{"milliCPU":1500,"memoryBytes":3221225472},` +
		`"sellable":{"shortTerm":{"milliCPU":6000,"memoryBytes":21474836480},"longTerm":{"milliCPU":2000,"memoryBytes":10737418240}},` +
		`"bound":{"shortTerm":{"milliCPU":1000,"memoryBytes":1073741824},"longTerm":{"milliCPU":0,"memoryBytes":0}},` +
		`"scheduling":{"allocatableMilliCPU":31000,"overcommitRatio":0.161,"roomMilliCPU":4000}}`
	if err != nil || text != want {
		t.Errorf("%v, %s\nwant %s", err, text, want)
	}
	if back, err := Parse(text); err != nil || !reflect.DeepEqual(back, sample()) {
		t.Errorf("it is read as %+v, %v", back, err)
	}
	largest := sample()
	for _, a := range []*Amount{&largest.Requested, largest.Used, &largest.Sellable.ShortTerm, &largest.Sellable.LongTerm, &largest.Bound.ShortTerm, &largest.Bound.LongTerm} {
		*a = Amount{MilliCPU: 1 << 52, MemoryBytes: MaxAmount}
	}
	largest.Scheduling = &Scheduling{MaxAmount, 123456789.123, new(MaxAmount)}
	if text, err := largest.Text(); err != nil || 3*len(text) > MaxBytes {
		t.Errorf("the longest report has %d bytes, %v", len(text), err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                            "is not the JSON",
		"x":                           "is not the JSON",
		"[]":                          "is not the JSON",
		"{}":                          "schema 0",
		`{"schema":2,"requested":[]}`: "schema 2",
		`{"schema":1,"used":7}`:       "is not the JSON",
		`{"schema":1,"requested":{"milliCPU":-1}}`:                              "requested.milliCPU of -1",
		`{"schema":1,"sellable":{"longTerm":{"memoryBytes":4503599627370497}}}`: "sellable.longTerm.memoryBytes of 4503599627370497",
		`{"schema":1,"scheduling":{"overcommitRatio":-0.1}}`:                    "scheduling",
		`{"schema":1,"scheduling":{"roomMilliCPU":-1}}`:                         "scheduling",
		`{"schema":1,"scheduling":{"allocatableMilliCPU":4503599627370497}}`:    "scheduling",
		`{"schema":1,"requested":{"milliCPU":1e30}}`:                            "is not the JSON",
		`{"schema":1,"x":"` + strings.Repeat("y", MaxBytes) + `"}`:              "bytes, and at most 2048",
	} {
		if r, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), Annotation) {
			t.Errorf("%.60s: %+v, %v, want an error with %q", text, r, err, says)
		}
	}
	if r, err := Parse(`{"schema":1,"new":{}}`); err != nil || r.Used != nil || r.Sellable != nil {
		t.Errorf("an unknown field: %+v, %v", r, err)
	}
}

func TestMoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Report)
		want   bool
	}{
		"nothing":                {func(*Report) {}, false},
		"a later measurement":    {func(r *Report) { r.MeasuredAt = r.MeasuredAt.Add(time.Hour) }, false},
		"less than a tenth":      {func(r *Report) { r.Requested.MilliCPU -= 399 }, false},
		"a tenth less":           {func(r *Report) { r.Requested.MilliCPU -= 400 }, true},
		"a tenth more":           {func(r *Report) { r.Used.MemoryBytes += 3 << 30 / 10 }, true},
		"a little of nothing":    {func(r *Report) { r.Bound.LongTerm.MilliCPU = 99 }, false},
		"as much as is shown":    {func(r *Report) { r.Bound.LongTerm.MemoryBytes = 64 << 20 }, true},
		"sellable is lost":       {func(r *Report) { r.Sellable = nil }, true},
		"usage is lost":          {func(r *Report) { r.Used = nil }, true},
		"another room":           {func(r *Report) { r.Scheduling.RoomMilliCPU, r.Scheduling.OvercommitRatio = new(int64(0)), 7 }, false},
		"the room is lost":       {func(r *Report) { r.Scheduling = nil }, true},
		"sellable for long":      {func(r *Report) { r.Sellable.LongTerm.MilliCPU = 0 }, true},
		"much, and it overflows": {func(r *Report) { r.Bound.ShortTerm.MemoryBytes = MaxAmount }, true},
	} {
		r := sample()
		test.change(r)
		if got := r.Moved(sample()); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
		if r.Moved(nil) != true {
			t.Errorf("%s: a node without a report", name)
		}
	}
}

// Whatever an annotation says, it is a possible report or an error.
func FuzzParse(f *testing.F) {
	text, _ := sample().Text()
	f.Add(text)
	f.Add(`{"schema":1,"requested":{"milliCPU":9223372036854775807},"used":null}`)
	f.Add(`[{"schema":1}]`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			if r != nil {
				t.Fatalf("%q is both a report and %v", text, err)
			}
			return
		}
		for _, figure := range r.figures() {
			if figure.value < 0 || figure.value > MaxAmount {
				t.Errorf("%q has %s of %d", text, figure.name, figure.value)
			}
		}
		if r.Scheduling != nil && !r.Scheduling.Possible() {
			t.Errorf("%q has %+v", text, r.Scheduling)
		}
		again, err := json.Marshal(r)
		if err != nil {
			return // a time that cannot be written: no report of sluice-kube has one
		}
		if back, err := Parse(string(again)); err != nil || back.Moved(r) {
			t.Errorf("%q is read as %s, and then as %+v, %v", text, again, back, err)
		}
	})
}
