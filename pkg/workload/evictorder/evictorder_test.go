package evictorder

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func order(change func(*Order)) Order {
	now := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	o := Order{ID: "a-1", UID: "u-1", Namespace: "batch", Name: "p", GraceSeconds: 1, Why: "memory is short", DecidedAt: now, Deadline: now.Add(time.Minute)}
	if change != nil {
		change(&o)
	}
	return o
}

func TestDecodeOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Order)
		err    string // "" if the order is right
	}{
		"right":                    {nil, ""},
		"with a cool-down":         {func(o *Order) { o.CoolDownUntil = o.Deadline }, ""},
		"without an id":            {func(o *Order) { o.ID = "" }, `id ""`},
		"a uid that leaves a path": {func(o *Order) { o.UID = "../x" }, `uid "../x"`},
		"a name of two parts":      {func(o *Order) { o.Name = "a/b" }, `name "a/b"`},
		"a namespace of dots":      {func(o *Order) { o.Namespace = ".." }, `namespace ".."`},
		"no grace":                 {func(o *Order) { o.GraceSeconds = 0 }, "graceSeconds 0"},
		"a year of grace":          {func(o *Order) { o.GraceSeconds = 1 << 30 }, "graceSeconds 1073741824"},
		"no deadline":              {func(o *Order) { o.Deadline = time.Time{} }, "no deadline"},
		"a long reason":            {func(o *Order) { o.Why = strings.Repeat("x", 3000) }, "why has 3000 bytes"},
		"too long":                 {func(o *Order) { o.Why = strings.Repeat("x", MaxMessage) }, "at most 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := order(test.change)
			data, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeOrder(data)
			if test.err == "" && (err != nil || got != want) {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}

func TestDecodeAnswer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // text to error, "" for none
		`{"outcome":"evicted"}`:                         "",
		`{"outcome":"refused","reason":"budget"}`:       "",
		`{"outcome":"refused"}`:                         "needs a reason",
		`{"outcome":"perhaps","reason":"x"}`:            "must be evicted, refused, gone or failed",
		`[]`:                                            "JSON object",
		`{"outcome":7}`:                                 "JSON object",
		`"` + strings.Repeat("x", MaxMessage) + `"`:     "at most",
		`{"outcome":"` + strings.Repeat("x", 90) + `"}`: "...",
	} {
		_, err := DecodeAnswer([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
	long, err := DecodeAnswer([]byte(`{"outcome":"failed","reason":"` + strings.Repeat("ü", 1500) + `"}`))
	if err != nil || len(long.Reason) > 2000 || !strings.HasSuffix(long.Reason, "ü...") {
		t.Errorf("a long reason became one of %d bytes, %v", len(long.Reason), err)
	}
}

func TestDecodePods(t *testing.T) {
	t.Parallel()
	got, err := DecodePods([]byte(`[{"uid":"a","owner":"Job b/c","priority":-5},{"uid":"b"}]`))
	if err != nil || len(got) != 2 || got["a"] != (Pod{"a", "Job b/c", -5}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		`{}`:                           "JSON list",
		`[{"uid":""}]`:                 `pods[0]: uid ""`,
		`[{"uid":"a","priority":3e9}]`: "JSON list",
		`[{"uid":"a","owner":"` + strings.Repeat("x", 3000) + `"}]`:    "owner has 3000 bytes",
		`[` + strings.Repeat(`{"uid":"a"},`, MaxPods) + `{"uid":"a"}]`: "has 2001 pods",
	} {
		if _, err := DecodePods([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// What is accepted keeps its bounds, and is read again as it is written.
func FuzzDecode(f *testing.F) {
	right, err := json.Marshal(order(nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(right)
	f.Add([]byte(`{"outcome":"refused","reason":"budget"}`))
	f.Add([]byte(`[{"uid":"a","owner":"Job b/c","priority":-5}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if o, err := DecodeOrder(data); err == nil {
			again, err := json.Marshal(o)
			if err != nil {
				t.Skip("a year beyond 9999 has no JSON")
			}
			if len(again) <= MaxMessage {
				if _, err := DecodeOrder(again); err != nil {
					t.Errorf("%s: %v", again, err)
				}
			}
		}
		if a, err := DecodeAnswer(data); err == nil && len(a.Reason) > maxText {
			t.Errorf("a reason of %d bytes", len(a.Reason))
		}
		if pods, err := DecodePods(data); err == nil && len(pods) > MaxPods {
			t.Errorf("%d pods", len(pods))
		}
	})
}
