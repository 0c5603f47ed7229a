package metrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestServe(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	handler := Handler(fixed{s: full()}, false)
	if err := Serve(t.Context(), address, handler); err == nil || !strings.HasPrefix(err.Error(), "metrics.listen: ") {
		t.Errorf("an address in use gives %v", err)
	}
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, address, handler) }()
	for path, want := range map[string]int{Path: http.StatusOK, "/": http.StatusNotFound, "/v1/status": http.StatusNotFound} {
		if code, _ := ask(t, address, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if _, body := ask(t, address, Path); !strings.Contains(body, "sluice_build_info") {
		t.Error(body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// ask repeats a request until there is an answer, because the server may not have started yet.
func ask(t *testing.T, address, path string) (int, string) {
	t.Helper()
	for t.Context().Err() == nil {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	return 0, ""
}
