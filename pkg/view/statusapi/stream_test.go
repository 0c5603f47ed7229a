package statusapi

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
)

// clock is a source whose status has the time, and which counts the requests.
type clock struct {
	source
	asked atomic.Int64
	ended atomic.Bool
	size  int
}

func (c *clock) Status() (*status.Status, error) {
	if c.ended.Load() {
		return nil, errors.New("the end")
	}
	c.asked.Add(1)
	s := crowd(c.size)
	s.Time = time.Now().UTC()
	return s, nil
}

func TestHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &clock{}
		h := newHub(c)
		began := time.Now()
		at := func(f *follower) time.Duration { return (<-f.next).Time.Sub(began) }
		slow, fast := h.join(time.Second), h.join(200*time.Millisecond)
		for i := range 5 {
			if got, want := at(fast), time.Duration(i+1)*200*time.Millisecond; got != want {
				t.Errorf("a snapshot of %v, want %v", got, want)
			}
		}
		if got := at(slow); got != time.Second {
			t.Errorf("the slow one has a snapshot of %v", got)
		}
		if n := c.asked.Load(); n > 6 {
			t.Errorf("%d snapshots in a second for two followers", n)
		}
		h.leave(fast)
		time.Sleep(10 * time.Second) // the client reads nothing
		synctest.Wait()
		if got := at(slow); got < 10*time.Second {
			t.Errorf("who takes one late has that of %v, not the newest", got)
		}
		h.leave(slow)
		synctest.Wait()
		n := c.asked.Load()
		time.Sleep(time.Minute)
		if c.asked.Load() != n {
			t.Error("snapshots are taken for nobody")
		}

		again := h.join(time.Second)
		at(again)
		c.ended.Store(true)
		if _, more := <-again.next; more {
			t.Error("the stream has no end though the plugin has")
		}
		h.leave(again)
	})
}

func TestTooManyFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(&clock{})
		var all []*follower
		for range mostFollowers {
			all = append(all, h.join(time.Minute))
		}
		if h.join(time.Minute) != nil {
			t.Error("one too many")
		}
		for _, f := range all {
			h.leave(f)
		}
		f := h.join(time.Minute)
		if f == nil {
			t.Error("nobody may follow any more")
		}
		h.leave(f)
	})
}

// pipes is a listener in memory for a server in virtual time.
type pipes struct {
	calls chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(t *testing.T, request string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	p.calls <- theirs
	if _, err := io.WriteString(ours, request); err != nil {
		t.Fatal(err)
	}
	return ours
}

// A client that reads nothing is dropped after a while, and delays nobody.
func TestStalledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &clock{size: 50}
		h := newHub(c)
		p := &pipes{calls: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: h, ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime}
		go server.Serve(p)
		const request = "GET /v1/stream?interval=1s HTTP/1.1\r\nHost: sluice\r\n\r\n"
		stalled, reading := p.dial(t, request), p.dial(t, request)
		lines := make(chan string, 1000)
		go func() {
			response, err := http.ReadResponse(bufio.NewReader(reading), nil)
			if err != nil {
				t.Error(err)
				return
			}
			for in := bufio.NewReaderSize(response.Body, 1<<20); ; {
				line, err := in.ReadString('\n')
				if err != nil {
					close(lines)
					return
				}
				lines <- line
			}
		}()
		time.Sleep(60*time.Second + 500*time.Millisecond)
		synctest.Wait()
		if n := len(lines); n != 61 {
			t.Errorf("the client that reads has %d lines after a minute", n)
		}
		h.mu.Lock()
		if n := len(h.followers); n != 1 {
			t.Errorf("%d followers: the stalled one is still there", n)
		}
		h.mu.Unlock()
		stalled.Close()
		reading.Close()
		server.Close()
		synctest.Wait()
	})
}

func TestIntervalOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": time.Second, "100ms": 100 * time.Millisecond, "1h": time.Hour,
		"99ms": 0, "-1s": 0, "2h": 0, "soon": 0, "1": 0,
	} {
		got, err := intervalOf(url.Values{"interval": {text}})
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
