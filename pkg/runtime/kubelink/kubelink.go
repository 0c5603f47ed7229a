// Package kubelink is the node's side of the connection to sluice-kube, which alone may talk to
// the API server. The node orders evictions through a Link, and sluice-kube takes the orders,
// answers them, and tells what the API knows of the node's pods. Nothing that sluice-kube does
// or fails to do holds the node up.
package kubelink

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// maxOrders bounds the orders that wait for an answer. The control loop has one or two at a time.
const maxOrders = 64

// Link holds the orders until they are answered. It is safe for concurrent use.
type Link struct {
	boot string // distinguishes the orders of this process from those of an earlier one
	pods atomic.Pointer[map[string]evictorder.Pod]

	mu      sync.Mutex
	last    int // number of the newest order
	waiting []*waiting
	session *Session // the newest connection; nil if there is none
}

// waiting is an order without an answer.
type waiting struct {
	number int
	order  evictorder.Order
	answer chan evictorder.Answer // has room for the one answer
}

// New returns a Link to which nobody is connected.
func New() *Link { return &Link{boot: rand.Text()[:10]} }

// Order gives an order out and waits for its answer until the context ends. It sets the order's
// ID, and its deadline to that of the context. If nobody is connected it returns
// evictorder.ErrNobody at once. An order that was given out survives a reconnection.
func (l *Link) Order(ctx context.Context, o evictorder.Order) (evictorder.Answer, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return evictorder.Answer{}, fmt.Errorf("a bug: the order to evict %s/%s has no deadline", o.Namespace, o.Name)
	}
	o.Deadline = deadline
	w, err := l.add(o)
	if err != nil {
		return evictorder.Answer{}, err
	}
	defer l.remove(w)
	select {
	case a := <-w.answer:
		return a, nil
	case <-ctx.Done():
		return evictorder.Answer{}, fmt.Errorf("sluice-kube gave no answer about pod %s/%s in time: %w", o.Namespace, o.Name, ctx.Err())
	}
}

func (l *Link) add(o evictorder.Order) (*waiting, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		return nil, evictorder.ErrNobody
	}
	if len(l.waiting) >= maxOrders {
		return nil, fmt.Errorf("%d evictions wait for an answer of sluice-kube, which is the most", maxOrders)
	}
	l.last++
	o.ID = l.boot + "-" + strconv.Itoa(l.last)
	w := &waiting{number: l.last, order: o, answer: make(chan evictorder.Answer, 1)}
	l.waiting = append(l.waiting, w)
	l.session.tell()
	return w, nil
}

func (l *Link) remove(w *waiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(other *waiting) bool { return other == w })
}

// Answer passes an answer on. It reports whether the order still waits for one.
func (l *Link) Answer(id string, a evictorder.Answer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.waiting, func(w *waiting) bool { return w.order.ID == id })
	if i < 0 {
		return false
	}
	l.waiting[i].answer <- a
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// IsConnected reports whether somebody takes orders.
func (l *Link) IsConnected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session != nil
}

// SetPods replaces what the API knows of the node's pods, by UID. The map must not be changed
// afterwards.
func (l *Link) SetPods(pods map[string]evictorder.Pod) { l.pods.Store(&pods) }

// Pods returns what the API knows of the node's pods, by UID; nil before sluice-kube has told
// it. The map must not be changed.
func (l *Link) Pods() map[string]evictorder.Pod {
	if pods := l.pods.Load(); pods != nil {
		return *pods
	}
	return nil
}

// Session is one connection of sluice-kube.
type Session struct {
	link *Link
	sent int           // number of the newest order sent over this connection
	news chan struct{} // there may be an order to send
	over chan struct{} // closed when a newer connection has taken its place
}

// Connect begins a session, which takes the place of an earlier one: only one sluice-kube
// carries out orders at a time. It gets all orders that wait for an answer.
func (l *Link) Connect() *Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		close(l.session.over)
	}
	l.session = &Session{link: l, news: make(chan struct{}, 1), over: make(chan struct{})}
	l.session.tell()
	return l.session
}

// Close ends the session.
func (s *Session) Close() {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.link.session == s {
		s.link.session = nil
	}
}

func (s *Session) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Next waits for the next order. more is false when the context has ended or a newer session has
// begun.
func (s *Session) Next(ctx context.Context) (o evictorder.Order, more bool) {
	for {
		if o, ok := s.next(); ok {
			return o, true
		}
		select {
		case <-s.news:
		case <-s.over:
			return o, false
		case <-ctx.Done():
			return o, false
		}
	}
}

func (s *Session) next() (o evictorder.Order, ok bool) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.link.session != s {
		return o, false
	}
	for _, w := range s.link.waiting { // the oldest first
		if w.number > s.sent {
			s.sent = w.number
			return w.order, true
		}
	}
	return o, false
}
