package selling

import "time"

// plan is what is to be published, and how soon.
type plan struct {
	amounts map[Kind]int64
	want    Amounts       // what the amounts would be if no change waited
	due     bool          // something is to be published
	urgent  bool          // not to be delayed for what is calm
	closing bool          // not to be delayed at all
	next    time.Duration // time at which a slow change is due; 0 if there is none
}

// plan compares what is published with what is offered and bound.
func (s *Seller) plan(in *Input) plan {
	if s.phase == aside {
		return plan{}
	}
	// Amounts below what unknown pods have could fail them, and amounts that stay could be bought.
	// Without the resource nothing can be bought, and the kubelet admits what runs: it does not
	// check resources that the node lacks (removeMissingExtendedResources in
	// pkg/kubelet/lifecycle/predicate.go).
	if in.PodsBlind {
		return plan{due: len(in.Object.Amounts) > 0, urgent: true, closing: saysOpen(in.Object)}
	}
	p := plan{amounts: make(map[Kind]int64, len(s.names))}
	var offer, want Amounts
	sells := s.phase == open || s.phase == fresh && in.Report.Closed == nil
	if sells {
		offer = sold(in)
	}
	admitted, bound := sums(in.Pods, sells)
	for kind := range s.names {
		has, found := in.Object.Amounts[kind]
		// A pod that the kubelet has not admitted yet may have been bound by hand, beyond what
		// is sold: it keeps what is published from falling, but raises nothing.
		least := max(admitted[kind], min(bound[kind], has))
		if kind == Pins {
			offer[kind] = s.pins(in)
		}
		want[kind] = max(offer[kind], least)
		switch {
		case !found:
			s.slow[kind] = drift{}
			p.amounts[kind], p.due, p.urgent = want[kind], true, true
		default:
			p.amounts[kind] = max(least, s.amount(in, &p, kind, has, want[kind]))
		}
		if has < admitted[kind] {
			p.due, p.urgent = true, true
		}
	}
	p.want = want
	return p
}

// takeAlong lets changes that would wait come along with a publication.
func (s *Seller) takeAlong(in *Input, p *plan) {
	for kind, amount := range p.amounts {
		p.amounts[kind] = max(min(amount, p.want[kind]), s.lasted(in, kind))
	}
}

// lasted returns the amount to which a kind may rise with a publication for something else; 0 if it may not.
func (s *Seller) lasted(in *Input, kind Kind) int64 {
	if d := &s.slow[kind]; s.phase == open && d.up && in.Now >= d.since+s.hold {
		return d.lowest
	}
	return 0
}

// sold is what the node offers in all. The long-term offer comes first: what pods have bought
// of it is not for sale as batch.
func sold(in *Input) Amounts {
	o := in.Report.Offer
	_, bound := sums(in.Pods, true)
	return Amounts{
		BatchCPU: max(0, o[BatchCPU]-bound[MidCPU]), BatchMemory: max(0, o[BatchMemory]-bound[MidMemory]),
		MidCPU: min(o[MidCPU], o[BatchCPU]), MidMemory: min(o[MidMemory], o[BatchMemory]),
	}
}

// pins is how many CPUs pods can request as pins: those that the node would give to new pins, and those
// that pods have which request them. A pod without its pin yet is among the former. It does not depend on
// batch work: a node that sells nothing has pins, also without a control loop.
func (s *Seller) pins(in *Input) int64 {
	if in.Report == nil || in.Leaving || in.silent() || in.Heard-s.linked >= Silence {
		return 0
	}
	all := in.Report.Pinnable
	for i := range in.Pods {
		all += min(in.Report.Held[in.Pods[i].UID], in.Pods[i].Requests[Pins])
	}
	return min(all, Most)
}

// sums returns what the pods that the kubelet has admitted request, and all pods. Pods that end by
// an order count if evicted is true.
//
// A closed node does not count them: the scheduler counts a pod until it has ended, and would
// bind a pod that waits for the room before anybody could publish that the room is gone. A
// kubelet that starts again in that time admits pods by their age (HandlePodAdditions in
// pkg/kubelet/kubelet.go), and so fails the pod that ends anyway, or a younger batch pod in its
// place. That is rare, and costs what an eviction costs; a successor would come after each one.
func sums(pods []Pod, evicted bool) (admitted, bound Amounts) {
	for i := range pods {
		if pods[i].Evicted && !evicted {
			continue
		}
		for kind, amount := range pods[i].Requests {
			bound[kind] = min(bound[kind]+amount, Most)
			if pods[i].Admitted {
				admitted[kind] = min(admitted[kind]+amount, Most)
			}
		}
	}
	return admitted, bound
}

// amount returns what to publish of one kind, and notes in the plan how soon.
func (s *Seller) amount(in *Input, p *plan, kind Kind, has, want int64) int64 {
	d := &s.slow[kind]
	switch {
	case want == has:
		*d = drift{}
		return has
	case s.phase == fresh, kind == Pins:
		p.due, p.urgent = true, p.urgent || want < has
		return want
	case s.phase != open && want < has:
		// The scheduler may bind a pod that waits for room as soon as another one has ended.
		// What was published last and is not on the node was refused or changed, and is not free.
		free := in.Leaving || saysOpen(in.Object) || s.last == nil || s.last[kind] != want
		p.due, p.urgent, p.closing = true, true, p.closing || free
		return want
	case want < has && (has-want)*smallChange >= has:
		*d = drift{}
		p.due, p.urgent = true, true
		return want
	}
	if up := want > has; d.since == 0 || d.from != has || d.up != up {
		*d = drift{from: has, up: up, since: in.Now, lowest: want}
	}
	d.lowest = min(d.lowest, want)
	hold := s.hold
	if d.up && (d.lowest-has)*smallChange < has {
		hold *= 2 // memory wanders by some percent all the time, and CPU at other times
	}
	if at := d.since + hold; in.Now < at {
		if p.next == 0 || at < p.next {
			p.next = at
		}
		return has
	}
	p.due = true
	if d.up {
		return d.lowest
	}
	return want
}

// saysOpen reports whether the node object says that batch work may come.
func saysOpen(o *Object) bool {
	is := o.Found[BatchOpen]
	return is != nil && is.True
}

// wait returns how long a plan has to wait for earlier publications.
func (s *Seller) wait(in *Input, p *plan) time.Duration {
	switch {
	case p.closing || in.Leaving:
		return 0
	case p.urgent:
		return max(0, s.due-Interval-in.Now)
	}
	return max(0, s.due+s.pause-in.Now)
}

// spend counts a publication.
func (s *Seller) spend(in *Input) {
	s.due = min(max(s.due, in.Now)+Interval, in.Now+2*Interval)
	s.pause = time.Duration(in.Jitter * float64(Interval) / 2)
	s.hold = holdFor(in)
}

// again is when time alone changes the result.
func (s *Seller) again(in *Input, p *plan, wait time.Duration) time.Duration {
	at := in.Now + Interval
	for _, t := range []time.Duration{p.next, s.since + s.hold, in.Heard + Stall, in.Heard + Silence} {
		if t > in.Now {
			at = min(at, t)
		}
	}
	if p.due {
		at = min(at, in.Now+wait)
	}
	return at
}
