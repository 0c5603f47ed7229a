package kube

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

func TestCoolDownClosesTheReport(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	c := coolDown{holds: []*hold{{until: now.Add(time.Second)}, {until: now.Add(time.Minute), why: "memory is short"}, {until: now}}}
	open, closed := &selling.Report{}, &selling.Report{Closed: &selling.Reason{Word: selling.Window}}
	if got := c.apply(open, now); got.Closed == nil || got.Closed.Word != selling.CoolDown || !strings.HasSuffix(got.Closed.Text, ": memory is short.") || open.Closed != nil {
		t.Errorf("in the cool-down: %+v; the report itself: %+v", got.Closed, open.Closed)
	}
	if got := c.apply(open, now.Add(time.Minute)); got.Closed != nil {
		t.Errorf("after the cool-down: %+v", got.Closed)
	}
	if got := c.apply(closed, now); got.Closed.Word != selling.Window {
		t.Errorf("another reason is replaced: %+v", got.Closed)
	}
	if c.apply(nil, now) != nil {
		t.Error("a report that is not known yet became one")
	}
}

// An eviction waits until nothing is left to publish, and not for a publication that began
// before the cool-down, nor beyond its time.
func TestCoolDownWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Publisher{wake: make(chan struct{}, 1)}
		done := make(chan struct{})
		began := time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			p.CoolDown(ctx, "u", time.Hour, "memory is short")
			close(done)
		}()
		synctest.Wait()
		p.settle(nil) // a step that began before
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("it does not wait for its own publication")
		default:
		}
		p.settle(p.coolDown.settled)
		<-done
		if time.Since(began) != 0 {
			t.Errorf("it waits for %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		p.CoolDown(ctx, "u", time.Minute, "an earlier end")
		if last := p.coolDown.end(time.Now()); time.Since(began) != closeTime || last.until != began.Add(time.Hour) {
			t.Errorf("it waits for %v, until %v", time.Since(began), last.until)
		}
	})
}

// An eviction that did not happen ends its own cool-down alone, so that its pod counts while it ends.
func TestCoolDownEnds(t *testing.T) {
	t.Parallel()
	p := &Publisher{wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody publishes
	refused := p.CoolDown(ctx, "refused", time.Hour, "memory is short")
	evicted := p.CoolDown(ctx, "evicted", time.Minute, "a rule")
	now := time.Now()
	pods := []selling.Pod{{UID: "refused", Ending: true}, {UID: "evicted", Ending: true}}
	<-p.wake
	refused()
	marked := p.coolDown.mark(pods, now)
	if got := p.coolDown.apply(&selling.Report{}, now); got.Closed == nil || !strings.Contains(got.Closed.Text, "a rule") || marked[0].Evicted || !marked[1].Evicted || len(p.wake) != 1 {
		t.Errorf("after one has ended: %+v, %+v, %d", got.Closed, marked, len(p.wake))
	}
	evicted()
	if got := p.coolDown.apply(&selling.Report{}, now); got.Closed != nil {
		t.Errorf("after both have ended: %+v", got.Closed)
	}
}

// No more orders are remembered than a bound, and the latest counts.
func TestCoolDownIsBounded(t *testing.T) {
	t.Parallel()
	p := &Publisher{wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2 * mostHolds {
		p.CoolDown(ctx, "u", time.Duration(i+1)*time.Minute, "")
	}
	if last := p.coolDown.end(time.Now()); len(p.coolDown.holds) != mostHolds || time.Until(last.until) < (2*mostHolds-1)*time.Minute {
		t.Errorf("%d orders are remembered, the last until %v", len(p.coolDown.holds), last.until)
	}
}

// A pod that an order evicts does not count while it ends, if that is soon.
func TestEvictedPods(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	ending := func(uid string, grace time.Duration) selling.Pod {
		return selling.Pod{UID: uid, Ending: true, Grace: grace}
	}
	pods := []selling.Pod{
		{UID: "evicted, and not ending yet"}, ending("evicted", shortGrace), ending("evicted, and slow", shortGrace+time.Second), ending("of its owner", time.Second),
	}
	c := coolDown{}
	for _, pod := range pods[:3] {
		c.holds = append(c.holds, &hold{pod: pod.UID, until: now.Add(time.Hour)})
	}
	check := func(when string, at time.Time, want ...string) {
		t.Helper()
		var got []string
		for _, pod := range c.mark(pods, at) {
			if pod.Evicted {
				got = append(got, pod.UID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q are marked, want %q", when, got, want)
		}
	}
	check("at first", now, "evicted")
	check("while it ends", now.Add(shortGrace+overdue-1), "evicted")
	check("a kubelet that does not end it", now.Add(shortGrace+overdue))
	if pods[1].Evicted {
		t.Error("the mark is on the pods that are kept")
	}
	pods[0] = ending(pods[0].UID, time.Second)
	check("another begins to end", now.Add(time.Minute), pods[0].UID)
	check("after the cool-down", now.Add(time.Hour))
	if c.holds != nil {
		t.Error("the pods of a cool-down that is over are kept")
	}
}
