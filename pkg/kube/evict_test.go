package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// apiServer replies to evictions in turn, and then always as the last time. A real API server
// can't be made to be overloaded for one request.
type apiServer struct {
	mu      sync.Mutex
	replies []func(http.ResponseWriter)
	asked   int
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/ns/pods/p/eviction") {
		http.NotFound(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	reply := a.replies[min(a.asked, len(a.replies)-1)]
	a.asked++
	reply(w)
}

func (a *apiServer) requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// clientOf returns a client of an API server that answers so.
func clientOf(t *testing.T, api http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(file, "n1", "test")
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func says(code int, header, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		if header != "" {
			w.Header().Set("Retry-After", header)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

const success = `{"kind":"Status","apiVersion":"v1","status":"Success"}`

// plugin gives its orders out once, and keeps the answers.
type plugin struct {
	orders  []evictorder.Order
	mu      sync.Mutex
	answers []evictorder.Answer
}

func (p *plugin) Orders(ctx context.Context, connected func(), do func(evictorder.Order), _ func(error)) error {
	connected()
	for _, o := range p.orders {
		do(o)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (p *plugin) Answer(_ context.Context, _ string, a evictorder.Answer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = append(p.answers, a)
	return nil
}

func (*plugin) SetPods(context.Context, []evictorder.Pod) error { return nil }

func (p *plugin) answered() []evictorder.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers
}

func TestEvictorAndAnOverloadedServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		replies  []func(http.ResponseWriter)
		deadline time.Duration
		requests int
		want     evictorder.Outcome // "" for no answer: the node has given up at the deadline, too
		reason   string
	}{
		"overloaded, then it evicts": {
			[]func(http.ResponseWriter){says(429, "1", "too many requests"), says(503, "", "no etcd"), says(201, "", success)}, time.Minute, 3, evictorder.Evicted, ""},
		"a budget that is not counted yet, with a Retry-After": {
			[]func(http.ResponseWriter){says(429, "10", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"Cannot evict pod.","details":{"retryAfterSeconds":10,"causes":[{"reason":"DisruptionBudget","message":"web is still being processed"}]}}`)},
			time.Minute, 1, evictorder.Refused, "web is still being processed"},
		"nonsense":  {[]func(http.ResponseWriter){says(418, "", "<html>")}, time.Minute, 1, evictorder.Failed, "418"},
		"dead":      {[]func(http.ResponseWriter){says(500, "", "")}, 500 * time.Millisecond, 2, "", ""}, // at 0 and 200 ms
		"forbidden": {[]func(http.ResponseWriter){says(403, "", "no")}, time.Minute, 1, evictorder.Failed, "403"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &apiServer{replies: test.replies}
			client := clientOf(t, api)
			log := logrus.New()
			log.SetOutput(t.Output())
			o := evictorder.Order{ID: "a-1", UID: "u", Namespace: "ns", Name: "p", GraceSeconds: 1, DecidedAt: time.Now(), Deadline: time.Now().Add(test.deadline)}
			node := &plugin{orders: []evictorder.Order{o, o}} // again, as after a reconnection
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() {
				NewEvictor(client, node, known(t, &Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}), client.Events(log), log).Run(ctx)
			})
			t.Cleanup(func() { cancel(); running.Wait() })
			if test.want == "" {
				time.Sleep(test.deadline + 200*time.Millisecond)
				if got := node.answered(); len(got) > 0 {
					t.Errorf("answers %+v after the deadline", got)
				}
			} else {
				for limit := time.Now().Add(30 * time.Second); len(node.answered()) == 0; time.Sleep(time.Millisecond) {
					if time.Now().After(limit) {
						t.Fatal("no answer")
					}
				}
				got := node.answered()[0]
				if got.Outcome != test.want || !strings.Contains(got.Reason, test.reason) {
					t.Errorf("answers %+v, want %s: %s", got, test.want, test.reason)
				}
			}
			if n := api.requests(); n != test.requests {
				t.Errorf("%d requests, want %d", n, test.requests)
			}
		})
	}
}

// TestEvictorAndAClockThatJumps: the clock is past the order's deadline, and the context, which has another clock, is not.
func TestEvictorAndAClockThatJumps(t *testing.T) {
	t.Parallel()
	api := &apiServer{replies: []func(http.ResponseWriter){says(503, "", "no etcd"), says(201, "", success)}}
	client := clientOf(t, api)
	log := logrus.New()
	log.SetOutput(t.Output())
	came := time.Now().Add(-time.Hour)
	o := evictorder.Order{ID: "a-1", UID: "u", Namespace: "ns", Name: "p", Deadline: came.Add(time.Minute)}
	e := NewEvictor(client, &plugin{}, client.Pods(nil, func() {}), client.Events(log), log)
	if a := e.evict(t.Context(), &o, came); a.Outcome != evictorder.Evicted || api.requests() != 2 {
		t.Errorf("%d requests, and the answer %+v", api.requests(), a)
	}
}

// TestEvictorAndALateWatch: a pod that the watch does not have is looked for by a dry run, and evicted if it is there.
// If it is not evicted, the cool-down of its order ends.
func TestEvictorAndALateWatch(t *testing.T) {
	t.Parallel()
	const dry, evicts, cools, reopens = "dry run", "eviction", "cool-down", "its end"
	budget := says(429, "", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"Cannot evict pod.","details":{"causes":[{"reason":"DisruptionBudget","message":"web needs 1"}]}}`)
	created, missing := says(201, "", success), says(404, "", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"pods \"p\" not found"}`)
	for name, test := range map[string]struct {
		replies []func(http.ResponseWriter)
		want    evictorder.Outcome
		did     []string
	}{
		"the pod is gone":     {[]func(http.ResponseWriter){missing}, evictorder.Gone, []string{dry}},
		"the pod is there":    {[]func(http.ResponseWriter){says(503, "", "no etcd"), created, created}, evictorder.Evicted, []string{dry, dry, cools, evicts}},
		"it ends in between":  {[]func(http.ResponseWriter){created, missing}, evictorder.Gone, []string{dry, cools, evicts, reopens}},
		"its budget is spent": {[]func(http.ResponseWriter){budget}, evictorder.Refused, []string{dry}},
		"in between":          {[]func(http.ResponseWriter){created, budget}, evictorder.Refused, []string{dry, cools, evicts, reopens}},
		"it fails":            {[]func(http.ResponseWriter){created, says(403, "", "no")}, evictorder.Failed, []string{dry, cools, evicts, reopens}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var did []string
			api := &apiServer{replies: test.replies}
			client := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var asked policyv1.Eviction
				if err := json.NewDecoder(r.Body).Decode(&asked); err == nil && strings.HasSuffix(r.URL.Path, "/eviction") {
					if did = append(did, evicts); len(asked.DeleteOptions.DryRun) > 0 {
						did[len(did)-1] = dry
					}
				}
				api.ServeHTTP(w, r)
			}))
			log, _ := logtest.NewNullLogger()
			node := &plugin{}
			e := NewEvictor(client, node, &Pods{store: cache.NewStore(cache.MetaNamespaceKeyFunc), controller: synced{}}, client.Events(log), log)
			e.CoolDown = func(context.Context, string, time.Duration, string) func() {
				did = append(did, cools)
				return func() { did = append(did, reopens) }
			}
			now := time.Now()
			o := evictorder.Order{ID: "a-1", UID: "u", Namespace: "ns", Name: "p", DecidedAt: now, Deadline: now.Add(time.Minute), CoolDownUntil: now.Add(time.Minute)}
			e.carryOut(t.Context(), o)
			if got := node.answered(); len(got) != 1 || got[0].Outcome != test.want || !slices.Equal(did, test.did) {
				t.Errorf("did %q, want %q; answers %+v, want %s", did, test.did, got, test.want)
			}
		})
	}
}

// synced follows no pods: it knows them from that time on.
type synced struct {
	cache.Controller
	at time.Time
}

func (s synced) HasSynced() bool { return !time.Now().Before(s.at) }

// known is one pod, which is known.
func known(t *testing.T, pod *Pod) *Pods {
	t.Helper()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := store.Add(pod); err != nil {
		t.Fatal(err)
	}
	return &Pods{store: store, controller: synced{}}
}

// A process that was killed may have evicted the pod: its successor waits until it knows the pods, but not for long.
func TestEvictorWaitsForThePods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after    time.Duration
		requests int
	}{
		"the pods come late":   {200 * time.Millisecond, 0},
		"the pods do not come": {time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &apiServer{replies: []func(http.ResponseWriter){says(201, "", success)}}
			client := clientOf(t, api)
			now, grace := metav1.Now(), int64(1)
			ending := &Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace}}
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			pods := &Pods{store: store, controller: synced{at: time.Now().Add(test.after)}}
			time.AfterFunc(test.after/2, func() {
				if err := store.Add(ending); err != nil {
					t.Error(err)
				}
			})
			log, _ := logtest.NewNullLogger()
			node := &plugin{}
			o := evictorder.Order{ID: "a-1", UID: "u", Namespace: "ns", Name: "p", GraceSeconds: 1, DecidedAt: time.Now(), Deadline: time.Now().Add(time.Minute)}
			NewEvictor(client, node, pods, client.Events(log), log).carryOut(t.Context(), o)
			if got := node.answered(); len(got) != 1 || got[0].Outcome != evictorder.Evicted || api.requests() != test.requests {
				t.Errorf("%d requests, want %d; answers %+v", api.requests(), test.requests, got)
			}
		})
	}
}

// refusing is a plugin that refuses the list of pods with each of the errors in turn, and then takes it.
type refusing struct {
	plugin
	errs []error
}

func (r *refusing) SetPods(context.Context, []evictorder.Pod) error {
	if len(r.errs) == 0 {
		return nil
	}
	err := r.errs[0]
	r.errs = r.errs[1:]
	return err
}

// TestTheListOfPodsIsRefused: each reason is logged once, until the plugin has taken the list.
func TestTheListOfPodsIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		long, away := errors.New("the body is too long"), errors.New("no such socket")
		node := &refusing{errs: []error{long, long, away, away}}
		log, logged := logtest.NewNullLogger()
		e := NewEvictor(nil, node, &Pods{store: cache.NewStore(cache.MetaNamespaceKeyFunc), controller: synced{}}, nil, log)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e.report(ctx)
		var got []error
		for _, entry := range logged.AllEntries() {
			err, _ := entry.Data[logrus.ErrorKey].(error)
			got = append(got, err)
		}
		if !slices.Equal(got, []error{long, away}) || len(node.errs) > 0 {
			t.Errorf("logs %q, and %d refusals are left", got, len(node.errs))
		}
	})
}
