package evictorder

import (
	"bytes"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
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
	const wrongUID, wrongForm = "it must be 1 to 128 letters", "a pod is an object with uid, owner and priority"
	owner := strings.Repeat("ü", 3000)
	for text, test := range map[string]struct {
		want  map[string]Pod
		wrong []string
		err   string // "" if the list is right
	}{
		`[]`: {want: map[string]Pod{}},
		`[{"uid":"a","owner":"Job b/c","priority":-5},{"uid":"b"}]`:    {want: map[string]Pod{"a": {"a", "Job b/c", -5}, "b": {UID: "b"}}},
		`[{"uid":"a","owner":"` + owner + `"},{"uid":"b"}]`:            {want: map[string]Pod{"a": {UID: "a", Owner: owner[:396] + "..."}, "b": {UID: "b"}}},
		`[{"uid":""},{"uid":"b"},{"uid":"../x"}]`:                      {want: map[string]Pod{"b": {UID: "b"}}, wrong: []string{wrongUID, wrongUID}},
		`[{"uid":"a","priority":3e9},0,[[]],null,{"uid":"b"}]`:         {want: map[string]Pod{"b": {UID: "b"}}, wrong: []string{wrongForm, wrongForm, wrongForm, wrongUID}},
		`[` + strings.Repeat(`{"uid":"a"},`, MaxPods) + `{"uid":"a"}]`: {err: "more than 2000 pods"},
		`{}`:             {err: "this is no list"},
		`7`:              {err: "this is no list"},
		``:               {err: "EOF"},
		`[{"uid":"a"}`:   {err: "EOF"},
		`[{"uid":"a"},]`: {err: "invalid character"},
		`[{"uid":"a"]`:   {err: "invalid character"},
		`[] []`:          {err: "something follows the list"},
	} {
		var wrong []error
		got, err := DecodePods(strings.NewReader(text), func(err error) { wrong = append(wrong, err) })
		if !maps.Equal(got, test.want) || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%.60s: got %+v, %v; want %+v, %q", text, got, err, test.want, test.err)
		}
		if !slices.EqualFunc(wrong, test.wrong, func(err error, want string) bool { return strings.Contains(err.Error(), want) }) {
			t.Errorf("%.60s: left out for %v, want %q", text, wrong, test.wrong)
		}
	}
}

// A list that is as large as the socket lets it be costs no more memory than a small multiple of
// its bytes, whatever it says.
func TestDecodePodsMemory(t *testing.T) {
	const size = 2 << 20
	for name, test := range map[string]struct {
		list string
		most uint64 // in bytes
	}{
		"numbers":        {"[" + strings.Repeat("0,", size/2) + "0]", 2 << 20},
		"empty objects":  {"[" + strings.Repeat("{},", size/3) + "{}]", 2 << 20},
		"one long owner": {`[{"uid":"a","owner":"` + strings.Repeat("x", size) + `"}]`, 8 * size},
		"a nested list":  {"[[" + strings.Repeat("0,", size/2) + "0]]", 6 * size},
		"a long number":  {`[{"uid":"a","priority":1` + strings.Repeat("0", size) + `}]`, 16 * size},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		pods, err := DecodePods(strings.NewReader(test.list), func(error) {})
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > test.most {
			t.Errorf("%s: %d bytes were allocated, want at most %d", name, used, test.most)
		}
		if len(pods["a"].Owner) > maxOwner {
			t.Errorf("%s: an owner of %d bytes, %v", name, len(pods["a"].Owner), err)
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
		pods, _ := DecodePods(bytes.NewReader(data), func(error) {})
		if len(pods) > MaxPods {
			t.Errorf("%d pods", len(pods))
		}
		for uid, p := range pods {
			if p.UID != uid || !isName(uid, maxUID) || len(p.Owner) > maxOwner {
				t.Errorf("pod %q: %+v", uid, p)
			}
		}
	})
}
