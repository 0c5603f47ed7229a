package evict

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// orders answers each order alike.
type orders struct {
	got    evictorder.Order
	answer evictorder.Answer
	err    error
}

func (o *orders) Order(_ context.Context, order evictorder.Order) (evictorder.Answer, error) {
	o.got = order
	return o.answer, o.err
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		orders orders
		is     error
		text   string // "" if there is no error
	}{
		"evicted":          {orders: orders{answer: evictorder.Answer{Outcome: evictorder.Evicted}}},
		"gone":             {orders: orders{answer: evictorder.Answer{Outcome: evictorder.Gone, Reason: "it was replaced"}}},
		"refused":          {orders: orders{answer: evictorder.Answer{Outcome: evictorder.Refused, Reason: "budget web"}}, is: evictorder.ErrRefused, text: "budget web"},
		"failed":           {orders: orders{answer: evictorder.Answer{Outcome: evictorder.Failed, Reason: "forbidden"}}, text: "sluice-kube could not evict it: forbidden"},
		"nobody":           {orders: orders{err: evictorder.ErrNobody}, is: evictorder.ErrNobody, text: "not connected"},
		"the time is over": {orders: orders{err: context.DeadlineExceeded}, is: context.DeadlineExceeded, text: "pod batch/p (u1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Kubernetes{&test.orders}.Evict(t.Context(), Pod{UID: "u1", Ref: "batch/p", Why: "memory is short"})
			if (err == nil) != (test.text == "") || test.is != nil && !errors.Is(err, test.is) || err != nil && !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %q", err, test.text)
			}
			if errors.Is(err, evictorder.ErrRefused) != (name == "refused") {
				t.Errorf("%v counts as refused, or does not", err)
			}
		})
	}
}

// The API server would remove a pod with a grace period of 0 at once, while it still runs.
func TestKubernetesGrace(t *testing.T) {
	t.Parallel()
	for grace, want := range map[time.Duration]int64{0: 1, 100 * time.Millisecond: 1, 1500 * time.Millisecond: 2, time.Minute: 60} {
		o := &orders{answer: evictorder.Answer{Outcome: evictorder.Evicted}}
		if err := (Kubernetes{o}).Evict(t.Context(), Pod{UID: "u1", Ref: "batch/p", Grace: grace}); err != nil || o.got.GraceSeconds != want {
			t.Errorf("%v: %d seconds, %v", grace, o.got.GraceSeconds, err)
		}
		if o.got.Namespace != "batch" || o.got.Name != "p" || o.got.UID != "u1" {
			t.Errorf("ordered %+v", o.got)
		}
	}
}
