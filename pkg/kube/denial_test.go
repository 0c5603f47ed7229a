package kube

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// Only an API server that denies counts, from its first denial until it does not deny any more.
func TestDenial(t *testing.T) {
	t.Parallel()
	now := time.Now()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right"))
	for name, test := range map[string]struct {
		answers []error
		want    bool
	}{
		"nothing yet":      {nil, false},
		"taken":            {[]error{nil}, false},
		"forbidden":        {[]error{nil, forbidden, forbidden}, true},
		"no such user":     {[]error{apierrors.NewUnauthorized("the token has expired")}, true},
		"away meanwhile":   {[]error{forbidden, errors.New("connection refused")}, true},
		"away":             {[]error{errors.New("connection refused"), apierrors.NewInternalError(errors.New("no etcd"))}, false},
		"allowed again":    {[]error{forbidden, nil}, false},
		"denied once more": {[]error{forbidden, nil, forbidden}, true},
	} {
		var d denial
		for _, err := range test.answers {
			d.note(err)
		}
		if got := d.lasts(now.Add(deniedMost + time.Minute)); got != test.want || d.lasts(now.Add(deniedMost-time.Minute)) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// The pods of a node are not known any more once the right to list them has been missing for a while.
func TestPodsAreDenied(t *testing.T) {
	t.Parallel()
	var denies atomic.Bool
	client := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case denies.Load():
			says(403, "", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no right"}`)(w)
		case r.FormValue("sendInitialEvents") != "": // it lists instead
			says(400, "", "")(w)
		case r.FormValue("watch") != "": // it ends at once
			says(200, "", "")(w)
		default:
			says(200, "", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)(w)
		}
	}))
	p := client.Pods(selling.Sluice.Names(), func() {})
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		p.Run(stop)
		close(ended)
	}()
	t.Cleanup(func() { close(stop); <-ended })
	isDenied := func() bool { return p.denied.lasts(time.Now().Add(deniedMost)) }
	await(t, "list of pods", p.Synced)
	denies.Store(true)
	await(t, "denial", isDenied)
	if !p.Synced() {
		t.Error("the pods are not known as soon as they are denied")
	}
	p.denied.mu.Lock()
	p.denied.since = p.denied.since.Add(-deniedMost)
	p.denied.mu.Unlock()
	if p.Synced() {
		t.Error("pods that have been denied for long are known")
	}
	denies.Store(false)
	await(t, "list of pods after the denial", p.Synced)
}
