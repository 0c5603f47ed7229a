// Package evictorder holds the messages between a node and sluice-kube about evictions: the
// node orders, sluice-kube answers, and tells the node what the API knows of its pods. Both
// sides check what they receive, since a mistake of one must not stop the other.
package evictorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Order asks for the eviction of one pod. It is sent as one line of JSON, again after each
// reconnection until it is answered or past its deadline.
type Order struct {
	ID           string `json:"id"` // unique over restarts of the node's plugin
	UID          string `json:"uid"`
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	GraceSeconds int64  `json:"graceSeconds"` // for the pod to end by itself; at least 1
	Why          string `json:"why"`          // a sentence without its full stop

	DecidedAt time.Time `json:"decidedAt"`
	Deadline  time.Time `json:"deadline"` // the node has given up by then
	// CoolDownUntil is the time until which the node wants no new batch work. It is zero if the
	// eviction begins no cool-down.
	CoolDownUntil time.Time `json:"coolDownUntil,omitzero"`
}

// Outcome says what became of an order.
type Outcome string

// The outcomes.
const (
	Evicted Outcome = "evicted" // the API server has accepted the eviction
	Refused Outcome = "refused" // the API server forbids it for now, as a disruption budget does
	Gone    Outcome = "gone"    // there is no such pod any more
	Failed  Outcome = "failed"  // it could not be carried out
)

// These errors tell why an evictor has ended no pod.
var (
	// ErrRefused means that the API server forbids the eviction for now.
	ErrRefused = errors.New("the cluster forbids the eviction for now")
	// ErrNobody means that nobody is there to carry the order out.
	ErrNobody = errors.New("sluice-kube is not connected to the node's plugin")
)

// Answer is the outcome of an order.
type Answer struct {
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"` // a sentence without its full stop; required unless evicted
}

// Pod is what the API knows of a pod of the node.
type Pod struct {
	UID string `json:"uid"`
	// Owner names the controller of the pod, as "Job batch/report"; "" if it has none.
	Owner    string `json:"owner,omitempty"`
	Priority int32  `json:"priority"` // spec.priority; 0 if unset
}

// CriticalPriority is the lowest priority of pods that the cluster cannot do without
// (SystemCriticalPriority in pkg/apis/scheduling/types.go of Kubernetes).
const CriticalPriority int32 = 2_000_000_000

// These constants bound the messages.
const (
	// MaxMessage bounds an order or an answer in bytes.
	MaxMessage = 16 << 10
	// MaxPods bounds the pods of a node that are told of; a kubelet has at most 110 by default.
	MaxPods = 2000
	maxName = 253 // of a Kubernetes object (RFC 1123 subdomain)
	maxUID  = 128
	maxText = 2000
)

// DecodeOrder reads an order and checks it.
func DecodeOrder(data []byte) (o Order, err error) {
	if len(data) > MaxMessage {
		return o, fmt.Errorf("an order has %d bytes, at most %d are allowed", len(data), MaxMessage)
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("an order is a JSON object: %w", err)
	}
	return o, o.check()
}

func (o *Order) check() error {
	for key, value := range map[string]string{"id": o.ID, "uid": o.UID} {
		if !isName(value, maxUID) {
			return fmt.Errorf("order: %s %q: it must be 1 to %d letters, digits, '-', '_' or '.'", key, clip(value), maxUID)
		}
	}
	for key, value := range map[string]string{"namespace": o.Namespace, "name": o.Name} {
		if !isName(value, maxName) {
			return fmt.Errorf("order %s: %s %q: it must be the name of a Kubernetes object", o.ID, key, clip(value))
		}
	}
	const most = 24 * 3600
	switch {
	case o.GraceSeconds < 1 || o.GraceSeconds > most:
		return fmt.Errorf("order %s: graceSeconds %d: it must be 1 to %d", o.ID, o.GraceSeconds, most)
	case len(o.Why) > maxText:
		return fmt.Errorf("order %s: why has %d bytes, at most %d are allowed", o.ID, len(o.Why), maxText)
	case o.Deadline.IsZero():
		return fmt.Errorf("order %s: it has no deadline", o.ID)
	}
	return nil
}

// DecodeAnswer reads an answer and checks it.
func DecodeAnswer(data []byte) (a Answer, err error) {
	if len(data) > MaxMessage {
		return a, fmt.Errorf("an answer has %d bytes, at most %d are allowed", len(data), MaxMessage)
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("an answer is a JSON object with outcome and reason: %w", err)
	}
	if all := []Outcome{Evicted, Refused, Gone, Failed}; !slices.Contains(all, a.Outcome) {
		return a, fmt.Errorf("answer: outcome %q: it must be evicted, refused, gone or failed", clip(string(a.Outcome)))
	}
	if a.Outcome != Evicted && a.Reason == "" {
		return a, fmt.Errorf("answer: an outcome of %q needs a reason", a.Outcome)
	}
	a.Reason = Clip(a.Reason)
	return a, nil
}

// DecodePods reads what the API knows of the node's pods, and returns it by UID.
func DecodePods(data []byte) (map[string]Pod, error) {
	var list []Pod
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("pods are a JSON list of objects with uid, owner and priority: %w", err)
	}
	if len(list) > MaxPods {
		return nil, fmt.Errorf("pods: the list has %d pods, at most %d are allowed", len(list), MaxPods)
	}
	pods := make(map[string]Pod, len(list))
	for i := range list {
		p := &list[i]
		if !isName(p.UID, maxUID) {
			return nil, fmt.Errorf("pods[%d]: uid %q: it must be 1 to %d letters, digits, '-', '_' or '.'", i, clip(p.UID), maxUID)
		}
		if len(p.Owner) > maxText {
			return nil, fmt.Errorf("pods[%d]: owner has %d bytes, at most %d are allowed", i, len(p.Owner), maxText)
		}
		pods[p.UID] = *p
	}
	return pods, nil
}

// SplitRef splits "namespace/name".
func SplitRef(ref string) (namespace, name string, err error) {
	namespace, name, found := strings.Cut(ref, "/")
	if !found || namespace == "" || name == "" {
		return "", "", errors.New("pod " + clip(ref) + ": it must be written as namespace/name")
	}
	return namespace, name, nil
}

// Clip shortens a text from elsewhere to what a message may hold.
func Clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-3], "") + "..."
}

// clip shortens a wrong value for an error.
func clip(text string) string {
	const most = 64
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

func isName(text string, most int) bool {
	if text == "" || len(text) > most {
		return false
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return strings.Trim(text, letters) == "" && text != "." && text != ".."
}
