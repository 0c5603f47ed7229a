package kubesocket

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// complaintInterval is the minimum time between two log lines about lists of pods, because
// sluice-kube can send any number of wrong ones.
const complaintInterval = time.Minute

// podsRoute takes what the API knows of the node's pods.
type podsRoute struct {
	link *kubelink.Link
	log  logrus.FieldLogger

	reading      sync.Mutex // held while a list is read; guards the fields below
	complaint    string     // what the log said of the last wrong list; "" if a right one came since
	complainedAt time.Time
}

// ServeHTTP reads one list at a time, so that any number of requests needs the memory of one.
func (p *podsRoute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.reading.TryLock() {
		http.Error(w, "another list of pods is being read: send this one again later", http.StatusServiceUnavailable)
		return
	}
	defer p.reading.Unlock()
	wrong, first := 0, error(nil)
	pods, err := evictorder.DecodePods(http.MaxBytesReader(w, r.Body, maxBody), func(err error) {
		if wrong++; first == nil {
			first = err
		}
	})
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		p.refuse(w, fmt.Errorf("pods: the body must have at most %d bytes", maxBody), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		p.refuse(w, err, http.StatusBadRequest)
		return
	case wrong > 0:
		p.complain(fmt.Sprintf("The API's owners and priorities of %d pods are left out, so they count as unknown; the first: %v", wrong, first))
	default:
		p.complaint = ""
	}
	p.link.SetPods(pods)
}

func (p *podsRoute) refuse(w http.ResponseWriter, err error, code int) {
	p.complain("The API's owners and priorities of pods are refused, and those known before stay in force: " + err.Error())
	http.Error(w, err.Error(), code)
}

// complain logs what is wrong, once while it stays the same.
func (p *podsRoute) complain(what string) {
	if what == p.complaint || time.Since(p.complainedAt) < complaintInterval {
		return
	}
	p.complaint, p.complainedAt = what, time.Now()
	p.log.Warn(what)
}
