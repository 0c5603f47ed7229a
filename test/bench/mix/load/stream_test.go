package load

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// listen returns a Unix socket and its path.
func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, socket
}

// runs sends 200 requests in 100 ms over 8 connections.
func runs(t *testing.T, socket string, p Protocol, patience time.Duration) (*Result, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the generator needs root, to go before the load")
	}
	s, err := Connect("unix", socket, 8, p)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Run(Load{Begin: Now(), Due: Schedule([]Phase{{Rate: 2000, For: 100 * time.Millisecond}}, 1), Patience: patience})
}

func TestHTTP(t *testing.T) {
	l, socket := listen(t)
	var asked atomic.Int64
	body := strings.Repeat("some text ", 2000)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/page" {
			http.Error(w, "no such page", http.StatusNotFound)
			return
		}
		asked.Add(1)
		_, _ = w.Write([]byte(body))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })

	got, err := runs(t, socket, HTTP("/page"), 10*time.Second)
	if err != nil || got.Lost > 0 || int64(len(got.Latency)) != asked.Load() || Quantile(got.Latency, 0) <= 0 {
		t.Errorf("%d asked, %+v, %v", asked.Load(), got, err)
	}
	if _, err := runs(t, socket, HTTP("/other"), time.Second); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a page that is not there: %v", err)
	}
}

// A server that answers nothing any more loses requests, which count with the time that was waited.
func TestRedis(t *testing.T) {
	l, socket := listen(t)
	var silent atomic.Bool
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				in := bufio.NewScanner(conn)
				for in.Scan() {
					if in.Text() == "10" && !silent.Load() { // the end of SORT list ALPHA LIMIT 0 10
						_, _ = conn.Write([]byte("*2\r\n$14\r\nelement-000000\r\n$0\r\n\r\n"))
					}
				}
			}()
		}
	}()
	list := Redis(2)
	list.Prepare = nil
	got, err := runs(t, socket, list, 10*time.Second)
	if err != nil || got.Lost > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	silent.Store(true)
	got, err = runs(t, socket, list, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got.Lost != len(got.Latency) || Quantile(got.Latency, 0) < 200*time.Millisecond {
		t.Errorf("of %d requests without an answer, %d are lost", len(got.Latency), got.Lost)
	}
}

func TestRedisAnswers(t *testing.T) {
	t.Parallel()
	for answer, fine := range map[string]bool{
		"*1\r\n$3\r\nabc\r\n": true, "*0\r\n": true,
		"-ERR unknown command\r\n": false, "*x\r\n": false, "*1\r\n:3\r\n": false, "*1\r\n$3\r\na": false, "\r\n": false, "": false,
	} {
		if err := Redis(1).Receive(bufio.NewReader(strings.NewReader(answer))); (err == nil) != fine {
			t.Errorf("%q: %v", answer, err)
		}
	}
}
