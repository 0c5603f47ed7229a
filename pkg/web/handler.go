package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"sync"
	"time"
)

//go:embed page
var page embed.FS

// Handler is the page, its data, and the guard before them.
func Handler(o Options, source Source) http.Handler {
	g := newGuard(o)
	mux := http.NewServeMux()
	for name, file := range files() {
		mux.Handle("GET /"+name, file)
	}
	mux.Handle("GET /{$}", g.page(files()["index.html"]))
	mux.Handle("GET /login", files()["login.html"])
	mux.HandleFunc("POST /login", g.login)
	mux.Handle("GET /v1/status", g.data(&recent{read: func() (any, error) { return source.Status() }}))
	mux.Handle("GET /v1/topology", g.data(&recent{read: func() (any, error) { return source.Machine() }}))
	return g.all(mux)
}

// file is one file of the page.
type file struct {
	kind, tag string
	body      []byte
}

// files are the page's files by their names. They hold nothing of this node: anybody
// may have them.
func files() map[string]file {
	all := map[string]file{}
	entries, err := fs.ReadDir(page, "page")
	if err != nil {
		panic(err) // the folder is part of the binary
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

// kindOf is a file's type by its name. The system's table may have another for
// scripts, which browsers then refuse.
func kindOf(name string) string {
	if path.Ext(name) == ".js" {
		return "text/javascript; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // ask each time: the next build has other files
	h.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Write(f.body) //nolint:errcheck // the viewer has gone
}

// recentFor is how long an answer counts as new. Viewers ask once a second.
const recentFor = 500 * time.Millisecond

// recent answers with what was read a moment ago, if it was: many viewers cost the
// agent hardly more than one.
type recent struct {
	read func() (any, error)

	mu   sync.Mutex
	at   time.Time
	body []byte
}

func (c *recent) answer() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.body != nil && time.Since(c.at) < recentFor {
		return c.body, nil
	}
	value, err := c.read()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	c.body, c.at = append(body, '\n'), time.Now()
	return c.body, nil
}

func (c *recent) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, err := c.answer()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(body) //nolint:errcheck // the viewer has gone
}
