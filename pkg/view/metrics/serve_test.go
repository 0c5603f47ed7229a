package metrics

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
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

// Idle connections are bounded, and lock out no scraper for as long as one waits for its answer.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, address, Handler(fixed{s: full()}, false)) }()
	ask(t, address, "/") // it has started
	http.DefaultClient.CloseIdleConnections()

	served, closed := 0, 0
	for range maxConnections + 10 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(idleTime))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: sluice\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		switch {
		case err == nil:
			answer.Body.Close()
			served++
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatal("a connection beyond the limit waits")
		default:
			closed++
		}
	}
	if served > maxConnections || closed < 10 {
		t.Errorf("%d connections are served and %d closed, want at most %d served", served, closed, maxConnections)
	}
	const scrapeTimeout = 10 * time.Second // Prometheus' default
	began := time.Now()
	if code, _ := ask(t, address, Path); code != http.StatusOK || time.Since(began) > scrapeTimeout {
		t.Errorf("beside idle connections a scrape gets %d after %s", code, time.Since(began))
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
			time.Sleep(10 * time.Millisecond)
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
