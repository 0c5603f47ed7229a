package config

import (
	"strings"
	"testing"
)

func TestWeb(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // "" if the text is valid
		`{}`:                             "",
		`{listen: /run/sluice/web.sock}`: "",
		`{listen: "127.0.0.1:8437"}`:     "",
		`{listen: "[::1]:8437"}`:         "",
		`{listen: "localhost:8437"}`:     "",
		`{listen: "10.0.0.5:8437", token: abcdefghijklmnop}`:                                                   "",
		`{listen: ":8437", tokenFile: /etc/sluice/web.token}`:                                                  "",
		`{listen: "[::]:8437", tokenFile: /etc/t, tls: {cert: /etc/sluice/web.crt, key: /etc/sluice/web.key}}`: "",

		`{listen: "0.0.0.0:8437"}`:                            "web.listen: \"0.0.0.0:8437\" can be reached from other machines: give web.tokenFile",
		`{listen: ":8437"}`:                                   "can be reached from other machines",
		`{listen: "10.0.0.5:8437"}`:                           "can be reached from other machines",
		`{listen: "[::ffff:10.0.0.5]:8437"}`:                  "can be reached from other machines",
		`{listen: "10.0.0.5:8437", tls: {cert: /c, key: /k}}`: "can be reached from other machines",
		`{listen: web.sock}`:                                  "web.listen: \"web.sock\": must be an absolute path of a unix socket, or an address with a port",
		`{listen: "localhost:0"}`:                             "must be an absolute path",
		`{listen: "127.0.0.1"}`:                               "must be an absolute path",
		`{listen: "node.one:8437"}`:                           "must be an absolute path",
		`{listen: "1.2.3.4:http"}`:                            "must be an absolute path",

		`{token: short}`:                                   "web.token: must be 16 to 256 signs long, so that nobody guesses it; this has 5",
		`{token: "with white space in it"}`:                "without white space",
		`{token: "ümläüt-ümläüt-ümläüt"}`:                  "ASCII",
		`{token: abcdefghijklmnop, tokenFile: /etc/t}`:     "web.tokenFile: there is a web.token too",
		`{tokenFile: web.token}`:                           "web.tokenFile: \"web.token\": must be an absolute path",
		`{tls: {cert: /etc/sluice/web.crt}}`:               "web.tls: cert and key go together",
		`{tls: {key: web.key, cert: /etc/sluice/web.crt}}`: "web.tls.key: \"web.key\": must be an absolute path",
	} {
		_, err := Parse([]byte("web: " + text + "\n"))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// An error about a token doesn't contain it, because errors are written to logs.
func TestWebTokenIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"secret", "secret with white space"} {
		if _, err := Parse([]byte("web: {token: " + token + "}\n")); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestWebPlain(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]bool{
		"/run/web.sock": false, "127.0.0.1:1": false, "127.9.9.9:1": false, "[::1]:1": false, "localhost:1": false,
		"[::ffff:127.0.0.1]:1": false, "0.0.0.0:1": true, ":1": true, "10.0.0.1:1": true,
	} {
		if got := (&Web{Listen: listen}).Plain(); got != want {
			t.Errorf("%s: %v, want %v", listen, got, want)
		}
		if (&Web{Listen: listen, TLS: WebTLS{Cert: "c", Key: "k"}}).Plain() {
			t.Errorf("%s is plain with TLS", listen)
		}
	}
}
