package eviction

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

func TestBefore(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	o := &evictorder.Order{UID: "u", GraceSeconds: 5, Deadline: now.Add(time.Second)}
	for name, test := range map[string]struct {
		known Known
		at    time.Time
		want  evictorder.Outcome // "" asks the API server
	}{
		"a pod of the node":          {Known{Synced: true, Found: true}, now, ""},
		"pods are not known yet":     {Known{}, now, ""},
		"found before all is known":  {Known{Found: true}, now, ""},
		"it is ending already":       {Known{Found: true, Ending: true, EndsIn: 5 * time.Second}, now, evictorder.Evicted},
		"it ends later":              {Known{Found: true, Ending: true, EndsIn: 6 * time.Second}, now, ""},
		"the cluster's own, later":   {Known{Found: true, Ending: true, EndsIn: time.Hour, Priority: evictorder.CriticalPriority}, now, evictorder.Failed},
		"the watch does not have it": {Known{Synced: true}, now, ""},
		"the cluster's own":          {Known{Synced: true, Found: true, Priority: evictorder.CriticalPriority}, now, evictorder.Failed},
		"past the deadline":          {Known{Synced: true, Found: true}, now.Add(time.Second), evictorder.Failed},
	} {
		if got, answered := Before(o, test.known, test.at); got.Outcome != test.want || answered != (test.want != "") || answered && got.Outcome != evictorder.Evicted && got.Reason == "" {
			t.Errorf("%s: %+v, %v; want %q", name, got, answered, test.want)
		}
	}
}

func TestCoolDown(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		until time.Time
		want  time.Duration
	}{
		"none":         {time.Time{}, 0},
		"five minutes": {now.Add(5 * time.Minute), 5 * time.Minute},
		"over":         {now.Add(-time.Second), 0},
		"centuries":    {time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Hour},
	} {
		if got := CoolDown(&evictorder.Order{CoolDownUntil: test.until}, now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestAfter(t *testing.T) {
	t.Parallel()
	here := Known{Synced: true, Found: true}
	for name, test := range map[string]struct {
		reply    Reply
		known    Known
		attempts int
		want     evictorder.Outcome // "" tries again
		wait     time.Duration
	}{
		"created":                                {Reply{Code: 201}, here, 1, evictorder.Evicted, 0},
		"not found":                              {Reply{Code: 404, Message: `pods "p" not found`}, here, 1, evictorder.Gone, 0},
		"another UID":                            {Reply{Code: 409, Message: "the UID in the precondition (a) does not match the UID in record (b)"}, here, 1, evictorder.Gone, 0},
		"another conflict":                       {Reply{Code: 409, Message: "the object has been modified"}, here, 1, "", 200 * time.Millisecond},
		"a budget":                               {Reply{Code: 429, Budget: true, Message: "Cannot evict pod as it would violate the pod's disruption budget."}, here, 1, evictorder.Refused, 0},
		"a budget not counted yet":               {Reply{Code: 429, Budget: true, RetryAfter: 10 * time.Second}, here, 1, evictorder.Refused, 0},
		"two budgets":                            {Reply{Code: 500, Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}, here, 1, evictorder.Refused, 0},
		"a busy API server":                      {Reply{Code: 429, RetryAfter: 3 * time.Second}, here, 1, "", 3 * time.Second},
		"an internal error":                      {Reply{Code: 500, Message: "etcd"}, here, 2, "", 400 * time.Millisecond},
		"unavailable for long":                   {Reply{Code: 503}, here, 1000, "", 5 * time.Second},
		"a timeout":                              {Reply{Code: 504}, here, 1, "", 200 * time.Millisecond},
		"no reply":                               {Reply{Message: "connection refused"}, here, 3, "", 800 * time.Millisecond},
		"the policy's copy is late":              {Reply{Code: 422, Message: "ValidatingAdmissionPolicy 'sluice-own-pods' with binding 'sluice-own-pods' denied request: the API server has pod p of UID a, which the eviction must name in deleteOptions.preconditions.uid"}, here, 1, "", 200 * time.Millisecond},
		"the policy's copy and the node lack it": {Reply{Code: 422, Message: "ValidatingAdmissionPolicy 'sluice-own-pods' with binding 'sluice-own-pods' denied request: the API server has pod p of UID a, which the eviction must name in deleteOptions.preconditions.uid"}, Known{Synced: true}, 1, evictorder.Gone, 0},
		"the policy has no copy":                 {Reply{Code: 403, Message: "ValidatingAdmissionPolicy 'sluice-own-pods' with binding 'sluice-own-pods' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"}, here, 2, "", 400 * time.Millisecond},
		"another node's pod":                     {Reply{Code: 422, Message: "ValidatingAdmissionPolicy 'sluice-own-pods' with binding 'sluice-own-pods' denied request: the agent of node a may not evict pod p, which is on node b"}, here, 1, evictorder.Failed, 0},
		"forbidden":                              {Reply{Code: 403, Message: "RBAC"}, here, 1, evictorder.Failed, 0},
		"invalid":                                {Reply{Code: 422}, here, 1, evictorder.Failed, 0},
	} {
		got, wait, answered := After(&test.reply, test.known, test.attempts)
		if got.Outcome != test.want || answered != (test.want != "") || wait != test.wait {
			t.Errorf("%s: %+v after %v, answered %v; want %q after %v", name, got, wait, answered, test.want, test.wait)
		}
	}
}
