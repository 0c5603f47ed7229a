package config

import (
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// Web is the node map, a page for a browser.
type Web struct {
	Listen    string `yaml:"listen"`    // Address of the node map: a port, for example 127.0.0.1:8437, or the path of a unix socket.
	Token     string `yaml:"token"`     // Token of viewers; required if other machines reach the address.
	TokenFile string `yaml:"tokenFile"` // Absolute path of a file with the token.
	TLS       WebTLS `yaml:"tls"`
}

// WebTLS are absolute paths of PEM files; "" is plain HTTP.
type WebTLS struct {
	Cert string `yaml:"cert"` // Path of a PEM certificate; without it, plain HTTP.
	Key  string `yaml:"key"`  // Path of the certificate's key.
}

// Plain reports whether the node map's traffic crosses a network unencrypted.
func (w *Web) Plain() bool { return w.TLS.Cert == "" && !ownAddress(w.Listen) }

// ownAddress reports whether the address is reachable only from this machine.
func ownAddress(listen string) bool {
	if path.IsAbs(listen) {
		return true
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

func (d *decoder) checkWeb(w *Web) {
	switch {
	case w.Listen == "" || path.IsAbs(w.Listen):
	case !addressAndPort(w.Listen):
		d.fail("web.listen", "%s: must be an absolute path of a unix socket, or an address with a port, as 127.0.0.1:8437", quote(w.Listen))
	case !ownAddress(w.Listen) && w.Token == "" && w.TokenFile == "":
		d.fail("web.listen", "%s can be reached from other machines: give web.tokenFile a file with a token, or listen on 127.0.0.1 or a unix socket", quote(w.Listen))
	}
	if w.Token != "" {
		if why := BadWebToken(w.Token); why != "" {
			d.fail("web.token", "%s", why)
		}
		if w.TokenFile != "" {
			d.fail("web.tokenFile", "there is a web.token too; give one of the two")
		}
	}
	for key, file := range map[string]string{"web.tokenFile": w.TokenFile, "web.tls.cert": w.TLS.Cert, "web.tls.key": w.TLS.Key} {
		if file != "" {
			d.absolute(key, file)
		}
	}
	if (w.TLS.Cert == "") != (w.TLS.Key == "") {
		d.fail("web.tls", "cert and key go together: the one is there, the other isn't")
	}
}

// addressAndPort reports whether one can listen on an address. It accepts no names except
// localhost, because a name may later resolve to any address.
func addressAndPort(listen string) bool {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return false
	}
	if host == "" || host == "localhost" { // "" is all addresses
		return true
	}
	_, err = netip.ParseAddr(host)
	return err == nil
}

// BadWebToken says why a token is not acceptable, "" if it is. The text never contains the
// token.
func BadWebToken(token string) string {
	const least, most = 16, 256
	if len(token) < least || len(token) > most {
		return "must be 16 to 256 signs long, so that nobody guesses it; this has " + strconv.Itoa(len(token))
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "must be made of ASCII letters, digits and signs without white space, as a browser and a header carry them"
	}
	return ""
}
