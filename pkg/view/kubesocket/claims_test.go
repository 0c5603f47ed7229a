package kubesocket

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// book is a node that reserves everything, or nothing.
type book struct {
	prepared []claim.Claim
	ended    []string
	err      error
}

func (b *book) Prepare(c *claim.Claim) error { b.prepared = append(b.prepared, *c); return b.err }
func (b *book) End(uid string) error         { b.ended = append(b.ended, uid); return b.err }

func TestClaims(t *testing.T) {
	t.Parallel()
	log := logrus.New()
	log.SetOutput(io.Discard)
	claims := &book{}
	server := httptest.NewUnstartedServer(handler(source{}, kubelink.New(), &Options{Claims: claims, Log: log}))
	socket := filepath.Join(t.TempDir(), "s")
	server.Listener.Close()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	client := NewClient(socket)
	one := claim.Claim{UID: "a-1", Namespace: "shop", Name: "fast", Devices: []claim.Device{{Domain: claim.Domain{Kind: claim.NUMA, Number: 1}, CPUs: 2, Class: workload.LSE}}}
	if err := client.PrepareClaim(t.Context(), &one); err != nil || len(claims.prepared) != 1 || claims.prepared[0].Devices[0] != one.Devices[0] {
		t.Errorf("%+v: %v", claims.prepared, err)
	}
	if err := client.EndClaim(t.Context(), "a-1"); err != nil || len(claims.ended) != 1 {
		t.Errorf("%v: %v", claims.ended, err)
	}
	if err := NewClient(filepath.Join(t.TempDir(), "s")).EndClaim(t.Context(), "a-1"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("without the plugin's socket: %v", err)
	}
	claims.err = errors.New("no CPUs are free")
	if err := client.PrepareClaim(t.Context(), &one); err == nil || !strings.Contains(err.Error(), "no CPUs are free") {
		t.Errorf("a refusal is %v", err)
	}
	if err := client.EndClaim(t.Context(), "a-1"); err == nil {
		t.Error("an end that fails is no error")
	}
	claims.err = nil
	for path, want := range map[string]int{"/a-2": http.StatusBadRequest, "/..%2Fetc": http.StatusBadRequest} {
		for method, body := range map[string]string{http.MethodPut: `{"uid": "a-1", "namespace": "n", "name": "b", "devices": [{"cpus": 1, "class": "LSE"}]}`, http.MethodDelete: ""} {
			if path == "/a-2" && method == http.MethodDelete {
				continue
			}
			w := httptest.NewRecorder()
			handler(source{}, kubelink.New(), &Options{Claims: claims, Log: log}).ServeHTTP(w, httptest.NewRequest(method, ClaimsPath+path, strings.NewReader(body)))
			if w.Code != want {
				t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
			}
		}
	}
	if len(claims.prepared) != 2 || len(claims.ended) != 2 {
		t.Errorf("wrong requests reach the node: %+v, %v", claims.prepared, claims.ended)
	}
}
