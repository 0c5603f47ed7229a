package statusapi

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
)

// These are the limits of a stream.
const (
	leastInterval = 100 * time.Millisecond
	usualInterval = time.Second
	mostInterval  = time.Hour
	mostFollowers = 32
)

// hub streams the status to its followers. One goroutine takes snapshots for all of them, at
// the rate of the fastest, and none while there is no follower. It never waits for a slow
// follower, which gets the newest snapshot after it has sent a line: one patch with all changes
// since that line.
type hub struct {
	source Reader

	mu        sync.Mutex
	followers map[*follower]struct{}
	running   bool
	changed   chan struct{} // a follower has joined or left

	patching sync.Mutex
	fields   *fields
	nothing  *status.Status // the status from which a follower's first patch starts
	newest   *status.Status
	patches  map[*status.Status][]byte // patches to the newest snapshot
}

// follower is one stream.
type follower struct {
	every time.Duration
	due   time.Time
	next  chan *status.Status // the newest snapshot that it has not received; closed at the end
}

// Stream serves the status as a stream of JSON lines, of which each is a merge patch of the
// status before it.
func Stream(source Reader) http.Handler { return newHub(source) }

func newHub(source Reader) *hub {
	return &hub{source: source, followers: map[*follower]struct{}{}, changed: make(chan struct{}, 1), fields: newFields(), nothing: &status.Status{}}
}

// ServeHTTP streams until the client disconnects, or accepts no line for ten seconds.
func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	every, err := intervalOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	now, err := h.source.Status()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	f := h.join(every)
	if f == nil {
		http.Error(w, fmt.Sprintf("%d clients are following already, which is the most: end one of them, or ask for /v1/status", mostFollowers), http.StatusServiceUnavailable)
		return
	}
	defer h.leave(f)
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Time{}); err != nil { // a stream has no end
		http.Error(w, "a bug: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	for has := h.nothing; ; {
		line, err := h.patch(has, now)
		if err != nil {
			return
		}
		has = now
		if connection.SetWriteDeadline(time.Now().Add(writeTime)) != nil {
			return
		}
		if _, err := w.Write(line); err != nil {
			return
		}
		if connection.Flush() != nil {
			return
		}
		var more bool
		select {
		case <-r.Context().Done():
			return
		case now, more = <-f.next:
			if !more {
				return
			}
		}
	}
}

// intervalOf returns the minimum time between two lines that a query asks for.
func intervalOf(query url.Values) (time.Duration, error) {
	text := query.Get("interval")
	if text == "" {
		return usualInterval, nil
	}
	every, err := time.ParseDuration(text)
	if err != nil || every < leastInterval || every > mostInterval {
		return 0, fmt.Errorf("interval %q: it is a time from %v to %v, as 500ms", text, leastInterval, mostInterval)
	}
	return every, nil
}

// patch returns the line from one snapshot to another; all followers that need it share it.
func (h *hub) patch(from, to *status.Status) ([]byte, error) {
	h.patching.Lock()
	defer h.patching.Unlock()
	if h.newest != to {
		h.newest, h.patches = to, map[*status.Status][]byte{}
	}
	if line, ok := h.patches[from]; ok {
		return line, nil
	}
	line, err := h.fields.patch(from, to)
	if err == nil {
		h.patches[from] = line
	}
	return line, err
}

// join adds a follower; it returns nil if there are too many.
func (h *hub) join(every time.Duration) *follower {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.followers) == mostFollowers {
		return nil
	}
	f := &follower{every: every, due: time.Now().Add(every), next: make(chan *status.Status, 1)}
	h.followers[f] = struct{}{}
	if !h.running {
		h.running = true
		go h.run()
	}
	h.notify()
	return f
}

func (h *hub) leave(f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.followers, f)
	h.notify()
}

func (h *hub) notify() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *hub) run() {
	for {
		wait, some := h.wait()
		if !some {
			return
		}
		select {
		case <-h.changed:
			continue
		case <-time.After(wait):
		}
		s, err := h.source.Status()
		h.offer(s, err)
	}
}

// wait returns the time until the next snapshot; some is false if there are no followers.
func (h *hub) wait() (wait time.Duration, some bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for f := range h.followers {
		if due := f.due.Sub(now); !some || due < wait {
			wait, some = due, true
		}
	}
	h.running = some
	if !some {
		h.forget()
	}
	return wait, some
}

// forget releases the last snapshot.
func (h *hub) forget() {
	h.patching.Lock()
	defer h.patching.Unlock()
	h.newest, h.patches = nil, nil
}

// offer gives a snapshot to the followers that are due. An error means that the plugin is
// stopping, so that the followers end, too.
func (h *hub) offer(s *status.Status, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for f := range h.followers {
		if err != nil {
			delete(h.followers, f)
			close(f.next)
			continue
		}
		if f.due.After(now) {
			continue
		}
		f.due = now.Add(f.every)
		select {
		case <-f.next: // the follower has not received the previous snapshot
		default:
		}
		f.next <- s // never blocks, because there is no other sender
	}
}
