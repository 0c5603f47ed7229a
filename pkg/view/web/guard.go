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

// sessionCookie holds what a login gives instead of the token, so that the token
// itself stays out of the browser's store, and of the requests to other ports of the
// same host, to which cookies go as well.
const sessionCookie = "sluice-session"

// policy lets the page load and do only what is part of it. Trusted types keep even a
// mistake in its scripts from making elements out of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard lets viewers in.
type guard struct {
	token   string
	session string // of this process: it ends with it
	secure  bool
}

func newGuard(o Options) *guard {
	return &guard{token: o.Token, session: rand.Text(), secure: o.Cert != ""}
}

// all is what counts for every request.
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
		// A site of somebody else's may let its own name lead to this machine (DNS
		// rebinding): the viewer's browser then takes the two for one site. Where a
		// token is asked for it has none for that name.
		if g.token == "" && !local(r.Host) {
			http.Error(w, "the node map is at localhost, 127.0.0.1 or [::1]; by another name it answers where web.token or web.tokenFile is configured", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local reports whether a Host header names this machine, whoever asks.
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

// allowed reports whether the viewer has shown the token.
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

// same compares in a time that tells neither the text nor its length.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// page lets those in who may, and asks the others for the token.
func (g *guard) page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.allowed(r) {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// data answers only those who may. A page of another site couldn't read the answers,
// but it could hold all streams in its visitors' names: browsers tell who asks.
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

// maxLogin bounds a login form.
const maxLogin = 4 << 10

// login takes the token from the form. Another site that sends the form would have to
// know the token, so it needs no guard of its own.
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
