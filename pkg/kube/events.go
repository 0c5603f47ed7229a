package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// These bound what a node tells in events: the same thing of the same object once in eventPause,
// at most eventKeys objects of each reason in that time, and at most eventQueue events that the API
// server has not taken yet.
const (
	eventPause = 10 * time.Minute
	eventQueue = 64
	eventKeys  = 128
)

// Events sends events about the node and its pods. What is too much is counted and dropped: an
// event must not hold anybody up.
type Events struct {
	client *Client
	log    logrus.FieldLogger
	queue  chan *corev1.Event

	mu   sync.Mutex
	last map[eventKey]*told
}

// eventKey is what makes two events the same.
type eventKey struct {
	reason string
	uid    types.UID
	field  string // of the object, or ""
}

// told is when an event was last sent, and how often it came since.
type told struct {
	at    time.Time
	count int32
}

// Events returns a sender of events. They are sent while its Run runs.
func (c *Client) Events(log logrus.FieldLogger) *Events {
	return &Events{client: c, log: log, queue: make(chan *corev1.Event, eventQueue), last: map[eventKey]*told{}}
}

// Pod tells something of a pod.
func (e *Events) Pod(pod *Pod, kind, reason, message string) {
	e.tell(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, kind, reason, message)
}

// Container tells something of a pod's container, as the kubelet does. It reports false for an event that
// was dropped, and can come again at once.
func (e *Events) Container(pod *Pod, container, kind, reason, message string) bool {
	return e.tell(corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, FieldPath: "spec.containers{" + container + "}",
	}, kind, reason, message)
}

// Node tells something of the node. Its events are in the namespace "default", and have the
// node's name as its UID, as those of the kubelet.
func (e *Events) Node(kind, reason, message string) {
	e.tell(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.client.node, UID: types.UID(e.client.node)}, kind, reason, message)
}

// tell queues an event, with the number of equal ones since the last that was sent, unless that was a
// short time ago. It reports whether the event, or an equal one, was queued.
func (e *Events) tell(about corev1.ObjectReference, kind, reason, message string) bool {
	key := eventKey{reason, about.UID, about.FieldPath}
	count, room := e.due(key, time.Now())
	if count == 0 {
		return room
	}
	now := metav1.Now()
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%.200s.%x", about.Name, now.UnixNano())},
		InvolvedObject: about, Type: kind, Reason: reason, Message: shorten(message, messageBytes),
		Source:         corev1.EventSource{Component: Manager, Host: e.client.node},
		FirstTimestamp: now, LastTimestamp: now, Count: count,
	}
	select {
	case e.queue <- event:
		return true
	default:
		e.forget(key)
		e.log.WithField("event", reason).Warn("Dropped an event: the API server does not take them")
		return false
	}
}

// forget lets an event come again at once.
func (e *Events) forget(key eventKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.last, key)
}

// due returns how often an event has come since the last that was sent, or 0 if it is not to be sent
// now. It reports whether there is room for it among those of its reason.
func (e *Events) due(key eventKey, now time.Time) (count int32, room bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.last[key]
	switch {
	case was == nil && e.others(key, now) >= eventKeys:
		return 0, false
	case was == nil:
		e.last[key] = &told{at: now}
		return 1, true
	case now.Sub(was.at) < eventPause:
		was.count++
		return 0, true
	}
	count = was.count + 1
	*was = told{at: now}
	return count, true
}

// others forgets the events of a reason that are older than eventPause, and counts those that are not.
func (e *Events) others(key eventKey, now time.Time) (count int) {
	for k, t := range e.last {
		switch {
		case k.reason != key.reason:
		case now.Sub(t.at) >= eventPause:
			delete(e.last, k)
		default:
			count++
		}
	}
	return count
}

// messageBytes is what the API server takes as a message.
const messageBytes = 1024

// shorten returns a text of at most that many bytes.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most - len("…")
	for cut > 0 && text[cut]&0xC0 == 0x80 { // inside a character
		cut--
	}
	return text[:cut] + "…"
}

// Run sends events until the context ends. One that the API server does not take is dropped.
func (e *Events) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-e.queue:
			e.send(ctx, event)
		}
	}
}

func (e *Events) send(ctx context.Context, event *corev1.Event) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	err := e.client.rest.Post().Resource("events").Namespace(event.Namespace).Body(event).Do(ctx).Error()
	if err != nil && ctx.Err() == nil {
		e.log.WithError(err).WithField("event", event.Reason).Warn("The API server does not take an event")
	}
}
