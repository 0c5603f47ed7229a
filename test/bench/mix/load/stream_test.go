package load

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func listen(t *testing.T) (l net.Listener, address netip.AddrPort) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Addr().(*net.TCPAddr).AddrPort()
}

// runs sends 200 requests in 100 ms over 8 connections.
func runs(t *testing.T, address netip.AddrPort, p Protocol, patience time.Duration) (*Result, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the generator needs root, to go before the load")
	}
	s, err := Connect(address, 8, p)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Run(Load{Begin: Now(), Due: Schedule([]Phase{{Rate: 2000, For: 100 * time.Millisecond}}, 1), Patience: patience})
}

func TestHTTP(t *testing.T) {
	l, address := listen(t)
	var asked [2]atomic.Int64 // by worker, of which the first has a quarter of the connections
	var connections atomic.Int64
	type key struct{}
	worker := func(r *http.Request) int64 { return r.Context().Value(key{}).(int64) }
	body := strings.Repeat("some text ", 2000)
	server := &http.Server{ReadHeaderTimeout: time.Second, ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, key{}, min(1, connections.Add(1)%4))
	}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			asked[worker(r)].Add(1)
			_, _ = w.Write([]byte(body))
		case "/worker":
			fmt.Fprint(w, worker(r))
		default:
			http.Error(w, "no such page", http.StatusNotFound)
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })

	got, err := runs(t, address, HTTP("/page", "/worker"), 10*time.Second)
	if err != nil || got.Lost > 0 || Quantile(got.Latency, 0) <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if first, second := asked[0].Load(), asked[1].Load(); first+second != int64(len(got.Latency)) || (first-second)/2 != 0 {
		t.Errorf("of %d requests, one worker answered %d and the other one %d", len(got.Latency), first, second)
	}
	if _, err := runs(t, address, HTTP("/other", ""), time.Second); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a page that is not there: %v", err)
	}
}

// A server that answers nothing any more loses requests, which count with the time that was waited.
func TestRedis(t *testing.T) {
	l, address := listen(t)
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
	got, err := runs(t, address, list, 10*time.Second)
	if err != nil || got.Lost > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	silent.Store(true)
	got, err = runs(t, address, list, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got.Lost != len(got.Latency) || Quantile(got.Latency, 0) < 200*time.Millisecond {
		t.Errorf("of %d requests without an answer, %d are lost", len(got.Latency), got.Lost)
	}
}

// An answer counts from when the kernel received it, however late it is read.
func TestArrival(t *testing.T) {
	t.Parallel()
	l, address := listen(t)
	line := Protocol{Receive: func(in *bufio.Reader) error { _, err := in.ReadSlice('\n'); return err }}
	s, err := Connect(address, 1, line)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	answer := func(text string) (from, until int64, answered bool, at int64) {
		from = Now()
		if _, err := server.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		until = Now()
		time.Sleep(20 * time.Millisecond)
		if answered, at, err = s.read(s.all[0], unix.MSG_DONTWAIT, line.Receive); err != nil {
			t.Fatal(err)
		}
		return from, until, answered, at
	}
	answer("the kernel begins to note arrivals a moment after it is asked to\n")
	if _, _, answered, _ := answer("half of"); answered {
		t.Error("half of an answer is one")
	}
	if from, until, answered, at := answer(" one\n"); !answered || at < from || at > until {
		t.Errorf("an answer sent between 0 and %d ns: %t, after %d ns", until-from, answered, at-from)
	}
	if answered, _, err := s.read(s.all[0], unix.MSG_DONTWAIT, line.Receive); answered || err != nil {
		t.Errorf("no answer: %t, %v", answered, err)
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
