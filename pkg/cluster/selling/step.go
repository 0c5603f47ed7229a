package selling

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
)

// These are the times of publications.
const (
	Silence  = 30 * time.Second // a plugin that is away for so long sells nothing
	Stall    = 10 * time.Second // a plugin that is connected and silent, or whose loop does not measure, for so long sells nothing; the failsafe has acted after 5 s
	Hold     = 5 * time.Minute  // what may wait waits for so long, and up to a fifth longer
	Interval = 10 * time.Second // between two publications
)

// A change of less than one part in smallChange of what is published may wait: a fall for Hold, and a rise for another
// publication after Hold, but no longer than twice as long.
const smallChange = 10

// Input is what a step decides by. All times are since the start of the process, by a clock
// that does not jump.
type Input struct {
	Now       time.Duration
	Report    *Report           // latest report of the node's plugin; nil before the first
	Heard     time.Duration     // time of the latest report; 0 before the first
	Connected bool              // to the plugin, which has reported since
	Pods      []Pod             // bound to the node, and not ended
	PodsBlind bool              // the pods have not been known for Silence at least; Pods is empty then
	Requested nodereport.Amount // CPU and memory that the pods request which the kubelet has admitted
	Object    *Object           // the node object; nil if there is none, or it is not known
	Leaving   bool              // this process is about to end
	Jitter    float64           // random, 0 to 1, so that nodes do not publish at the same time
}

// Pod is a pod that is bound to the node.
type Pod struct {
	UID      string
	Requests Amounts
	Admitted bool          // by the kubelet, which counts the pod from then on
	Ending   bool          // it is being deleted
	Grace    time.Duration // grace period of a pod that is ending
	Evicted  bool          // it ends soon, by an order that began the cool-down
}

// Object is what the node object has.
type Object struct {
	UID     string
	Amounts map[Kind]int64        // in both capacity and allocatable; absent if they differ or there is none
	Found   map[string]*Condition // Sluice's conditions by type
	Other   *Publisher            // another program that publishes one of the seller's resources; nil if there is none
	Report  *nodereport.Report    // what the node says of itself; nil if it says nothing that can be read
}

// Publisher is another program that publishes one of the resources.
type Publisher struct{ Manager, Resource string }

// Publication is what the node object is to have of Sluice, entirely.
type Publication struct {
	Amounts    map[Kind]int64 // nil if none are to be there
	Conditions []Condition
	Report     *nodereport.Report // nil if the node is to say nothing
}

// Condition is a condition of the node.
type Condition struct {
	Type string
	True bool
	Reason
}

// These are the types of the conditions.
const (
	Ready     = "SluiceReady"
	BatchOpen = "SluiceBatchOpen"
)

// Output is the result of a step.
type Output struct {
	Publish *Publication  // nil if the node object is to stay as it is
	Again   time.Duration // time of the next step at the latest, if nothing happens before
}

// Seller decides what a node publishes. The zero value is a seller of no resources.
type Seller struct {
	names map[Kind]string

	uid   string // of the node object
	phase phase
	since time.Duration // start of the phase, if it is opening
	hold  time.Duration // how long what may wait waits now

	due   time.Duration  // time at which Interval has passed for each publication
	pause time.Duration  // further wait of what is not urgent
	last  map[Kind]int64 // amounts of the latest publication

	slow       [kinds]drift
	reports    reports
	measuredAt time.Time     // of the loop, by the node's clock
	moved      time.Duration // time at which measuredAt was seen to change
	linked     time.Duration // time at which the plugin was seen to be connected to the container runtime
	measured   time.Duration // time of the latest report of a plugin that knew its offer; 0 before the first
}

// phase is what a seller does.
type phase int

const (
	starting phase = iota // has not seen the node object yet
	fresh                 // publishes all at once: nothing is there, or what a predecessor left at its end
	closed                // publishes what is bound
	preview               // publishes what is bound, and has sold nothing since the plugin was in preview
	opening               // could sell, and waits
	open                  // publishes the offer
	aside                 // leaves the names to another publisher
)

// drift is a change of an amount that may wait.
type drift struct {
	from   int64 // what is published
	up     bool
	since  time.Duration
	lowest int64 // of what could have been published since
}

// NewSeller returns a seller of resources with these names by kind.
func NewSeller(names map[Kind]string) *Seller { return &Seller{names: names} }

// Step decides what the node object is to have now. The caller publishes it, and shows the
// result in Object at the next step.
//
// Urgent are falls by a tenth or more, a first publication, and a publication below what
// running pods have; everything else waits. Publications that are not urgent are at least
// Interval apart. An urgent one may come earlier if it is the only one so: there are at most
// 2 + t/Interval of both together in any time t. To close is always possible at once, and
// happens at most once in Hold, and each time that somebody puts the node in preview. A fall of a closed node is always possible at once, too: it
// happens at most twice per pod, when the pod begins to end and when it ends, which costs the API
// server more requests of the kubelet.
func (s *Seller) Step(in *Input) Output {
	if in.Object == nil {
		return Output{Again: in.Now + Interval}
	}
	if in.Object.UID != s.uid {
		s.begin(in)
	}
	ready, shut, known := s.judge(in)
	if !known {
		return Output{Again: min(in.Heard+Silence, in.Now+Interval)}
	}
	s.enter(in, shut)
	plan := s.plan(in)
	var conditions []Condition
	conditions = append(conditions, ready, s.batchOpen(in, shut))
	report := s.report(in)
	if differ(in.Object, conditions) || s.reports.due(in, report) {
		plan.due = true
	}
	wait := s.wait(in, &plan)
	if !plan.due || wait > 0 {
		return Output{Again: s.again(in, &plan, wait)}
	}
	s.takeAlong(in, &plan)
	s.spend(in)
	s.last = plan.amounts
	s.reports.spend(in, report)
	return Output{Publish: &Publication{Amounts: plan.amounts, Conditions: conditions, Report: report}, Again: in.Now + time.Second}
}

// begin forgets what was before a node object.
func (s *Seller) begin(in *Input) {
	s.uid, s.phase = in.Object.UID, starting
	s.slow = [kinds]drift{}
	if s.hold == 0 {
		s.hold = holdFor(in)
	}
}

func holdFor(in *Input) time.Duration {
	return Hold + time.Duration(in.Jitter*float64(Hold)/5)
}

// judge returns the condition Ready, and why nothing is sold; nil if the offer is. It is not known before the first
// report, while the plugin may still come, nor on an open node whose plugin has started again, or has read a new
// configuration, and may still measure.
func (s *Seller) judge(in *Input) (ready Condition, shut *Reason, known bool) {
	ready = Condition{Type: Ready}
	r := in.Report
	if r != nil && (s.moved == 0 || !r.MeasuredAt.Equal(s.measuredAt)) {
		s.measuredAt, s.moved = r.MeasuredAt, in.Heard
	}
	if r != nil && (s.linked == 0 || r.Connected) {
		s.linked = in.Heard
	}
	unknown := r != nil && r.Closed != nil && r.Closed.Word == OfferUnknown
	if r != nil && !unknown {
		s.measured = in.Heard
	}
	switch {
	case in.Leaving:
		ready.Reason = Reason{Stopping, "sluice-kube is stopping, and sells nothing until it is back."}
	case in.PodsBlind:
		ready.Reason = Reason{PodsUnknown, fmt.Sprintf("sluice-kube has not been able to read the node's pods for %v or more: allow its service account to list and watch pods, as the chart's ClusterRole does, and see its log.", Silence)}
	case in.silent():
		ready.Reason = Reason{PluginSilent, fmt.Sprintf("sluice has not reported for more than %v: see whether its container runs.", min(in.Now-in.Heard, Silence).Truncate(Stall))}
	case r == nil:
		return ready, nil, false
	case r.NotActing != nil:
		ready.Reason = *r.NotActing
	case in.Heard-s.moved >= r.Stall:
		ready.Reason = Reason{LoopStalled, fmt.Sprintf("The control loop has not measured for more than %v: see the log of sluice.", r.Stall)}
	case in.Heard-s.linked >= Silence:
		ready.Reason = Reason{RuntimeDisconnected, "sluice is not connected to the container runtime, which starts containers without it: see 'sluice doctor'."}
	case unknown && saysOpen(in.Object) && in.Now-s.measured < Silence:
		return ready, nil, false
	case r.Shortcomings != nil:
		ready.Reason = *r.Shortcomings
		return ready, r.Closed, true
	default:
		ready.True, ready.Reason = true, Reason{Acting, "sluice acts on this node."}
		return ready, r.Closed, true
	}
	if in.Leaving {
		return ready, &ready.Reason, true
	}
	return ready, &Reason{NotReady, ready.Text}, true
}

// silent reports whether the plugin has not reported for too long.
func (in *Input) silent() bool {
	silent := in.Now - in.Heard
	return silent >= Silence || in.Connected && silent >= Stall
}

// enter changes the phase.
func (s *Seller) enter(in *Input, shut *Reason) {
	switch {
	case in.Object.Other != nil:
		s.phase = aside
	case s.phase == starting || s.phase == aside:
		s.phase = first(in.Object)
	case s.phase == fresh && saysOpen(in.Object) && len(in.Object.Amounts) == len(s.names):
		s.phase = open
	}
	switch {
	case s.phase == aside:
	case s.phase == fresh && shut != nil && shut.Word == OfferUnknown: // the plugin starts as well
	case shut != nil && s.previews(in, shut):
		s.phase = preview
	case shut != nil:
		s.phase = closed
	case s.phase == preview:
		s.phase = fresh
	case s.phase == closed:
		s.phase, s.since, s.hold = opening, in.Now, holdFor(in)
	case s.phase == opening && in.Now-s.since >= s.hold:
		s.phase = fresh
	}
}

// previews reports whether somebody has put the node in preview, or has ended that and the plugin starts again or has
// not measured yet. Whoever ends a preview has decided that the node sells: no short calm has opened it.
func (s *Seller) previews(in *Input, shut *Reason) bool {
	starts := shut.Word == OfferUnknown || shut.Word == NotReady
	return in.Report != nil && in.Report.Previews || s.phase == preview && starts
}

// first is the phase of a seller that finds this object.
func first(o *Object) phase {
	was := o.Found[BatchOpen]
	switch {
	case len(o.Amounts) == 0, was != nil && was.Word == Stopping:
		return fresh
	case saysOpen(o):
		return open
	}
	return closed
}

// Closes reports whether the node object says that batch work may come, although nothing may be
// sold now. To publish that is worth an attempt while others wait.
func (s *Seller) Closes(in *Input) bool {
	if in.Object == nil || in.Object.Other != nil || !saysOpen(in.Object) {
		return false
	}
	_, shut, _ := s.judge(in)
	return shut != nil
}

// batchOpen returns the condition BatchOpen.
func (s *Seller) batchOpen(in *Input, shut *Reason) Condition {
	c := Condition{Type: BatchOpen}
	switch {
	case s.phase == aside:
		o := in.Object.Other
		c.Reason = Reason{OtherPublisher, fmt.Sprintf("The field manager %q publishes %s, so that Sluice does not: choose other names by --resources, or stop the other publisher and remove the resource from the node's capacity and allocatable.", o.Manager, o.Resource)}
	case shut != nil:
		c.Reason = *shut
	case s.phase == opening:
		c.Reason = Reason{Reopening, "Batch work could run again: selling begins if that lasts for 5 to 6 minutes."}
	default:
		c.True, c.Reason = true, Reason{Selling, "The node sells what its services do not use."}
	}
	return c
}

// differ reports whether the object lacks a condition, or has it with another status or
// reason. Texts may differ: they change with what they count.
func differ(o *Object, conditions []Condition) bool {
	for _, c := range conditions {
		has := o.Found[c.Type]
		if has == nil || has.True != c.True || has.Word != c.Word {
			return true
		}
	}
	return false
}
