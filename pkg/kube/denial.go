package kube

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// deniedMost is for how long the API server may deny a list before the last one counts no more. A role that is made
// anew is missing for a moment.
const deniedMost = 3 * time.Minute

// denial is since when the API server has denied to list and to watch objects. An informer that has had them once goes
// on with these, and does not tell. A server that is away denies nothing: nothing is bound without it.
type denial struct {
	mu    sync.Mutex
	since time.Time // zero if the latest request was not denied
}

// note notes the answer to a request.
func (d *denial) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.since = time.Time{}
	case d.since.IsZero() && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
		d.since = time.Now()
	}
}

// lasts reports whether the objects have been denied for so long that the last list counts no more.
func (d *denial) lasts(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero() && now.Sub(d.since) >= deniedMost
}

// noted lists and watches as another one does, and notes each answer.
func (d *denial) noted(lw *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, options)
			d.note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := lw.WatchWithContext(ctx, options)
			d.note(err)
			return events, err
		},
	}
}
