package statusapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/audit"
)

// Log is a part of the audit trail.
type Log struct {
	Entries []audit.Entry `json:"entries"` // Decisions, oldest first.
	More    bool          `json:"more"`    // Whether older decisions were left out because of the limit.
	Broken  int           `json:"broken"`  // Number of lines in the trail that cannot be read.
}

// These are the limits of a Log.
const (
	usualEntries = 500
	mostEntries  = 5000
)

// LogRoute serves the audit trail in a folder.
func LogRoute(trail fs.FS) Route {
	reading := make(chan struct{}, 1) // only one reader at a time, because the trail has up to 32 MiB
	return Route{"GET /v1/log", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		filter, limit, err := logQuery(r.URL.Query(), time.Now())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case reading <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-reading }()
		l, err := readLog(trail, filter, limit, r.Context().Err)
		answer(w, l, err)
	})}
}

// logQuery parses a query.
func logQuery(query url.Values, now time.Time) (f audit.Filter, limit int, err error) {
	limit = usualEntries
	for name := range query {
		text := query.Get(name)
		switch name {
		case "since":
			f.Since, err = timeOf(text, now)
		case "pod":
			f.Object = text
		case "controller":
			f.Controller = text
		case "limit":
			if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostEntries {
				err = fmt.Errorf("limit %q: it is a number from 1 to %d", text, mostEntries)
			}
		default:
			err = fmt.Errorf("%q: the log is asked by since, pod, controller and limit", name)
		}
		if err != nil {
			return f, 0, err
		}
	}
	return f, limit, nil
}

// timeOf parses a time in RFC 3339's format, or a duration before now.
func timeOf(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, fmt.Errorf("since %q: it is a time as 2026-05-01T12:00:00Z, or how long ago, as 10m", text)
	}
	return at, nil
}

// readLog reads the newest entries, and stops when the client disconnects.
func readLog(trail fs.FS, f audit.Filter, limit int, gone func() error) (*Log, error) {
	var last []audit.Entry // a ring buffer once it is full
	read := 0
	broken, err := audit.Read(trail, f, func(e audit.Entry) error {
		if len(last) < limit {
			last = append(last, e)
		} else {
			last[read%limit] = e
		}
		read++
		return gone()
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l := &Log{Entries: make([]audit.Entry, 0, len(last)), More: read > limit, Broken: broken}
	if read > limit {
		l.Entries = append(l.Entries, last[read%limit:]...)
		last = last[:read%limit]
	}
	l.Entries = append(l.Entries, last...)
	return l, nil
}
