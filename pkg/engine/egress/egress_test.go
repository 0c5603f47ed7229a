package egress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/network"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// node is a network that tests make up. Its pods send 1,000 bytes for each millisecond, and so does its link
// for each pod.
type node struct {
	mu       sync.Mutex
	uplinks  []string
	speed    int64
	speeds   int              // how often it was read
	pods     map[int]*fakePod // by process
	leftover int              // pods that an earlier process has limited
	fail     error            // of the link
	bursts   bool             // pods send three times as much in every second second, and the link counts once a second
}

type fakePod struct {
	n       *node
	pid     int
	limit   int64
	set     int    // how often its limit was set
	before  uint64 // what it had sent by node.sent when it began
	closed  bool
	refuses error
	hangs   chan struct{} // until which it does not answer; nil to answer at once
	partly  bool          // it limits the pod although it refuses: on some devices
}

func newNode() *node {
	return &node{uplinks: []string{"eth0"}, speed: 10e9, pods: map[int]*fakePod{}}
}

// sent is what a pod has sent at a time.
func (n *node) sent(at time.Time) uint64 {
	ms := uint64(at.UnixMilli())
	if n.bursts {
		ms += min(ms%2000, 2000-ms%2000) / 2
	}
	return ms * 1000
}

func (n *node) Uplinks() ([]string, error) { return n.uplinks, n.fail }
func (n *node) Speed(string) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.speeds++
	return n.speed, nil
}
func (n *node) Sent(string) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.bursts {
		now = now.Truncate(time.Second)
	}
	sum := uint64(0)
	for _, p := range n.pods {
		sum += n.sent(now) - p.before
	}
	return sum, n.fail
}

func (n *node) Pod(pid int, _ string) (Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pods[pid]
	if p == nil {
		return nil, fmt.Errorf("process %d: %w", pid, os.ErrNotExist)
	}
	p.closed = false
	return p, nil
}

func (n *node) Release(keep []network.ID, _ bool) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.leftover
	n.leftover = len(keep)
	return was - len(keep), nil
}

func (p *fakePod) ID() network.ID { return network.ID{} }

func (p *fakePod) Sent() (uint64, error) { return p.n.sent(time.Now()) - p.before, nil }

func (p *fakePod) Limit(bits int64) error {
	if p.hangs != nil {
		<-p.hangs
	}
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.set++
	if p.refuses == nil || p.partly {
		p.limit = bits
	}
	return p.refuses
}

func (p *fakePod) Release() error {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.limit = 0
	return nil
}

func (p *fakePod) IsLimited() (bool, error) { return p.limit != 0, nil }

func (p *fakePod) Close() { p.closed = true }

// add adds a pod whose process has that number.
func (n *node) add(pid int) (*fakePod, Target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &fakePod{n: n, pid: pid}
	n.pods[pid] = p
	return p, Target{UID: fmt.Sprint("pod-", pid), Process: pid}
}

// during runs a test in virtual time, with a shaper that has a mark.
func during(t *testing.T, do func(t *testing.T, n *node, s *Shaper, ctx context.Context)) {
	t.Helper()
	mark := filepath.Join(t.TempDir(), "egress")
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		ctx, end := context.WithCancel(t.Context())
		do(t, n, New(n, mark), ctx)
		end()
		synctest.Wait()
		for _, p := range n.pods {
			if !p.closed {
				t.Errorf("the network of pod %d is still open", p.pid)
			}
		}
	})
}

func TestShaper(t *testing.T) {
	t.Parallel()
	during(t, func(t *testing.T, n *node, s *Shaper, ctx context.Context) {
		a, first := n.add(1)
		b, second := n.add(2)
		s.Follow(ctx, &Link{FloorPercent: 5}, []Target{first, second})
		synctest.Wait()
		if now := s.Latest(); !now.At.IsZero() || now.Problem != "" {
			t.Errorf("one reading makes no rate: %+v", now)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		now := s.Latest()
		if now.Sent != 16e6 || now.Speed != 10e9 || strings.Join(now.Devices, " ") != "eth0" {
			t.Errorf("the link: %+v", now)
		}
		if p := now.Pods["pod-1"]; p.Sent != 8e6 || !p.At.Equal(now.At) || p.Limit != 0 || p.Problem != "" {
			t.Errorf("a pod: %+v", p)
		}

		s.Limit(map[string]observe.BitRate{"pod-1": 5e6, "pod-2": 6e6})
		synctest.Wait()
		if a.limit != 5e6 || b.limit != 6e6 || s.Latest().Pods["pod-2"].Limit != 6e6 {
			t.Errorf("limits %d, %d: %+v", a.limit, b.limit, s.Latest().Pods)
		}
		if text, err := os.ReadFile(s.mark); err != nil || string(text) != "250000000" {
			t.Errorf("the mark says that each of two pods may send %q on a link of 10 Gbit/s, want 250 Mbit/s: %v", text, err)
		}
		time.Sleep(checkTime + time.Second)
		synctest.Wait()
		if a.set != 2 {
			t.Errorf("in half a minute, the limit was set %d times", a.set)
		}
		s.Limit(map[string]observe.BitRate{"pod-1": 5e6})
		s.Follow(ctx, &Link{}, []Target{first})
		synctest.Wait()
		if b.limit != 0 || !b.closed || a.limit != 5e6 {
			t.Errorf("the limit of a pod that is not followed: %d, open %t", b.limit, !b.closed)
		}
		s.Limit(nil)
		synctest.Wait()
		if a.limit != 0 {
			t.Errorf("the limit is %d", a.limit)
		}
		s.Limit(map[string]observe.BitRate{"pod-1": 5e6})
		synctest.Wait()
	})
}

// TestLinkAlone measures the link before the first pod, and forgets it while nothing is measured.
func TestLinkAlone(t *testing.T) {
	t.Parallel()
	during(t, func(t *testing.T, n *node, s *Shaper, ctx context.Context) {
		_, target := n.add(1)
		s.Follow(ctx, &Link{}, nil)
		time.Sleep(2 * usualInterval)
		synctest.Wait()
		if now := s.Latest(); now.Sent != 8e6 || now.At.IsZero() {
			t.Errorf("without a pod: %+v", now)
		}
		s.Follow(ctx, nil, nil)
		synctest.Wait()
		if now := s.Latest(); !now.At.IsZero() || now.Sent != 0 {
			t.Errorf("nothing is measured, but %+v", now)
		}
		time.Sleep(time.Hour)
		s.Follow(ctx, &Link{}, []Target{target})
		synctest.Wait()
		if now := s.Latest(); !now.At.IsZero() {
			t.Errorf("a rate is the mean of an hour: %+v", now)
		}
	})
}

// TestEnd keeps the limits when the process ends, and takes them over in the next one.
func TestEnd(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "egress")
	n := newNode()
	a, target := n.add(1)
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		s := New(n, mark)
		s.Follow(ctx, &Link{}, []Target{target})
		s.Limit(map[string]observe.BitRate{"pod-1": 5e6})
		synctest.Wait()
		end()
	})
	if a.limit != 5e6 {
		t.Errorf("the limit is %d after the end", a.limit)
	}
	n.leftover = 3
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		New(n, mark).Follow(ctx, &Link{}, []Target{target})
		synctest.Wait()
		end()
	})
	if n.leftover != 1 {
		t.Errorf("%d limits are left of pods that are not followed", n.leftover-1)
	}
	if a.limit != 5e6 {
		t.Errorf("before anything is decided, the limit is %d", a.limit)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		s := New(n, mark)
		s.Follow(ctx, &Link{}, []Target{target})
		s.Limit(nil)
		synctest.Wait()
		end()
	})
	if a.limit != 0 {
		t.Errorf("the limit of the earlier process is still %d", a.limit)
	}
	n.leftover = 1
	if pods, err := Restore(n, mark, false); pods != 1 || err != nil {
		t.Errorf("%d pods, %v", pods, err)
	}
	if pods, err := Restore(n, mark, false); pods != 0 || err != nil {
		t.Errorf("nothing is left, but %d pods, %v", pods, err)
	}
}

// TestTroubles lets the network fail in each way.
func TestTroubles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		with func(*node, *fakePod, *Shaper)
		link string
		pod  string
	}{
		"no route":         {func(n *node, _ *fakePod, _ *Shaper) { n.uplinks = nil }, "the node has no default route: name the devices", ""},
		"no speed":         {func(n *node, _ *fakePod, _ *Shaper) { n.speed = 0 }, "the kernel knows no speed of device eth0: set control.egress.linkSpeed", ""},
		"no link":          {func(n *node, _ *fakePod, _ *Shaper) { n.fail = errors.New("eth0 is gone") }, "eth0 is gone", ""},
		"no pod":           {func(n *node, _ *fakePod, _ *Shaper) { delete(n.pods, 1) }, "", "file does not exist"},
		"a pod's qdisc":    {func(_ *node, p *fakePod, _ *Shaper) { p.refuses = errors.New("somebody else's") }, "", "somebody else's"},
		"no place to note": {func(_ *node, _ *fakePod, s *Shaper) { s.mark = "/nonexistent/egress" }, "", "noting that pods have limits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			during(t, func(t *testing.T, n *node, s *Shaper, ctx context.Context) {
				p, target := n.add(1)
				c.with(n, p, s)
				s.Follow(ctx, &Link{}, []Target{target})
				s.Limit(map[string]observe.BitRate{"pod-1": 5e6})
				time.Sleep(2 * time.Second)
				synctest.Wait()
				now := s.Latest()
				if !strings.Contains(now.Problem, c.link) || (c.link == "") != (now.Problem == "") {
					t.Errorf("link: %q, want %q", now.Problem, c.link)
				}
				if got := now.Pods["pod-1"].Problem; !strings.Contains(got, c.pod) || (c.pod == "") != (got == "") {
					t.Errorf("pod: %q, want %q", got, c.pod)
				}
				if text, err := os.ReadFile(s.mark); strings.Contains(c.link, "speed") && string(text) != "0" {
					t.Errorf("the mark says %q of a link of unknown speed: %v", text, err)
				}
				if p.set > 3 {
					t.Errorf("in two seconds, a limit was tried %d times", p.set)
				}
			})
		})
	}
}

// TestPartly limits a pod on some of its devices only: that limit follows what is decided, and ends.
func TestPartly(t *testing.T) {
	t.Parallel()
	during(t, func(t *testing.T, n *node, s *Shaper, ctx context.Context) {
		p, target := n.add(1)
		p.refuses, p.partly = errors.New("device net1 has a qdisc"), true
		s.Follow(ctx, &Link{}, []Target{target})
		s.Limit(map[string]observe.BitRate{"pod-1": 5e6})
		synctest.Wait()
		s.Limit(map[string]observe.BitRate{"pod-1": 1e6})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if p.limit != 1e6 {
			t.Errorf("two seconds after it was decided, the limit is %d", p.limit)
		}
		s.Limit(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if p.limit != 0 {
			t.Errorf("the limit %d is left", p.limit)
		}
	})
}

// TestLate has the kernel answer late: nobody else waits, and the reading that does not come is missed.
func TestLate(t *testing.T) {
	t.Parallel()
	during(t, func(t *testing.T, n *node, s *Shaper, ctx context.Context) {
		p, target := n.add(1)
		s.Follow(ctx, &Link{}, []Target{target})
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.Latest().Problem != "" || n.speeds > 7 {
			t.Errorf("problem %q, and the speed was read %d times in a minute", s.Latest().Problem, n.speeds)
		}
		p.hangs = make(chan struct{})
		s.Limit(map[string]observe.BitRate{"pod-1": 5e6})
		time.Sleep(lateTime + time.Second)
		s.Follow(ctx, &Link{}, []Target{target})
		if got := s.Latest().Problem; got != "the kernel has not answered for more than 10s" {
			t.Errorf("problem %q", got)
		}
		close(p.hangs)
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.Latest().Problem; got != "" || p.limit != 5e6 {
			t.Errorf("after the answer, problem %q, limit %d", got, p.limit)
		}
	})
}

// TestSameTime measures pods that send in bursts over a link whose driver counts once a second, and a pod that has
// sent before it is read first. Nobody else sends.
func TestSameTime(t *testing.T) {
	t.Parallel()
	during(t, func(t *testing.T, n *node, s *Shaper, ctx context.Context) {
		n.bursts = true
		_, first := n.add(1)
		follow := []Target{first}
		s.Follow(ctx, &Link{}, follow)
		synctest.Wait()
		for at := range 100 {
			time.Sleep(usualInterval)
			switch at {
			case 51: // a whole second
				synctest.Wait()
				second, _ := n.add(2)
				second.before = n.sent(time.Now())
			case 53:
				follow = append(follow, Target{UID: "pod-2", Process: 2})
				s.Follow(ctx, &Link{}, follow)
			}
			synctest.Wait()
			if now := s.Latest(); at > 8 && (now.Sent != now.Batch || now.Batch == 0) {
				t.Errorf("at reading %d, the link sends %s and batch work %s", at, now.Sent, now.Batch)
			}
		}
	})
}

// TestLowerNothing lowers nothing where there is no mark, and says so where it can't be read.
func TestLowerNothing(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), MarkFile)
	if n, err := Lower("/", mark); n != 0 || err != nil {
		t.Errorf("%d pods, %v", n, err)
	}
	if err := os.WriteFile(mark, []byte("much"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := Lower("/", mark); n != 0 || err == nil || !strings.Contains(err.Error(), mark) {
		t.Errorf("%d pods, %v", n, err)
	}
}
