package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// sessionCookie holds the result of a login instead of the token. That keeps the token out of
// the browser's cookie store, and out of requests to other ports of the same host, which get
// the cookies, too.
const sessionCookie = "sluice-session"

// policy lets the page load and run only its own parts. Trusted types prevent even a bug in its
// scripts from creating elements from text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard authenticates viewers.
type guard struct {
	token   string
	session string // random for each process
	secure  bool
}

func newGuard(o Options) *guard {
	return &guard{token: o.Token, session: rand.Text(), secure: o.Cert != ""}
}

// all applies the rules for every request.
func (g *guard) all(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		// Another site may resolve its own name to this machine (DNS rebinding), so that the
		// viewer's browser treats both as one site. If a token is required, the browser has
		// none for that name.
		if g.token == "" && !local(r.Host) {
			http.Error(w, "the node map is at localhost, 127.0.0.1 or [::1]; by another name it answers where web.token or web.tokenFile is configured", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local reports whether a Host header names this machine.
func local(host string) bool {
	if name, port, err := net.SplitHostPort(host); err == nil && strings.Trim(port, "0123456789") == "" {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && address.IsLoopback() && address.Zone() == ""
}

// allowed reports whether the viewer has presented the token.
func (g *guard) allowed(r *http.Request) bool {
	if g.token == "" {
		return true
	}
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer, g.token)
	}
	cookie, err := r.Cookie(sessionCookie)
	return err == nil && same(cookie.Value, g.session)
}

// same compares texts in a time that reveals neither the text nor its length.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// page serves the page to authenticated viewers, and a login form to all others.
func (g *guard) page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.allowed(r) {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// data serves authenticated viewers only. A page of another site couldn't read the answers, but
// its visitors' browsers could occupy all streams; browsers say which site sends a request.
func (g *guard) data(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
			http.Error(w, "a page of another site asks: open the node map itself", http.StatusForbidden)
			return
		}
		if !g.allowed(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
			http.Error(w, "the token is missing or wrong: send it as Authorization: Bearer, or log in at /login", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// maxLogin limits the size of a login form.
const maxLogin = 4 << 10

// login reads the token from the form. Another site that sends the form would have to know the
// token, so the form needs no protection against that.
func (g *guard) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if g.token == "" || !same(r.PostFormValue("token"), g.token) {
		http.Redirect(w, r, "/login#wrong", http.StatusSeeOther)
		return
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure where there is TLS: on loopback there need be none
		Name: sessionCookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: g.secure,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
