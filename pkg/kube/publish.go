package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/status"
)

// These bound how often a failed publication is tried again.
const (
	leastBackoff = time.Second
	mostBackoff  = time.Minute
	leavingTime  = 5 * time.Second        // for the last publications
	leavingPause = 200 * time.Millisecond // between them
)

// Publisher publishes what the node sells.
type Publisher struct {
	client *Client
	log    logrus.FieldLogger
	events *Events
	pods   *Pods
	node   *node
	names  map[selling.Kind]string
	seller *selling.Seller
	start  time.Time
	wake   chan struct{}
	// Published is called after each attempt, for metrics.
	Published func(Attempt)

	mu        sync.Mutex
	report    *selling.Report
	heard     time.Duration
	connected bool
	coolDown  coolDown
	cut       cutGrants

	backoff time.Duration
	retry   time.Duration // earliest time of the next attempt
	closing bool          // the latest step was to close the node
}

// Attempt is the result of one publication.
type Attempt struct {
	Amounts map[string]int64 // by resource; what the node has now
	Err     error
}

// NewPublisher returns a publisher of resources with these names. It publishes while Run runs.
func NewPublisher(client *Client, names map[selling.Kind]string, events *Events, log logrus.FieldLogger) *Publisher {
	p := &Publisher{
		client: client, log: log, events: events, names: names, seller: selling.NewSeller(names),
		start: time.Now().Add(-time.Second), // the time 0 means never
		wake:  make(chan struct{}, 1), Published: func(Attempt) {},
	}
	p.pods = client.Pods(p.names, p.awake)
	p.node = client.newNode(p.names, p.awake)
	return p
}

// Pods returns the pods that the publisher follows.
func (p *Publisher) Pods() *Pods { return p.pods }

func (p *Publisher) awake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Heard notes what the node's plugin reports. A status that cannot be true is an error, and
// changes nothing.
func (p *Publisher) Heard(s *status.Status) error {
	report, err := selling.NewReport(s)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.report, p.heard, p.connected = report, time.Since(p.start), true
	p.cut = p.cut.tell(s.Grants.Cut, p.events)
	p.mu.Unlock()
	p.awake()
	return nil
}

// Lost notes that the plugin is away.
func (p *Publisher) Lost() {
	p.mu.Lock()
	p.connected = false
	p.mu.Unlock()
	p.awake()
}

// Run follows the node and its pods, and publishes until the context ends. Then it publishes that
// nothing is sold.
func (p *Publisher) Run(ctx context.Context) {
	var followers sync.WaitGroup
	defer followers.Wait()
	followers.Go(func() { p.pods.Run(ctx.Done()) })
	followers.Go(func() { p.node.controller.Run(ctx.Done()) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			p.leave()
			return
		case <-p.wake:
		case <-timer.C:
		}
		again, _ := p.step(ctx, false)
		timer.Reset(max(again, time.Millisecond))
	}
}

// leave publishes that nothing is sold. It tries until that is on the node, or its time is over:
// a node that stays open sells what nobody watches.
func (p *Publisher) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leavingTime)
	defer cancel()
	for ctx.Err() == nil {
		p.retry = 0
		if _, settled := p.step(ctx, true); settled {
			return
		}
		pause(ctx, leavingPause)
	}
}

// step publishes what is due. It returns the time until the next step, and whether nothing had to
// be published.
func (p *Publisher) step(ctx context.Context, leaving bool) (again time.Duration, settled bool) {
	at := time.Now()
	now := at.Sub(p.start)
	blind := !p.pods.Synced()
	if blind && now < selling.Silence {
		return time.Second, leaving // the pods are followed no more
	}
	object, from := p.node.object()
	pods, requested := p.pods.Requests(p.refused)
	if blind {
		pods = nil
	}
	p.mu.Lock()
	in := selling.Input{
		Now: now, Report: p.coolDown.apply(p.report, at), Heard: p.heard, Connected: p.connected,
		Pods: p.coolDown.mark(pods, at), PodsBlind: blind, Requested: requested, Object: object, Leaving: leaving, Jitter: rand.Float64(),
	}
	waits := p.coolDown.settled // made before the input, which so has the cool-down
	p.mu.Unlock()
	if p.held(&in) {
		return p.retry - now, false
	}
	out := p.seller.Step(&in)
	if out.Publish != nil {
		p.publish(ctx, out.Publish, object, from)
		return time.Millisecond, false
	}
	p.settle(waits)
	return out.Again - now, true
}

// held reports whether an attempt has to wait because others have failed. The first attempt to
// close the node does not wait: the API server may be back, and until the node is closed the
// scheduler goes by the offer.
func (p *Publisher) held(in *selling.Input) bool {
	closes := p.seller.Closes(in)
	tried := p.closing
	p.closing = closes
	return in.Now < p.retry && (tried || !closes)
}

// refused tells of a pod whose amounts cannot be.
func (p *Publisher) refused(pod *Pod, err error) {
	p.events.Pod(pod, corev1.EventTypeWarning, "InvalidBatchRequest", err.Error())
}

// publish lets the node object have a publication.
func (p *Publisher) publish(ctx context.Context, what *selling.Publication, object *selling.Object, from *corev1.Node) {
	manifest := p.manifest(what, from)
	answer, err := p.apply(ctx, manifest)
	if err != nil && refuses(err) && manifest.Metadata.Annotations != nil {
		p.log.WithError(explain(err, p.client.node)).Warn("Publishing failed: trying again without the report of the node")
		manifest.Metadata.Annotations = nil
		answer, err = p.apply(ctx, manifest)
	}
	attempt := Attempt{Amounts: p.named(object.Amounts), Err: err}
	if err == nil {
		p.backoff, p.retry = 0, 0
		p.node.patch(answer)
		attempt.Amounts = p.named(what.Amounts)
		p.tell(what, object)
	} else {
		p.seller.Failed()
		p.backoff = min(max(2*p.backoff, leastBackoff), mostBackoff)
		p.retry = time.Since(p.start) + p.backoff + time.Duration(rand.Float64()*float64(p.backoff)/2)
		p.log.WithError(explain(err, p.client.node)).WithField("retry_in", (p.retry - time.Since(p.start)).Round(time.Millisecond).String()).Warn("Publishing failed")
	}
	p.Published(attempt)
}

// apply lets the node object have the manifest. Where only the kubelet, or somebody who has written
// the node's report, stands against that, it takes the fields from them.
func (p *Publisher) apply(ctx context.Context, manifest *applied) (*corev1.Node, error) {
	answer, err := p.client.apply(ctx, manifest, false)
	if err != nil && yields(err) {
		return p.client.apply(ctx, manifest, true)
	}
	return answer, err
}

// manifest is the node's status as it is to be of Sluice.
func (p *Publisher) manifest(what *selling.Publication, from *corev1.Node) *applied {
	m := newApplied(from.Name, string(from.UID))
	if what.Amounts != nil {
		m.Status.Capacity = map[string]string{}
		for name, amount := range p.named(what.Amounts) {
			m.Status.Capacity[name] = strconv.FormatInt(amount, 10)
		}
		m.Status.Allocatable = m.Status.Capacity
	}
	for _, c := range what.Conditions {
		m.Status.Conditions = append(m.Status.Conditions, condition(c, from.Status.Conditions))
	}
	if what.Report != nil {
		text, err := what.Report.Text()
		if err != nil { // a time that JSON does not have: the clock of the node is far off
			p.log.WithError(err).Warn("The report of the node cannot be written")
			return m
		}
		m.Metadata.Annotations = map[string]string{nodereport.Annotation: text}
	}
	return m
}

// condition is a condition that keeps the time of its last change if its status stays.
func condition(c selling.Condition, old []corev1.NodeCondition) corev1.NodeCondition {
	now := metav1.Now()
	is := corev1.NodeCondition{
		Type: corev1.NodeConditionType(c.Type), Status: corev1.ConditionFalse, Reason: c.Word, Message: c.Text,
		LastTransitionTime: now, LastHeartbeatTime: now,
	}
	if c.True {
		is.Status = corev1.ConditionTrue
	}
	for _, was := range old {
		if was.Type == is.Type && was.Status == is.Status {
			is.LastTransitionTime = was.LastTransitionTime
		}
	}
	return is
}

func (p *Publisher) named(amounts map[selling.Kind]int64) map[string]int64 {
	named := make(map[string]int64, len(amounts))
	for kind, amount := range amounts {
		named[p.names[kind]] = amount
	}
	return named
}

// tell logs a publication, and tells of another publisher in an event.
func (p *Publisher) tell(what *selling.Publication, object *selling.Object) {
	fields := logrus.Fields{}
	for name, amount := range p.named(what.Amounts) {
		fields[name] = amount
	}
	for _, c := range what.Conditions {
		fields[c.Type] = c.Word
	}
	p.log.WithFields(fields).Info("Published")
	if object.Other != nil {
		for _, c := range what.Conditions {
			if c.Word == selling.OtherPublisher {
				p.events.Node(corev1.EventTypeWarning, "SluiceStepsAside", c.Text)
			}
		}
	}
}

// reportField is the field of the node's report, as conflicts name it.
const reportField = ".metadata.annotations." + nodereport.Annotation

// refuses reports whether the API server refuses what was applied, and will again. Then it may be
// the node's report alone that it refuses: annotations are full, or a policy is against it, or a
// webhook, which the API server reports as 400 unless the webhook names another code.
func refuses(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// yields reports whether an apply failed only because the kubelet owns what is applied, or because
// somebody else has written the node's report.
func yields(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsConflict(err) || status.Status().Details == nil {
		return false
	}
	found := false
	for _, cause := range status.Status().Details.Causes {
		theirs := !strings.Contains(cause.Message, `conflict with "`+kubelet+`"`) && cause.Field != reportField
		if cause.Type != metav1.CauseTypeFieldManagerConflict || theirs {
			return false
		}
		found = true
	}
	return found
}

// explain says what to do about an answer of the API server.
func explain(err error, node string) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("node %s: %w (allow the service account to patch nodes/status, as the chart's ClusterRole does)", node, err)
	case apierrors.IsInvalid(err):
		return fmt.Errorf("node %s: %w (an admission policy refuses it: see the policy that its text names)", node, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("node %s: %w (another program owns the fields, or the node was made anew)", node, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("node %s: %w (--node-name is to be the node's name in Kubernetes)", node, err)
	}
	return fmt.Errorf("node %s: %w", node, err)
}
