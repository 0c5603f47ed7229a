package statusapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/status"
)

// guarded is a source that records rejected clients.
type guarded struct {
	source
	denied atomic.Int64
}

func (g *guarded) Denied(uid uint32) { g.denied.Store(int64(uid)) }

// serve serves until the test ends. It returns when clients can connect.
func serve(t *testing.T, s Source, more ...Route) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "status") // the path of the test's own folder may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "run", "s")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- Serve(ctx, socket, s, more...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
	}
	t.Fatal("no socket")
	return ""
}

func TestSocketModes(t *testing.T) {
	t.Parallel()
	socket := serve(t, source{&status.Status{}})
	for name, want := range map[string]os.FileMode{socket: 0o600, filepath.Dir(socket): 0o700} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	left, err := os.ReadDir(filepath.Dir(socket))
	if err != nil || len(left) != 1 {
		t.Errorf("the socket's folder has %v, %v", left, err)
	}
}

// dialAs connects with the effective user of one thread, which then ends.
func dialAs(t *testing.T, uid int, socket string) net.Conn {
	t.Helper()
	type result struct {
		net.Conn
		error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // the thread is never unlocked, so it ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			done <- result{nil, errno}
			return
		}
		conn, err := net.Dial("unix", socket)
		done <- result{conn, err}
	}()
	r := <-done
	if r.error != nil {
		t.Fatal(r.error)
	}
	return r.Conn
}

// The socket's mode excludes other users; if somebody has opened it to all, the check of the peer
// does.
func TestPeers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: another user can be had by root alone")
	}
	g := &guarded{source: source{&status.Status{Version: "secret"}}}
	socket := serve(t, g)
	for name, mode := range map[string]os.FileMode{socket: 0o666, filepath.Dir(socket): 0o755, filepath.Dir(filepath.Dir(socket)): 0o755} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[int]int{0: http.StatusOK, 65534: http.StatusForbidden} {
		conn := dialAs(t, uid, socket)
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: sluice\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want || strings.Contains(string(body), "secret") != (uid == 0) {
			t.Errorf("user %d: %d %s, %v", uid, response.StatusCode, body, err)
		}
	}
	if uid := g.denied.Load(); uid != 65534 {
		t.Errorf("denied to user %d", uid)
	}
}

// A client can neither keep a connection without a request, nor send without end.
func TestBounds(t *testing.T) {
	t.Parallel()
	socket := serve(t, source{&status.Status{}})
	for name, request := range map[string]string{
		"a long header": "GET /v1/status HTTP/1.1\r\nHost: sluice\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n",
		"a long body":   "POST /v1/plan HTTP/1.1\r\nHost: sluice\r\nContent-Length: 4000000\r\n\r\n{\"pod\":\"" + strings.Repeat("x", 3_999_992),
	} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go io.WriteString(conn, request)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if response.StatusCode < 400 {
			t.Errorf("%s: %s", name, response.Status)
		}
	}
}

// A stream over the socket contains the whole status and then its changes, until the reader stops.
func TestClientStream(t *testing.T) {
	t.Parallel()
	c := &clock{size: 3}
	client := NewClient(serve(t, c))
	enough := errors.New("enough")
	var seen []*status.Status
	err := client.Stream(t.Context(), 100*time.Millisecond, func(s *status.Status) error {
		seen = append(seen, s)
		if len(seen) == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	for i, s := range seen {
		if len(s.Containers) != 3 || s.Containers[0].Ref != "default/pod-000/main" || i > 0 && !s.Time.After(seen[i-1].Time) {
			t.Errorf("%d: %d containers at %v", i, len(s.Containers), s.Time)
		}
	}
	if err := client.Stream(t.Context(), time.Millisecond, nil); err == nil || !strings.Contains(err.Error(), "100ms") {
		t.Errorf("too short an interval: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := client.Stream(ctx, time.Second, func(*status.Status) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a stream that was cancelled: %v", err)
	}
}
