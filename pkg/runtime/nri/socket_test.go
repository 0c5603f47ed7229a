package nri

import (
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// line forwards connections between the plugin and the runtime, and can be cut.
type line struct {
	mu         sync.Mutex
	open       []net.Conn
	live, most atomic.Int32
}

func wire(t *testing.T, from, to string) *line {
	t.Helper()
	l, err := net.Listen("unix", from)
	if err != nil {
		t.Fatal(err)
	}
	w := &line{}
	t.Cleanup(func() { l.Close(); w.cut() })
	go func() {
		for {
			plugin, err := l.Accept()
			if err != nil {
				return
			}
			runtime, err := net.Dial("unix", to)
			if err != nil {
				plugin.Close()
				continue
			}
			w.mu.Lock()
			w.open = append(w.open, plugin, runtime)
			w.mu.Unlock()
			w.most.Store(max(w.most.Load(), w.live.Add(1)))
			go func() {
				io.Copy(plugin, runtime)
				plugin.Close()
			}()
			go func() {
				io.Copy(runtime, plugin)
				w.live.Add(-1)
				runtime.Close()
			}()
		}
	}()
	return w
}

// cut ends all connections.
func (w *line) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.open {
		conn.Close()
	}
	w.open = nil
}

type pair struct {
	runtime net.Conn
	number  string // number of the plugin's file descriptor
}

func socketPair(t *testing.T) pair {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "runtime")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pair{runtime: conn, number: strconv.Itoa(fds[1])}
}
