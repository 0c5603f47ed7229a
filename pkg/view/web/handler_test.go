package web

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
)

const token = "0123456789abcdef"

// plugin answers and counts the requests.
type plugin struct {
	asked *atomic.Int64
	err   error
}

func (p plugin) Status() (*status.Status, error) {
	if p.asked != nil {
		p.asked.Add(1)
	}
	return &status.Status{Version: "1"}, p.err
}

func (p plugin) Machine() (*topology.Machine, error) {
	if p.err != nil {
		return nil, p.err
	}
	return synth.Machine("2 cores")
}

// ask sends one request; host is the Host header.
func ask(t *testing.T, h http.Handler, method, host, target string, headers map[string]string, body io.Reader) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, body)
	r.Host = host
	for key, value := range headers {
		r.Header.Set(key, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// logIn returns the cookie that the login form sets.
func logIn(t *testing.T, h http.Handler, with string) (*http.Response, string) {
	t.Helper()
	form := url.Values{"token": {with}}.Encode()
	r := ask(t, h, http.MethodPost, "node:8437", "/login", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, strings.NewReader(form))
	cookies := r.Cookies()
	if len(cookies) == 0 {
		return r, ""
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || strings.Contains(c.Value, token) || len(c.Value) < 26 || len(cookies) > 1 {
		t.Errorf("the cookies are %+v", cookies)
	}
	return r, c.Name + "=" + c.Value
}

// Requests are answered or rejected by their token and by their Host header.
func TestWhoIsLetIn(t *testing.T) {
	t.Parallel()
	guarded := Handler(Options{Token: token}, plugin{})
	open := Handler(Options{}, plugin{})
	_, cookie := logIn(t, guarded, token)
	_, foreign := logIn(t, Handler(Options{Token: token}, plugin{}), token)
	bearer := func(text string) map[string]string { return map[string]string{"Authorization": text} }
	for name, c := range map[string]struct {
		handler http.Handler
		method  string
		host    string
		target  string
		headers map[string]string
		want    int
	}{
		"localhost":                      {open, "GET", "localhost:8437", "/v1/status", nil, 200},
		"in capitals":                    {open, "GET", "LocalHost", "/v1/status", nil, 200},
		"127.0.0.1":                      {open, "GET", "127.0.0.1:8437", "/v1/topology", nil, 200},
		"::1":                            {open, "GET", "[::1]:8437", "/", nil, 200},
		"::1 without a port":             {open, "GET", "[::1]", "/", nil, 200},
		"another name":                   {open, "GET", "evil.example:8437", "/v1/status", nil, 421},
		"a name that looks local":        {open, "GET", "localhost.evil.example", "/v1/status", nil, 421},
		"a number in a name":             {open, "GET", "127.0.0.1.evil.example", "/v1/status", nil, 421},
		"a page by another name":         {open, "GET", "evil.example", "/", nil, 421},
		"an address of the node":         {open, "GET", "10.0.0.5:8437", "/v1/status", nil, 421},
		"no name":                        {open, "GET", "", "/v1/status", nil, 421},
		"a zone":                         {open, "GET", "[::1%25lo]:8437", "/v1/status", nil, 421},
		"nothing shown":                  {guarded, "GET", "node:8437", "/v1/status", nil, 401},
		"nothing shown on localhost":     {guarded, "GET", "localhost:8437", "/v1/topology", nil, 401},
		"the page without a token":       {guarded, "GET", "node:8437", "/", nil, 303},
		"the form without a token":       {guarded, "GET", "node:8437", "/login", nil, 200},
		"its style without a token":      {guarded, "GET", "node:8437", "/style.css", nil, 200},
		"bearer":                         {guarded, "GET", "node:8437", "/v1/status", bearer("Bearer " + token), 200},
		"bearer and page":                {guarded, "GET", "node:8437", "/", bearer("Bearer " + token), 200},
		"wrong bearer":                   {guarded, "GET", "node:8437", "/v1/status", bearer("Bearer " + token + "0"), 401},
		"a part of it":                   {guarded, "GET", "node:8437", "/v1/status", bearer("Bearer " + token[:15]), 401},
		"empty bearer":                   {guarded, "GET", "node:8437", "/v1/status", bearer("Bearer "), 401},
		"basic":                          {guarded, "GET", "node:8437", "/v1/status", bearer("Basic " + token), 401},
		"cookie":                         {guarded, "GET", "node:8437", "/v1/status", map[string]string{"Cookie": cookie}, 200},
		"cookie of another run":          {guarded, "GET", "node:8437", "/v1/status", map[string]string{"Cookie": foreign}, 401},
		"token as cookie":                {guarded, "GET", "node:8437", "/v1/status", map[string]string{"Cookie": sessionCookie + "=" + token}, 401},
		"wrong bearer, right cookie":     {guarded, "GET", "node:8437", "/v1/status", map[string]string{"Cookie": cookie, "Authorization": "Bearer x"}, 401},
		"its own page's script":          {open, "GET", "localhost", "/v1/status", map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		"typed into a browser":           {open, "GET", "localhost", "/v1/status", map[string]string{"Sec-Fetch-Site": "none"}, 200},
		"another site's script":          {open, "GET", "localhost", "/v1/stream", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		"another port's script":          {open, "GET", "localhost", "/v1/stream", map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		"a link from another site":       {open, "GET", "localhost", "/", map[string]string{"Sec-Fetch-Site": "cross-site"}, 200},
		"a stream by another name":       {open, "GET", "evil.example", "/v1/stream", nil, 421},
		"a stream without a token":       {guarded, "GET", "node:8437", "/v1/stream", nil, 401},
		"what the log holds":             {open, "GET", "localhost", "/v1/log", nil, 404},
		"token in the address":           {guarded, "GET", "node:8437", "/v1/status?token=" + token, nil, 401},
		"post":                           {open, "POST", "localhost", "/v1/status", nil, 405},
		"delete":                         {open, "DELETE", "localhost", "/v1/status", nil, 405},
		"put a file":                     {open, "PUT", "localhost", "/main.js", nil, 405},
		"what if":                        {open, "POST", "localhost", "/v1/plan", nil, 404},
		"a file that is not there":       {open, "GET", "localhost", "/etc/passwd", nil, 404},
		"a folder":                       {open, "GET", "localhost", "/page/", nil, 404},
		"a way out of the folder":        {open, "GET", "localhost", "/..%2fguard.go", nil, 404},
		"log in where there is no token": {open, "POST", "localhost", "/login", nil, 303},
	} {
		r := ask(t, c.handler, c.method, c.host, c.target, c.headers, nil)
		if r.StatusCode != c.want {
			t.Errorf("%s: %d %s, want %d", name, r.StatusCode, read(t, r), c.want)
		}
		for header, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Access-Control-Allow-Origin": ""} {
			if got := r.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q", name, header, got)
			}
		}
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	h := Handler(Options{Token: token}, plugin{})
	for _, wrong := range []string{"", "x", token + " ", strings.Repeat("x", 2*maxLogin)} {
		if r, cookie := logIn(t, h, wrong); cookie != "" || r.Header.Get("Location") != "/login#wrong" {
			t.Errorf("%.20q gives %q, %s", wrong, cookie, r.Header.Get("Location"))
		}
	}
	r, cookie := logIn(t, h, token)
	if cookie == "" || r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/" || r.Cookies()[0].Secure {
		t.Errorf("%d, cookie %q", r.StatusCode, cookie)
	}
	if r, _ := logIn(t, Handler(Options{Token: token, Cert: "c"}, plugin{}), token); !r.Cookies()[0].Secure {
		t.Error("with TLS the cookie goes over plain HTTP too")
	}
	if _, cookie := logIn(t, Handler(Options{}, plugin{}), ""); cookie != "" {
		t.Error("there is a session without a token")
	}
}

func TestData(t *testing.T) {
	t.Parallel()
	h := Handler(Options{}, plugin{})
	var s status.Status
	r := ask(t, h, "GET", "localhost", "/v1/status", nil, nil)
	if err := json.Unmarshal([]byte(read(t, r)), &s); err != nil || s.Version != "1" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %+v %v", err, s, r.Header)
	}
	var m topology.Machine
	if err := json.Unmarshal([]byte(read(t, ask(t, h, "GET", "localhost", "/v1/topology", nil, nil))), &m); err != nil || len(m.Cores) != 2 {
		t.Errorf("%v %+v", err, m.Cores)
	}
	r = ask(t, Handler(Options{}, plugin{err: errors.New("the loop is busy")}), "GET", "localhost", "/v1/status", nil, nil)
	if text := read(t, r); r.StatusCode != http.StatusServiceUnavailable || text != "the loop is busy\n" {
		t.Errorf("%d %s", r.StatusCode, text)
	}
}

// Many viewers cause no more requests to the agent than one that asks twice a second.
func TestViewersShareAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		h := Handler(Options{}, plugin{asked: &asked})
		for range 100 {
			go ask(t, h, "GET", "localhost", "/v1/status", nil, nil)
		}
		synctest.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(recentFor)
		ask(t, h, "GET", "localhost", "/v1/status", nil, nil)
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

// The page is small and complete, loads nothing from elsewhere, and never turns text into markup.
func TestPage(t *testing.T) {
	t.Parallel()
	const most = 100 << 10
	h := Handler(Options{}, plugin{})
	size := 0
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	banned := regexp.MustCompile(`https?:|//[a-z0-9-]+\.|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\son[a-z]+=|\sstyle=|<style|<script[^>]*>[^<]|javascript:|import\(`)
	for name, f := range files() {
		size += len(f.body)
		r := ask(t, h, "GET", "localhost", "/"+name, nil, nil)
		if read(t, r) != string(f.body) || r.Header.Get("Content-Type") != kinds[path.Ext(name)] {
			t.Errorf("%s is %q", name, r.Header.Get("Content-Type"))
		}
		if r := ask(t, h, "GET", "localhost", "/"+name, map[string]string{"If-None-Match": r.Header.Get("ETag")}, nil); r.StatusCode != http.StatusNotModified {
			t.Errorf("%s is sent again: %d", name, r.StatusCode)
		}
		text := strings.ReplaceAll(string(f.body), `xmlns="http://www.w3.org/2000/svg"`, "")
		if found := banned.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
		for _, m := range regexp.MustCompile(`(?:from '\./|href="|src=")([^'"#]+)['"]`).FindAllStringSubmatch(text, -1) {
			if _, is := files()[m[1]]; !is {
				t.Errorf("%s wants %s, which is not there", name, m[1])
			}
		}
		if lines := strings.Count(text, "\n"); lines > 400 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
	t.Logf("the page is %d bytes", size)
	if size > most {
		t.Errorf("the page is %d bytes, it is to be under %d", size, most)
	}
}

// The page's bounds of latencies are the plugin's.
func TestLatencyBounds(t *testing.T) {
	t.Parallel()
	var bounds []string
	for _, b := range status.LatencyBounds() {
		bounds = append(bounds, strconv.FormatFloat(float64(b)/float64(time.Millisecond), 'g', -1, 64))
	}
	if want := "const bounds = [" + strings.Join(bounds, ", ") + "];"; !strings.Contains(string(files()["more.js"].body), want) {
		t.Errorf("more.js is to have %s", want)
	}
}

func FuzzLocal(f *testing.F) {
	for _, host := range []string{"localhost", "localhost:80", "127.0.0.1", "[::1]:80", "evil.example", "127.0.0.1.evil", "[::1%lo]", ":80", "localhost:\n", ""} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !local(host) {
			return
		}
		if !regexp.MustCompile(`^((?i:localhost)|\[?127\.[0-9]+\.[0-9]+\.[0-9]+\]?|\[?[0-9a-fA-F:.]+\]?)(:[0-9]*)?$`).MatchString(host) {
			t.Errorf("%q is taken for this machine", host)
		}
	})
}

func BenchmarkStatus(b *testing.B) {
	h := Handler(Options{}, plugin{})
	r := httptest.NewRequest(http.MethodGet, "/v1/status", nil)
	r.Host = "localhost"
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}
