package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

//go:embed page
var page embed.FS

// Handler serves the page and its data behind the guard.
func Handler(o Options, source statusapi.Reader) http.Handler {
	g := newGuard(o)
	mux := http.NewServeMux()
	for name, file := range files() {
		mux.Handle("GET /"+name, file)
	}
	mux.Handle("GET /{$}", g.page(files()["index.html"]))
	mux.Handle("GET /login", files()["login.html"])
	mux.HandleFunc("POST /login", g.login)
	mux.Handle("/v1/", g.data(statusapi.Data(&recent{Reader: source})))
	return g.all(mux)
}

// file is one file of the page.
type file struct {
	kind, tag string
	body      []byte
}

// files returns the page's files by their names. They contain nothing about this node, so
// anybody may read them.
func files() map[string]file {
	all := map[string]file{}
	entries, err := fs.ReadDir(page, "page")
	if err != nil {
		panic(err) // fails only without the embedded folder
	}
	for _, entry := range entries {
		body, err := fs.ReadFile(page, path.Join("page", entry.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		all[entry.Name()] = file{kind: kindOf(entry.Name()), tag: `"` + hex.EncodeToString(sum[:8]) + `"`, body: body}
	}
	return all
}

// kindOf returns a file's media type by its name. The system's table may have a different type
// for scripts, which browsers then refuse.
func kindOf(name string) string {
	if path.Ext(name) == ".js" {
		return "text/javascript; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // revalidate each time: the next build has other files
	h.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Write(f.body) //nolint:errcheck // fails only if the viewer has disconnected
}

// recentFor is the time for which a status is reused. Streams read one a second, unless a
// viewer asks for more.
const recentFor = 500 * time.Millisecond

// recent caches the last status, so that many viewers cost the agent hardly more than one.
type recent struct {
	statusapi.Reader

	mu   sync.Mutex
	at   time.Time
	last *status.Status
}

// Status returns a status that is at most recentFor old.
func (c *recent) Status() (*status.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && time.Since(c.at) < recentFor {
		return c.last, nil
	}
	s, err := c.Reader.Status()
	if err != nil {
		return nil, err
	}
	c.last, c.at = s, time.Now()
	return s, nil
}
