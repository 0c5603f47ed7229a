package daemon

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logs "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
)

func TestServeWeb(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "web.sock")
	ctx, cancel := context.WithCancel(context.Background())
	log, hook := logs.NewNullLogger()
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveWeb(ctx, &config.Web{Listen: socket}, calm{}, log)
	}()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	answer, err := client.Get("http://localhost/v1/status")
	for ; err != nil && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
		answer, err = client.Get("http://localhost/v1/status")
	}
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%v %v", answer, err)
	}
	cancel()
	<-served
	if n := len(hook.AllEntries()); n > 0 {
		t.Errorf("%d lines are logged, %q last", n, hook.LastEntry().Message)
	}
}

// A failure of the node map is logged and stops nothing else.
func TestServeWebTells(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]config.Web{
		"web.tokenFile: open /nonexistent/token": {Listen: "127.0.0.1:1", TokenFile: "/nonexistent/token"},
		"must be 16 to 256 signs long":           {Listen: "127.0.0.1:1", TokenFile: file(t, "token", "short\n")},
		"certificate: open /nonexistent/cert":    {Listen: "127.0.0.1:1", TLS: config.WebTLS{Cert: "/nonexistent/cert", Key: "/nonexistent/key"}},
	} {
		log, hook := logs.NewNullLogger()
		serveWeb(t.Context(), &cfg, calm{}, log)
		last := hook.LastEntry()
		if last == nil || last.Level != logrus.ErrorLevel || !strings.Contains(last.Data[logrus.ErrorKey].(error).Error(), want) {
			t.Errorf("%+v, want %q", last, want)
		}
	}
}

func TestWebToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	for _, cfg := range []config.Web{{Token: token}, {TokenFile: file(t, "token", token+"\n")}} {
		if got, err := webToken(&cfg); got != token || err != nil {
			t.Errorf("%+v: %q %v", cfg, got, err)
		}
	}
	if got, err := webToken(&config.Web{}); got != "" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

// calm is the status of a plugin on a node without problems.
type calm struct{}

func (calm) Status() (*status.Status, error) { return statustest.Calm(), nil }

func (calm) Machine() (*topology.Machine, error) { return synth.Machine("4 cores") }

// file writes a file and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
