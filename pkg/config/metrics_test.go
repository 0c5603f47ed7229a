package config

import (
	"strings"
	"testing"
)

func TestMetricsListen(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]struct{ err, warning string }{
		"":                  {},
		"127.0.0.1:9745":    {},
		"127.8.9.10:1":      {},
		"[::1]:9745":        {},
		"0.0.0.0:9745":      {warning: "metrics.listen: 0.0.0.0:9745 is not loopback"},
		"[::]:9745":         {warning: "127.0.0.1:9745 and a proxy"},
		"192.168.1.7:65535": {warning: "without a password"},
		"localhost:9745":    {err: `line 1: metrics.listen: "localhost:9745": must be an IP address and a port, as in 127.0.0.1:9745`},
		":9745":             {err: "or empty for none"},
		"9745":              {err: "must be an IP address and a port"},
		"127.0.0.1:0":       {err: "must be an IP address and a port"},
		"127.0.0.1:65536":   {err: "must be an IP address and a port"},
		"127.0.0.1":         {err: "must be an IP address and a port"},
		"::1:9745":          {err: "must be an IP address and a port"},
		"/run/metrics.sock": {err: "must be an IP address and a port"},
	} {
		c, err := Parse([]byte("metrics: {listen: \"" + listen + "\"}\n"))
		if want.err != "" {
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%q: %v, want %q", listen, err, want.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", listen, err)
			continue
		}
		warnings := strings.Join(c.Warnings(), "\n")
		if (want.warning == "") != (warnings == "") || !strings.Contains(warnings, want.warning) {
			t.Errorf("%q warns %q, want %q", listen, warnings, want.warning)
		}
	}
}

func TestMetricsWarningTellsOfNames(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte("metrics: {listen: \"10.0.0.1:9745\", containers: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "names of pods") {
		t.Errorf("%q", w)
	}
}
