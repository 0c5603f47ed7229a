// Package evictorder holds the messages between a node and sluice-kube about evictions: the
// node orders, sluice-kube answers, and tells the node what the API knows of its pods. Both
// sides check what they receive, since a mistake of one must not stop the other.
package evictorder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// IsOfDaemonSet reports whether a DaemonSet owns the pod. Its successor starts on the same node.
func (p Pod) IsOfDaemonSet() bool { return strings.HasPrefix(p.Owner, "DaemonSet ") }

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
	// maxOwner bounds an owner in bytes.
	maxOwner = 400
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

// DecodePods reads a JSON list of what the API knows of the node's pods, one pod at a time, and
// returns it by UID. An owner that is too long is clipped. wrong is called for each pod that is
// left out because it breaks a rule of its own: the author of one pod must not hide the others.
// The whole list is refused if it is no JSON, has more than MaxPods entries or cannot be read.
func DecodePods(list io.Reader, wrong func(error)) (map[string]Pod, error) {
	decoder := json.NewDecoder(list)
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return nil, notPods(err)
	}
	pods := map[string]Pod{}
	for i := 0; decoder.More(); i++ {
		if i == MaxPods {
			return nil, fmt.Errorf("pods: the list has more than %d pods, the most that is allowed", MaxPods)
		}
		var p Pod
		err := decoder.Decode(&p)
		if _, ofPod := errors.AsType[*json.UnmarshalTypeError](err); ofPod {
			wrong(fmt.Errorf("pods[%d]: a pod is an object with uid, owner and priority (32 bits): %s", i, Clip(err.Error())))
			continue
		}
		if err != nil {
			return nil, notPods(err)
		}
		if !isName(p.UID, maxUID) {
			wrong(fmt.Errorf("pods[%d]: uid %q: it must be 1 to %d letters, digits, '-', '_' or '.'", i, clip(p.UID), maxUID))
			continue
		}
		p.Owner = ClipOwner(p.Owner)
		pods[p.UID] = p
	}
	if _, err := decoder.Token(); err != nil { // the list's end
		return nil, notPods(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, notPods(errors.Join(errors.New("something follows the list"), err))
	}
	return pods, nil
}

func notPods(err error) error {
	return fmt.Errorf("pods are a JSON list of objects with uid, owner and priority: %w", cmp.Or(err, errors.New("this is no list")))
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
func Clip(text string) string { return shorten(text, maxText) }

// ClipOwner shortens an owner to what a list of pods may hold. Kubernetes bounds the kind and the
// name in a pod's ownerReferences by nothing but the size of the pod, and the pod's author writes
// them; real ones have at most 381 bytes (63 of a kind, 63 of a namespace, 253 of a name).
func ClipOwner(owner string) string { return shorten(owner, maxOwner) }

// clip shortens a wrong value for an error.
func clip(text string) string { return shorten(text, 64) }

// shorten cuts a text at a rune's boundary to that many bytes, of which the last say that it was
// cut.
func shorten(text string, most int) string {
	const cut = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(cut)], "") + cut
}

func isName(text string, most int) bool {
	if text == "" || len(text) > most {
		return false
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return strings.Trim(text, letters) == "" && text != "." && text != ".."
}
