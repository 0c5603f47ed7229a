package selling

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestSellerProperties plays random hours of a node, and checks every publication against what
// was true when it was made.
func TestSellerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(offers(4000))
		w.seller = NewSeller(withPins())
		var sent []time.Duration
		was := w.seller
		var told []Pod             // the pods at the latest publication
		var object *Object         // what it made
		behind := time.Duration(0) // since when a large fall is not on the node, although it could be
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			change(t, w)
			before := w.in.Object
			if w.seller != was {
				was, sent = w.seller, nil // a new process knows no earlier publication
			}
			out := w.step()
			if out.Publish != nil {
				checkPublication(t, w, before, out.Publish)
				switch {
				case w.away:
				case w.word() == Selling || !saysOpen(before) && !falls(before, out.Publish):
					sent = append(sent, w.in.Now)
				case !saysOpen(before):
					if slices.Equal(told, w.in.Pods) && object == before {
						t.Fatalf("at %v it published a fall again, although no pod has ended: %+v", w.in.Now, out.Publish)
					}
				}
				if !w.away {
					told, object = slices.Clone(w.in.Pods), w.in.Object
				}
			}
			if out.Again <= w.in.Now && !w.away && out.Publish == nil {
				t.Fatalf("at %v it wants to look again at %v", w.in.Now, out.Again)
			}
			checkRate(t, sent)
			behind = checkFall(t, w, behind)
		}
	})
}

// falls reports whether a publication lowers an amount of batch resources.
func falls(before *Object, p *Publication) bool {
	for kind, amount := range p.Amounts {
		if kind != Pins && amount < before.Amounts[kind] {
			return true
		}
	}
	return false
}

// change lets some time pass, and something happen.
func change(t *rapid.T, w *world) {
	w.in.Now += rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, time.Second, 7 * time.Second, 40 * time.Second, 4 * time.Minute}).Draw(t, "passes")
	w.in.Jitter = rapid.Float64Range(0, 1).Draw(t, "jitter")
	if rapid.IntRange(0, 9).Draw(t, "silent") > 0 {
		w.report(*w.in.Report)
	}
	r := *w.in.Report
	switch rapid.IntRange(0, 13).Draw(t, "event") {
	case 0, 1, 2, 3:
		r.Offer = offers(rapid.Int64Range(0, 10000).Draw(t, "offer")).Offer
	case 4:
		r.Closed = rapid.SampledFrom([]*Reason{nil, nil, {Window, "w"}, {Switch, "s"}, {OfferUnknown, "u"}}).Draw(t, "closed")
	case 5:
		r.NotActing = rapid.SampledFrom([]*Reason{nil, nil, {Preview, "p"}}).Draw(t, "acting")
		r.Previews = r.NotActing != nil && rapid.Bool().Draw(t, "previews")
	case 6:
		w.in.Pods = append(w.in.Pods, podOf(rapid.Int64Range(0, 6000).Draw(t, "request"), rapid.Bool().Draw(t, "admitted")))
	case 7:
		if n := len(w.in.Pods); n > 0 {
			w.in.Pods = slices.Delete(slices.Clone(w.in.Pods), n-1, n)
		}
	case 8:
		w.away = rapid.Bool().Draw(t, "away")
	case 9:
		w.in.Object = &Object{UID: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "uid")}
	case 10:
		w.seller = NewSeller(withPins())
	case 11:
		other := *w.in.Object
		other.Other = rapid.SampledFrom([]*Publisher{nil, nil, {"x", "batch.sluice.dev/cpu"}}).Draw(t, "other")
		w.in.Object = &other
	case 12:
		if n := len(w.in.Pods); n > 0 {
			w.in.Pods = slices.Clone(w.in.Pods)
			w.in.Pods[n-1].Evicted = !w.in.Pods[n-1].Evicted
		}
	case 13:
		r.Pinnable = rapid.Int64Range(0, 8).Draw(t, "pinnable")
	}
	w.in.Report = &r
}

// checkPublication compares a publication with the rules as docs/kubernetes.md has them.
func checkPublication(t *rapid.T, w *world, before *Object, p *Publication) {
	open := p.Conditions[slices.IndexFunc(p.Conditions, func(c Condition) bool { return c.Type == BatchOpen })]
	if before.Other != nil {
		if p.Amounts != nil || open.Word != OtherPublisher {
			t.Fatalf("it published %+v beside another publisher", p)
		}
		return
	}
	offer := w.in.Report.Offer
	for kind, amount := range p.Amounts {
		var running, bound int64
		for _, pod := range w.in.Pods {
			if pod.Evicted && !open.True {
				continue
			}
			bound += pod.Requests[kind]
			if pod.Admitted {
				running += pod.Requests[kind]
			}
		}
		least := max(running, min(bound, before.Amounts[kind]))
		if kind == Pins && amount <= max(w.in.Report.Pinnable, least) {
			continue // also sold where batch work is not
		}
		switch {
		case amount < least:
			t.Fatalf("kind %d: %d is below %d, which is bound", kind, amount, least)
		case !open.True && amount != least:
			t.Fatalf("kind %d: closed (%s) is %d, want exactly the bound %d", kind, open.Word, amount, least)
		case amount > max(offer[kind], least):
			t.Fatalf("kind %d: %d is above both the offer %d and the bound %d", kind, amount, offer[kind], least)
		}
	}
	if open.True && (w.in.Report.Closed != nil || w.in.Report.NotActing != nil || w.in.Now-w.in.Heard >= Silence) {
		t.Fatalf("it sells although the report is %+v", w.in.Report)
	}
}

// checkRate checks that any window of publications has at most two more than one in Interval.
// Those that close are not among them, nor falls of a closed node, which follow pods that end.
func checkRate(t *rapid.T, sent []time.Duration) {
	for i, from := range sent {
		for j := i; j < len(sent); j++ {
			if n, most := j-i+1, 2+int((sent[j]-from)/Interval); n > most {
				t.Fatalf("%d publications in %v", n, sent[j]-from)
			}
		}
	}
}

// checkFall checks that a fall by a tenth waits for the rate alone, and for a plugin that may still measure.
func checkFall(t *rapid.T, w *world, behind time.Duration) time.Duration {
	has, found := w.in.Object.Amounts[BatchCPU]
	var bound int64
	for _, pod := range w.in.Pods {
		bound += pod.Requests[BatchCPU]
	}
	want := max(w.in.Report.Offer[BatchCPU], bound)
	if w.away || !found || w.in.Object.Other != nil || (has-want)*smallChange < has || has == want {
		return 0
	}
	if behind == 0 {
		return w.in.Now
	}
	most := 2 * Interval
	if c := w.in.Report.Closed; c != nil && c.Word == OfferUnknown {
		most += Silence
	}
	if w.in.Now-behind > most {
		t.Fatalf("%d is published since %v, and %d is offered or bound", has, w.in.Now-behind, want)
	}
	return behind
}
