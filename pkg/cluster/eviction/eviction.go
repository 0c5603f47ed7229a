// Package eviction decides what sluice-kube does with a node's order to evict a pod: whether it
// asks the API server, and what the API server's reply means. The package does no I/O.
package eviction

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// Known is what the watched pods of the node tell of the pod that an order names.
type Known struct {
	Synced   bool          // all pods of the node are known
	Found    bool          // there is a pod of that UID
	Ending   bool          // it is being deleted
	EndsIn   time.Duration // what is left of the grace period of a pod that is ending
	Priority int32
}

// Missing reports whether the pod is not among those of the node. It is gone, unless the watch is late.
func (k Known) Missing() bool { return k.Synced && !k.Found }

// Before decides whether an order needs the API server. Otherwise it returns the answer. A pod
// that ends as soon as the order wants was evicted before, perhaps by this program before a
// restart. One that may take longer, as its owner has deleted it with a grace period of a day,
// needs the API server, which shortens the grace period of a pod that is ending.
func Before(o *evictorder.Order, k Known, now time.Time) (a evictorder.Answer, answered bool) {
	switch {
	case !now.Before(o.Deadline):
		return failed("the order reached sluice-kube after its deadline"), true
	case k.Found && k.Ending && k.EndsIn <= time.Duration(o.GraceSeconds)*time.Second:
		return evictorder.Answer{Outcome: evictorder.Evicted}, true
	case k.Found && k.Priority >= evictorder.CriticalPriority:
		return failed("the pod has a priority of the cluster's own, %d: such pods are not evicted", k.Priority), true
	}
	return a, false
}

// mostCoolDown bounds the cool-down of an order. It only has to last until the plugin's status has
// the cool-down, which may be longer.
const mostCoolDown = time.Hour

// CoolDown returns how long the cool-down of an order lasts from now on; 0 if there is none. The
// order has its end by the wall clock, which may jump: a later comparison with that clock could
// end the cool-down early, or extend it by years.
func CoolDown(o *evictorder.Order, now time.Time) time.Duration {
	if o.CoolDownUntil.IsZero() {
		return 0
	}
	return min(max(0, o.CoolDownUntil.Sub(now)), mostCoolDown)
}

// Reply is the API server's reply to an eviction.
type Reply struct {
	Code       int    // HTTP status, of the reply or in its body; 0 without a reply
	Message    string // of the API server, or why there is no reply
	Budget     bool   // the reply names a disruption budget as its cause
	RetryAfter time.Duration
}

// The HTTP statuses of replies (RFC 9110, section 15).
const (
	forbidden       = 403
	notFound        = 404
	requestTimeout  = 408
	conflict        = 409
	unprocessable   = 422
	tooManyRequests = 429
	serverError     = 500 // and above
)

// The times between two requests for one eviction.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// severalBudgets is in the reply for a pod with more than one disruption budget, whose code is
// 500 though trying again can't help.
const severalBudgets = "more than one PodDisruptionBudget"

// isLate reports whether the policy sluice-own-pods of configs/kubernetes/policies/own-node.yaml refused an eviction
// because the API server's copy of the pods has another pod of that name, or no pod at all. Either the copy or the
// order is late: the pod is gone if the watched pods of the node do not have it either.
func isLate(r *Reply) bool {
	return (r.Code == forbidden || r.Code == unprocessable) && strings.Contains(r.Message, "sluice-own-pods") &&
		(strings.Contains(r.Message, "of UID ") || strings.Contains(r.Message, "no params found"))
}

// After decides what a reply means. Either answered is true, or the eviction has to be requested
// again after wait. attempts counts the requests, including this one.
func After(r *Reply, k Known, attempts int) (a evictorder.Answer, wait time.Duration, answered bool) {
	switch {
	case r.Code >= 200 && r.Code < 300:
		return evictorder.Answer{Outcome: evictorder.Evicted}, 0, true
	case r.Code == notFound:
		return gone("the API server has no such pod: %s", r.Message), 0, true
	case r.Code == conflict && strings.Contains(r.Message, "UID"):
		return gone("the pod was replaced by another of its name: %s", r.Message), 0, true
	case r.Budget, strings.Contains(r.Message, severalBudgets):
		return evictorder.Answer{Outcome: evictorder.Refused, Reason: evictorder.Clip(r.Message)}, 0, true
	case isLate(r) && k.Missing():
		return gone("neither the API server nor the node has this pod: %s", r.Message), 0, true
	case isLate(r), r.Code == 0, r.Code == tooManyRequests, r.Code == conflict, r.Code == requestTimeout, r.Code >= serverError:
		return a, max(backoff(attempts), r.RetryAfter), false
	}
	return failed("the API server replies %d: %s", r.Code, r.Message), 0, true
}

func backoff(attempts int) time.Duration {
	wait := firstRetry
	for range min(attempts, 10) - 1 {
		wait *= 2
	}
	return min(wait, lastRetry)
}

func gone(format string, args ...any) evictorder.Answer {
	return evictorder.Answer{Outcome: evictorder.Gone, Reason: evictorder.Clip(fmt.Sprintf(format, args...))}
}

func failed(format string, args ...any) evictorder.Answer {
	return evictorder.Answer{Outcome: evictorder.Failed, Reason: evictorder.Clip(fmt.Sprintf(format, args...))}
}
