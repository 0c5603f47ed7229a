package kubelink

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// ordered is an order that was given out, and its result once there is one.
type ordered struct {
	done   chan struct{}
	answer evictorder.Answer
	err    error
}

func give(l *Link, uid string, wait time.Duration) *ordered {
	o := &ordered{done: make(chan struct{})}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		o.answer, o.err = l.Order(ctx, evictorder.Order{UID: uid, Namespace: "ns", Name: uid})
		close(o.done)
	}()
	synctest.Wait()
	return o
}

func (o *ordered) isOver() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// next is the order that the session has for its client; "" if it has none.
func next(t *testing.T, s *Session) evictorder.Order {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	o, _ := s.Next(ctx)
	return o
}

func TestAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New()
		s := l.Connect()
		began := time.Now()
		first, second := give(l, "a", time.Minute), give(l, "b", time.Minute)
		a, b := next(t, s), next(t, s)
		if a.UID != "a" || b.UID != "b" || a.ID == b.ID || !a.Deadline.Equal(began.Add(time.Minute)) {
			t.Fatalf("orders %+v, %+v", a, b)
		}
		if !l.Answer(b.ID, evictorder.Answer{Outcome: evictorder.Refused, Reason: "budget"}) || l.Answer(b.ID, evictorder.Answer{Outcome: evictorder.Evicted}) {
			t.Error("an order takes one answer, not none or two")
		}
		<-second.done
		if second.err != nil || second.answer.Reason != "budget" || first.isOver() {
			t.Errorf("second: %+v, first is over: %v", second, first.isOver())
		}
		if l.Answer("x", evictorder.Answer{}) {
			t.Error("an order that was never given out is answered")
		}
		l.Answer(a.ID, evictorder.Answer{Outcome: evictorder.Evicted})
		<-first.done
		if first.err != nil {
			t.Error(first.err)
		}
	})
}

func TestNobodyIsConnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New()
		l.Connect().Close()
		o := give(l, "a", time.Minute)
		if !o.isOver() || !errors.Is(o.err, evictorder.ErrNobody) || l.IsConnected() {
			t.Errorf("over: %v, %v", o.isOver(), o.err)
		}
	})
}

// An order that was sent is sent again after a reconnection, until its deadline.
func TestReconnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New()
		s := l.Connect()
		o := give(l, "a", time.Minute)
		sent := next(t, s)
		s.Close()
		time.Sleep(30 * time.Second)
		s = l.Connect()
		if again := next(t, s); again != sent {
			t.Errorf("sent %+v, then %+v", sent, again)
		}
		if again := next(t, s); again.ID != "" {
			t.Errorf("one connection gets it twice: %+v", again)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if !o.isOver() || !strings.Contains(o.err.Error(), "no answer about pod ns/a") {
			t.Errorf("after the deadline: %v", o.err)
		}
		s.Close()
		if late := next(t, l.Connect()); late.ID != "" {
			t.Errorf("it is sent after its deadline: %+v", late)
		}
	})
}

func TestNewestConnectionCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New()
		older := l.Connect()
		ended := make(chan bool)
		go func() { _, more := older.Next(context.Background()); ended <- more }()
		synctest.Wait()
		newer := l.Connect()
		if <-ended {
			t.Error("the older connection goes on")
		}
		older.Close()
		if !l.IsConnected() {
			t.Error("the end of the older connection ends the newer one")
		}
		o := give(l, "a", time.Minute)
		if got := next(t, newer); got.UID != "a" {
			t.Errorf("the newer connection has %+v", got)
		}
		if got := next(t, older); got.ID != "" {
			t.Errorf("the older connection has %+v", got)
		}
		l.Answer(next(t, l.Connect()).ID, evictorder.Answer{Outcome: evictorder.Evicted})
		<-o.done
	})
}

// A client that takes no order holds up nobody: orders are bounded, and end with their context.
func TestOrdersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New()
		l.Connect()
		var all []*ordered
		for range maxOrders {
			all = append(all, give(l, "a", time.Second))
		}
		more := give(l, "a", time.Second)
		if !more.isOver() || !strings.Contains(more.err.Error(), "64 evictions wait") {
			t.Errorf("one more: %v", more.err)
		}
		time.Sleep(time.Second)
		for _, o := range all {
			<-o.done
		}
		if n := len(l.waiting); n != 0 {
			t.Errorf("%d orders wait after their deadline", n)
		}
	})
}

func TestPods(t *testing.T) {
	t.Parallel()
	l := New()
	if l.Pods() != nil {
		t.Error("there are pods before anybody told of any")
	}
	l.SetPods(map[string]evictorder.Pod{"a": {UID: "a", Priority: 7}})
	if l.Pods()["a"].Priority != 7 {
		t.Errorf("%+v", l.Pods())
	}
}
