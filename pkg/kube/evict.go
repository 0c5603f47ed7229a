package kube

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/pkg/cluster/eviction"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// Node is the plugin that orders evictions; see pkg/view/kubesocket.
type Node interface {
	Orders(ctx context.Context, connected func(), do func(evictorder.Order), wrong func(error)) error
	Answer(ctx context.Context, id string, a evictorder.Answer) error
	SetPods(ctx context.Context, pods []evictorder.Pod) error
}

// These constants bound the evictor.
const (
	evictTime      = 5 * time.Second        // for one request of an eviction
	closeTime      = 200 * time.Millisecond // for the publication that nothing is sold
	nodePause      = time.Second            // before the next connection to the plugin, and the next try to answer it
	podsInterval   = 5 * time.Second        // between two reports of the pods
	syncTime       = time.Second            // for the first list of the pods
	syncPoll       = 10 * time.Millisecond  // between two looks whether it has come
	rememberedMost = 256                    // answers that are kept for orders that come again
)

// Evictor carries out the node's orders to evict pods.
type Evictor struct {
	client *Client
	node   Node
	pods   *Pods
	events *Events
	log    logrus.FieldLogger
	// CoolDown is called before the eviction of the pod with a UID that begins a cool-down of a
	// length, so that nothing is sold to the pod's successor. It may wait until the context ends.
	// undo is called if the pod is not evicted. nil does nothing.
	CoolDown func(ctx context.Context, uid string, length time.Duration, why string) (undo func())

	mu       sync.Mutex
	orders   map[string]*evictorder.Answer // by ID; nil while the order is carried out
	finished []string                      // IDs of the orders with an answer, the oldest first
	told     []evictorder.Pod              // what the plugin knows of the pods
}

// NewEvictor returns an evictor. It carries out orders while Run runs.
func NewEvictor(client *Client, node Node, pods *Pods, events *Events, log logrus.FieldLogger) *Evictor {
	return &Evictor{client: client, node: node, pods: pods, events: events, log: log, orders: map[string]*evictorder.Answer{}}
}

// Run carries out orders until the context ends, and connects again when the plugin was away.
func (e *Evictor) Run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { e.report(ctx) })
	said := ""
	for ctx.Err() == nil {
		err := e.node.Orders(ctx, func() {
			said = ""
			e.forgetTold()
		}, func(o evictorder.Order) {
			working.Go(func() { e.carryOut(ctx, o) })
		}, func(err error) { e.log.WithError(err).Warn("The plugin sends an order that cannot be understood") })
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			e.log.WithError(err).Warn("No connection to the plugin: its orders to evict pods are not taken")
		}
		pause(ctx, nodePause)
	}
}

// carryOut evicts a pod and answers the order. An order that comes again after a reconnection is
// answered again, and not carried out twice.
func (e *Evictor) carryOut(ctx context.Context, o evictorder.Order) {
	ctx, cancel := context.WithDeadline(ctx, o.Deadline)
	defer cancel()
	e.mu.Lock()
	was, known := e.orders[o.ID]
	if !known {
		e.orders[o.ID] = nil
	}
	e.mu.Unlock()
	switch {
	case known && was == nil:
		return // the goroutine that carries it out answers
	case known:
		e.answer(ctx, &o, *was)
		return
	}
	came := time.Now()
	e.awaitPods(ctx)
	a, answered := e.before(&o, came)
	if !answered {
		a = e.evict(ctx, &o, came)
	}
	e.remember(o.ID, a)
	log := e.log.WithFields(logrus.Fields{"pod": o.Namespace + "/" + o.Name, "outcome": a.Outcome, "reason": a.Reason, "after": time.Since(o.DecidedAt).Round(time.Millisecond)})
	log.Info("Eviction: " + o.Why)
	if a.Outcome == evictorder.Evicted {
		pod := &Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID)}}
		e.events.Pod(pod, corev1.EventTypeWarning, "EvictedBySluice", "Evicted by Sluice from node "+e.client.node+": "+o.Why)
	}
	e.answer(ctx, &o, a)
}

// awaitPods waits until the pods are known, for a short time: a process that was killed before it answered may have
// evicted the pod already, and its successor would evict it again.
func (e *Evictor) awaitPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	for !e.pods.Synced() && ctx.Err() == nil {
		pause(ctx, syncPoll)
	}
}

// closeSale closes the sale for the order's cool-down, and waits for that for a short time. undo ends the cool-down.
func (e *Evictor) closeSale(ctx context.Context, o *evictorder.Order) (undo func()) {
	length := eviction.CoolDown(o, time.Now())
	if e.CoolDown == nil || length == 0 {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	return e.CoolDown(ctx, o.UID, length, o.Why)
}

func (e *Evictor) remember(id string, a evictorder.Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.orders[id] = &a
	e.finished = append(e.finished, id)
	if len(e.finished) > rememberedMost {
		delete(e.orders, e.finished[0])
		e.finished = slices.Delete(e.finished, 0, 1)
	}
}

// before answers an order that needs no request, by what is known of the pod now. The order's deadline is compared
// with the time at which the order came: from then on the context ends it, whose clock does not jump.
func (e *Evictor) before(o *evictorder.Order, came time.Time) (a evictorder.Answer, answered bool) {
	return eviction.Before(o, e.known(o.UID, time.Now()), came)
}

// known returns what the watched pods tell of a pod.
func (e *Evictor) known(uid string, now time.Time) eviction.Known {
	k := eviction.Known{Synced: e.pods.Synced()}
	for _, pod := range e.pods.All() {
		if string(pod.UID) == uid {
			k.Found, k.Priority = true, pod.Priority
			k.EndsIn, k.Ending = pod.endsIn(now)
		}
	}
	return k
}

// evict evicts the pod of an order. A pod that is not among those of the node is looked for first: it may be gone, and
// the watch may be late. The cool-down of an eviction that did not happen ends at once, as the plugin's own does.
func (e *Evictor) evict(ctx context.Context, o *evictorder.Order, came time.Time) evictorder.Answer {
	if e.known(o.UID, time.Now()).Missing() {
		if a := e.request(ctx, o, came, lookOnly); a.Outcome != evictorder.Evicted {
			return a
		}
	}
	reopen := e.closeSale(ctx, o)
	a := e.request(ctx, o, came, really)
	if a.Outcome != evictorder.Evicted {
		reopen()
	}
	return a
}

// How an eviction is requested. A dry run counts against no disruption budget: the API server would count a request for
// a pod that was replaced, because it compares the UID later (pkg/registry/core/pod/storage/eviction.go).
var (
	really   []string
	lookOnly = []string{metav1.DryRunAll}
)

// request requests the eviction until there is a result or the context ends.
func (e *Evictor) request(ctx context.Context, o *evictorder.Order, came time.Time, dryRun []string) evictorder.Answer {
	for attempts := 1; ; attempts++ {
		reply := e.client.evict(ctx, o, dryRun)
		a, wait, answered := eviction.After(&reply, e.known(o.UID, time.Now()), attempts)
		if answered {
			return a
		}
		pause(ctx, wait)
		if ctx.Err() != nil {
			return evictorder.Answer{Outcome: evictorder.Failed, Reason: evictorder.Clip("the API server did not evict the pod in time: " + reply.Message)}
		}
		if a, answered = e.before(o, came); answered {
			return a
		}
	}
}

// evictedBy is the label by which the admission policies find an eviction that they bound to its node: see
// configs/kubernetes/policies/own-node.yaml.
const evictedBy = "sluice.dev/evicted-by"

// evict requests one eviction, of the pod with the order's UID alone.
func (c *Client) evict(ctx context.Context, o *evictorder.Order, dryRun []string) eviction.Reply {
	uid := types.UID(o.UID)
	body, err := json.Marshal(&policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: map[string]string{evictedBy: "agent"}},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &o.GraceSeconds, Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: dryRun},
	})
	if err != nil {
		return eviction.Reply{Code: 400, Message: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, evictTime)
	defer cancel()
	// Without own retries client-go would wait where a budget's reply has a Retry-After. Into
	// also reports failures that come with the HTTP status 201, as for a pod with two budgets.
	err = c.rest.Post().Resource("pods").Namespace(o.Namespace).Name(o.Name).SubResource("eviction").
		SetHeader("Content-Type", "application/json").MaxRetries(0).Body(body).Do(ctx).Error()
	return replyOf(err)
}

func replyOf(err error) eviction.Reply {
	if err == nil {
		return eviction.Reply{Code: 201}
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return eviction.Reply{Message: err.Error()}
	}
	s := status.Status()
	r := eviction.Reply{Code: int(s.Code), Message: s.Message}
	if s.Details != nil {
		r.RetryAfter = time.Duration(s.Details.RetryAfterSeconds) * time.Second
		for _, cause := range s.Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				r.Budget, r.Message = true, s.Message+" "+cause.Message
			}
		}
	}
	return r
}

// answer tells the node, until it has heard or the order's deadline has passed.
func (e *Evictor) answer(ctx context.Context, o *evictorder.Order, a evictorder.Answer) {
	for ctx.Err() == nil {
		if e.node.Answer(ctx, o.ID, a) == nil {
			return
		}
		pause(ctx, nodePause)
	}
}

// report tells the plugin what the API knows of the node's pods, when that has changed. It logs
// once why the plugin does not take them.
func (e *Evictor) report(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		if pods := e.apiPods(); e.pods.Synced() && !e.isTold(pods) {
			err := e.node.SetPods(ctx, pods)
			switch {
			case err == nil:
				said = ""
				e.mu.Lock()
				e.told = pods
				e.mu.Unlock()
			case err.Error() != said && ctx.Err() == nil:
				said = err.Error()
				e.log.WithError(err).WithField("pods", len(pods)).Warn("The plugin does not take the list of the node's pods: it does not know their owners and priorities")
			}
		}
		pause(ctx, podsInterval)
	}
}

func (e *Evictor) isTold(pods []evictorder.Pod) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.told != nil && slices.Equal(e.told, pods)
}

// forgetTold makes the next report go out though nothing has changed: the plugin may be a new
// one.
func (e *Evictor) forgetTold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = nil
}

func (e *Evictor) apiPods() []evictorder.Pod {
	pods := []evictorder.Pod{}
	for _, pod := range e.pods.All() {
		if len(pods) == evictorder.MaxPods {
			break
		}
		pods = append(pods, evictorder.Pod{UID: string(pod.UID), Owner: pod.Owner, Priority: pod.Priority})
	}
	slices.SortFunc(pods, func(a, b evictorder.Pod) int {
		if a.UID < b.UID {
			return -1
		}
		return 1
	})
	return pods
}

// pause waits, but not beyond the end of the context.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
