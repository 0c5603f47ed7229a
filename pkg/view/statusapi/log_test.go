package statusapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/audit"
)

// trail holds ten decisions, one a minute from noon on.
func trail() fstest.MapFS {
	var text strings.Builder
	for i := range 10 {
		fmt.Fprintf(&text, `{"time":"2026-05-01T12:%02d:00Z","mode":"on","controller":"%s","object":"pod a/%d","action":"x","why":"y"}`+"\n", i, []string{"pools", "burst"}[i%2], i)
	}
	text.WriteString(`{"time":"2026-`)
	return fstest.MapFS{"audit.jsonl": {Data: []byte(text.String())}}
}

func TestLog(t *testing.T) {
	t.Parallel()
	route := LogRoute(trail())
	for query, c := range map[string]struct {
		code int
		want string
		more bool
	}{
		"":                                      {200, "0123456789", false},
		"limit=3":                               {200, "789", true},
		"limit=10":                              {200, "0123456789", false},
		"since=2026-05-01T12:08:00Z":            {200, "89", false},
		"since=2026-05-01T12:02:00Z&limit=4":    {200, "6789", true},
		"controller=burst&limit=2":              {200, "79", true},
		"pod=a/4":                               {200, "4", false},
		"pod=a/4&controller=burst":              {200, "", false},
		"since=876000h":                         {200, "0123456789", false},
		"since=yesterday":                       {400, "", false},
		"limit=0":                               {400, "", false},
		"limit=5001":                            {400, "", false},
		"limit=many":                            {400, "", false},
		"object=a":                              {400, "", false},
		"since=2026-05-01T12:08:00%2B02:00":     {200, "0123456789", false},
		"since=2026-05-01T14:08:00.000%2B02:00": {200, "89", false},
	} {
		w := httptest.NewRecorder()
		route.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/log?"+query, nil))
		if w.Code != c.code {
			t.Errorf("%s: %d: %s", query, w.Code, w.Body)
			continue
		}
		if c.code != 200 {
			continue
		}
		var l Log
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range l.Entries {
			got += strings.TrimPrefix(e.Object, "pod a/")
		}
		if got != c.want || l.More != c.more || l.Broken != 1 {
			t.Errorf("%s: %q, more %v, broken %d; want %q, %v, 1", query, got, l.More, l.Broken, c.want, c.more)
		}
	}
}

// The log of a folder without a trail is empty.
func TestNoLog(t *testing.T) {
	t.Parallel()
	l, err := readLog(fstest.MapFS{}, audit.Filter{}, 5, func() error { return nil })
	if err != nil || l.Entries == nil || len(l.Entries) > 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

func FuzzLogQuery(f *testing.F) {
	f.Add("since=10m&pod=a/b&controller=pools&limit=5")
	f.Add("since=2026-05-01T12:00:00Z")
	now := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		filter, limit, err := logQuery(query, now)
		if err == nil && (limit < 1 || limit > mostEntries || filter.Since.After(now) && query.Get("since") == "") {
			t.Errorf("%q: %+v, %d", text, filter, limit)
		}
	})
}
