// Package objectives reads the response times of the pods that have a latency objective (slo.sluice.dev), from
// the histogram that each serves for Prometheus on its own address.
//
// What a pod serves is hostile: a request goes nowhere but to the address that the runtime names, follows no
// redirect, and ends after two seconds and two MiB. Each pod has a goroutine of its own, so that a silent one
// delays no other and never the control loop.
package objectives

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// usualInterval is the time between two readings of a pod.
const usualInterval = 5 * time.Second

const (
	answerTime   = 2 * time.Second
	mostPods     = 100 // that are read; a node has seldom more pods in all
	longestError = 300 // bytes
)

// Target is a pod with an objective. It is comparable: a pod whose target changes is read anew.
type Target struct {
	UID       string
	Address   string // an IP address; "" if the runtime names none
	Objective workload.Objective
}

// Reader reads pods. Its methods do not wait, and any goroutine may call them.
type Reader struct {
	client   *http.Client
	interval time.Duration

	mu   sync.Mutex
	pods map[string]*pod // by UID
}

// pod is a pod that is read until its context ends.
type pod struct {
	target Target
	stop   context.CancelFunc
	latest observe.Latency // guarded by Reader.mu
}

// New makes a reader of no pods.
func New() *Reader {
	return &Reader{
		interval: usualInterval,
		client: &http.Client{
			Timeout: answerTime,
			Transport: &http.Transport{
				Proxy:                  nil, // the address is on this node
				DialContext:            (&net.Dialer{Timeout: answerTime}).DialContext,
				DisableKeepAlives:      true, // net/http logs what arrives on idle connections, and an address may get another pod
				MaxResponseHeaderBytes: 16 << 10,
				DisableCompression:     true, // a short answer must not become a long one
			},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("the page redirects: name the path where it is")
			},
		},
		pods: map[string]*pod{},
	}
}

// Follow reads these pods until the context ends or it is called again, and no others.
func (r *Reader) Follow(ctx context.Context, targets []Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := make(map[string]bool, len(targets))
	for _, t := range targets {
		wanted[t.UID] = true
	}
	for uid, p := range r.pods {
		if !wanted[uid] {
			r.end(p)
		}
	}
	for _, t := range targets {
		p := r.pods[t.UID]
		if p != nil && p.target == t && p.latest.Problem != tooMany {
			continue
		}
		if p != nil {
			r.end(p)
		}
		r.begin(ctx, t)
	}
}

func (r *Reader) end(p *pod) {
	p.stop()
	delete(r.pods, p.target.UID)
}

func (r *Reader) begin(ctx context.Context, t Target) {
	p := &pod{target: t}
	reads := 0
	for _, other := range r.pods {
		if other.latest.Problem != tooMany {
			reads++
		}
	}
	r.pods[t.UID] = p
	switch {
	case t.Address == "":
		p.stop, p.latest.Problem = func() {}, "the pod has no address that Sluice can reach"
	case reads >= mostPods:
		p.stop, p.latest.Problem = func() {}, tooMany
	default:
		ctx, p.stop = context.WithCancel(ctx)
		go r.read(ctx, p)
	}
}

var tooMany = fmt.Sprintf("%d other pods of this node have a latency objective, and more are not read", mostPods)

// Latest returns the latest latency of each pod, by UID.
func (r *Reader) Latest() map[string]observe.Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]observe.Latency, len(r.pods))
	for uid, p := range r.pods {
		all[uid] = p.latest
	}
	return all
}

// read reads a pod until the context ends.
func (r *Reader) read(ctx context.Context, p *pod) {
	ticks := time.NewTicker(r.interval)
	defer ticks.Stop()
	var meter observe.LatencyMeter
	o := p.target.Objective
	for {
		at := time.Now()
		h, err := r.fetch(ctx, &p.target)
		r.mu.Lock()
		if err == nil {
			meter.Add(at, h)
			p.latest = meter.Latency(o.Quantile, o.Bound.Seconds())
		} else {
			p.latest.Problem = printable(err)
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// fetch reads the histogram of a pod once. A page on which a parser panics is an error.
func (r *Reader) fetch(ctx context.Context, t *Target) (h observe.Histogram, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the page can't be read: %v", p)
		}
	}()
	page := url.URL{Scheme: "http", Host: net.JoinHostPort(t.Address, strconv.Itoa(t.Objective.Port)), Path: t.Objective.Path}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page.String(), nil)
	if err != nil {
		return observe.Histogram{}, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	request.Header.Set("User-Agent", "sluice")
	answer, err := r.client.Do(request)
	if err != nil {
		return observe.Histogram{}, err
	}
	defer answer.Body.Close() //nolint:errcheck // the body was only read
	if answer.StatusCode != http.StatusOK {
		return observe.Histogram{}, fmt.Errorf("%s answers %d", page.String(), answer.StatusCode)
	}
	return histogramOf(answer.Body, &t.Objective)
}

// printable shortens an error, which can repeat what the pod has sent.
func printable(err error) string {
	text := err.Error()
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + "…"
	}
	return terminal.Printable(text)
}
