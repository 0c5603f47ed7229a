package selling

import (
	"math/rand"
	"testing"
	"time"
)

// world is a node with an API server that a seller publishes to, and that may be away.
type world struct {
	seller *Seller
	in     Input
	away   bool
	sent   []sent
}

// sent is one publication that the node object received.
type sent struct {
	at   time.Duration
	what Publication
}

// cpuOnly is a report of a node that offers this much CPU and memory in proportion.
func offers(milli int64) *Report {
	return &Report{Connected: true, Stall: Stall, Offer: Amounts{milli, milli << 20, milli / 2, milli << 19}}
}

func newWorld(report *Report) *world {
	w := &world{seller: NewSeller(Sluice.Names())}
	w.in = Input{Now: time.Second, Heard: time.Second, Connected: true, Report: report, Object: &Object{UID: "1"}}
	return w
}

// step takes one step and lets the node object have what it publishes.
func (w *world) step() Output {
	out := w.seller.Step(&w.in)
	if out.Publish == nil || w.away {
		return out
	}
	w.sent = append(w.sent, sent{w.in.Now, *out.Publish})
	o := &Object{UID: w.in.Object.UID, Other: w.in.Object.Other, Amounts: out.Publish.Amounts, Report: out.Publish.Report, Found: map[string]*Condition{}}
	for _, c := range out.Publish.Conditions {
		o.Found[c.Type] = &c
	}
	w.in.Object = o
	return out
}

// run takes a step each second, with a new report of a loop that goes on measuring.
func (w *world) run(d time.Duration) {
	for range d / time.Second {
		w.in.Now += time.Second
		w.report(*w.in.Report)
		w.step()
	}
}

func (w *world) report(r Report) {
	r.MeasuredAt = time.Unix(0, int64(w.in.Now))
	w.in.Report, w.in.Heard = &r, w.in.Now
}

func (w *world) cpu() int64   { return w.in.Object.Amounts[BatchCPU] }
func (w *world) word() string { return w.in.Object.Found[BatchOpen].Word }
func (w *world) ready() string {
	return w.in.Object.Found[Ready].Word
}

func podOf(milli int64, admitted bool) Pod {
	return Pod{Requests: Amounts{BatchCPU: milli, BatchMemory: milli << 20}, Admitted: admitted}
}

func TestSelling(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		play func(w *world)
		cpu  int64
		word string
		sent int
	}{
		"the first offer is published at once": {func(w *world) { w.step() }, 4000, Selling, 1},
		"a fall by a tenth is published at once": {func(w *world) {
			w.step()
			w.in.Report = offers(3600)
			w.step()
		}, 3600, Selling, 2},
		"a third change waits": {func(w *world) {
			w.step()
			for _, milli := range []int64{3000, 2000} {
				w.in.Report = offers(milli)
				w.step()
			}
		}, 3000, Selling, 2},
		"and comes after ten seconds": {func(w *world) {
			w.step()
			for _, milli := range []int64{3000, 2000} {
				w.in.Report = offers(milli)
				w.run(time.Second)
			}
			w.run(Interval)
		}, 2000, Selling, 3},
		"a small fall waits": {func(w *world) {
			w.step()
			w.in.Report = offers(3700)
			w.run(Hold - 5*time.Second)
		}, 4000, Selling, 1},
		"unless a condition changes": {func(w *world) {
			w.step()
			w.in.Report = offers(3700)
			w.run(20 * time.Second)
			w.in.Report.Shortcomings = &Reason{"KernelLacks", "k"}
			w.run(time.Second)
		}, 3700, Selling, 2},
		"for five minutes": {func(w *world) {
			w.step()
			w.in.Report = offers(3700)
			w.run(Hold + 5*time.Second)
		}, 3700, Selling, 2},
		"a rise waits": {func(w *world) {
			w.step()
			w.in.Report = offers(8000)
			w.run(Hold - 5*time.Second)
		}, 4000, Selling, 1},
		"a rise is to what lasted": {func(w *world) {
			w.step()
			w.in.Report = offers(8000)
			w.run(time.Minute)
			w.in.Report = offers(5000)
			w.run(time.Minute)
			w.in.Report = offers(9000)
			w.run(Hold - time.Minute)
		}, 5000, Selling, 2},
		"a rise of less than a tenth waits": {func(w *world) {
			w.step()
			w.in.Report = offers(4399)
			w.run(2*Hold - 5*time.Second)
		}, 4000, Selling, 1},
		"for ten minutes": {func(w *world) {
			w.step()
			w.in.Report = offers(4399)
			w.run(2*Hold + 5*time.Second)
		}, 4399, Selling, 2},
		"or five if there is another reason to publish": {func(w *world) {
			w.step()
			w.in.Report = offers(4399)
			w.run(Hold + 5*time.Second)
			w.in.Report.Offer[BatchMemory] = 0
			w.run(time.Second)
		}, 4399, Selling, 2},
		"and not before": {func(w *world) {
			w.step()
			w.in.Report = offers(4399)
			w.run(Hold - 5*time.Second)
			w.in.Report.Offer[BatchMemory] = 0
			w.run(time.Second)
		}, 4000, Selling, 2},
		"what is bound stays": {func(w *world) {
			w.in.Pods = []Pod{podOf(1500, true), podOf(500, true)}
			w.step()
			w.in.Report = offers(1000)
			w.step()
		}, 2000, Selling, 2},
		"a pod that was bound by hand raises nothing": {func(w *world) {
			w.step()
			w.in.Pods = []Pod{podOf(1500, true), podOf(1<<40, false)}
			w.run(2 * Hold)
		}, 4000, Selling, 2}, // the second one tells in the node's report what is bound
		"what running pods have is published at once": {func(w *world) {
			w.step()
			w.in.Pods = []Pod{podOf(1500, true), podOf(4500, true)}
			w.step()
		}, 6000, Selling, 2},
		"closed is what is bound": {func(w *world) {
			w.step()
			w.in.Pods = []Pod{podOf(1500, true)}
			w.in.Report.Closed = &Reason{Window, "a window"}
			w.step()
		}, 1500, Window, 2},
		"closed follows what ends": {func(w *world) {
			w.step()
			w.in.Pods = []Pod{podOf(1500, true)}
			w.in.Report.Closed = &Reason{Window, "a window"}
			w.run(time.Minute)
			w.in.Pods = nil
			w.run(time.Second)
		}, 0, Window, 3},
		"and each end at once": {func(w *world) {
			w.in.Pods = []Pod{podOf(1500, true), podOf(100, true), podOf(50, true), podOf(25, true)}
			w.step()
			w.in.Report.Closed = &Reason{CoolDown, "an eviction"}
			w.step()
			for range 3 {
				w.in.Pods = w.in.Pods[1:]
				w.step()
			}
		}, 25, CoolDown, 5},
		"an evicted pod leaves no room for its successor": {func(w *world) {
			w.in.Pods = []Pod{podOf(1500, true), podOf(100, true)}
			w.step()
			w.in.Report.Closed = &Reason{CoolDown, "an eviction"}
			w.step()
			w.in.Pods[0].Evicted = true
			w.step()
		}, 100, CoolDown, 3},
		"and has its room again if it does not end": {func(w *world) {
			w.in.Pods = []Pod{podOf(1500, true), podOf(100, true)}
			w.in.Report.Closed = &Reason{CoolDown, "an eviction"}
			w.in.Pods[0].Evicted = true
			w.step()
			w.in.Pods[0].Evicted = false
			w.step()
		}, 1600, CoolDown, 2},
		"an evicted pod counts while the node sells": {func(w *world) {
			w.in.Pods = []Pod{podOf(5000, true)}
			w.in.Pods[0].Evicted = true
			w.step()
		}, 5000, Selling, 1},
		"reopening waits": {func(w *world) {
			w.step()
			w.in.Report.Closed = &Reason{Window, "a window"}
			w.run(time.Minute)
			w.in.Report = offers(4000)
			w.run(Hold - 5*time.Second)
		}, 0, Reopening, 3},
		"for five minutes, too": {func(w *world) {
			w.step()
			w.in.Report.Closed = &Reason{Window, "a window"}
			w.run(time.Minute)
			w.in.Report = offers(4000)
			w.run(Hold + 5*time.Second)
		}, 4000, Selling, 4},
		"preview closes": {func(w *world) { w.in.Report.NotActing = &Reason{Preview, "x"}; w.step() }, 0, NotReady, 1},
		"the end of a preview opens at once, when the plugin has started again and measured": {func(w *world) {
			w.in.Report.NotActing, w.in.Report.Previews = &Reason{Preview, "x"}, true
			w.run(time.Minute)
			w.in.Connected = false
			w.in.Now += Silence
			w.step()
			w.in.Connected, w.in.Report = true, offers(4000)
			w.in.Report.Closed = &Reason{OfferUnknown, "not measured yet"}
			w.run(time.Minute)
			w.in.Report = offers(4000)
			w.run(2 * Interval)
		}, 4000, Selling, 4},
		"the end of a preview by another agent waits": {func(w *world) {
			w.in.Report.NotActing = &Reason{Preview, "koordlet sets the same"}
			w.run(time.Minute)
			w.in.Report = offers(4000)
			w.run(time.Minute)
		}, 0, Reopening, 2},
		"what was closed after its preview waits": {func(w *world) {
			w.in.Report.NotActing, w.in.Report.Previews = &Reason{Preview, "x"}, true
			w.run(time.Minute)
			w.in.Report = offers(4000)
			w.in.Report.Closed = &Reason{Rule, "a rule"}
			w.run(time.Minute)
			w.in.Report = offers(4000)
			w.run(time.Minute)
		}, 0, Reopening, 3},
		"stopping closes": {func(w *world) { w.step(); w.in.Leaving = true; w.step() }, 0, Stopping, 2},
		"a successor opens at once": {func(w *world) {
			w.step()
			w.in.Leaving = true
			w.step()
			w.seller, w.in.Leaving = NewSeller(Sluice.Names()), false
			w.run(20 * time.Second)
		}, 4000, Selling, 3},
		"a successor of a crash goes on": {func(w *world) {
			w.step()
			w.seller = NewSeller(Sluice.Names())
			w.in.Report = offers(9000)
			w.run(time.Minute)
		}, 4000, Selling, 1},
		"a successor of a closed one stays closed": {func(w *world) {
			w.step()
			w.in.Report.Closed = &Reason{Window, "a window"}
			w.run(time.Minute)
			w.seller, w.in.Report = NewSeller(Sluice.Names()), offers(4000)
			w.run(time.Minute)
		}, 0, Reopening, 3},
		"silence closes after 30 s": {func(w *world) {
			w.step()
			w.in.Connected = false
			w.in.Now += Silence
			w.step()
		}, 0, NotReady, 2},
		"and does not before": {func(w *world) {
			w.step()
			w.in.Connected = false
			w.in.Now += Silence - 1
			w.step()
		}, 4000, Selling, 1},
		"a plugin that hangs closes after 10 s": {func(w *world) {
			w.step()
			w.in.Now += Stall
			w.step()
		}, 0, NotReady, 2},
		"a loop that stands closes after 10 s": {func(w *world) {
			w.step()
			w.in.Now += Stall
			w.in.Heard = w.in.Now
			w.step()
		}, 0, NotReady, 2},
		"a runtime that restarts does not close": {func(w *world) {
			w.step()
			w.in.Report.Connected = false
			w.run(20 * time.Second)
		}, 4000, Selling, 1},
		"a runtime that is away closes": {func(w *world) {
			w.step()
			w.in.Report.Connected = false
			w.run(40 * time.Second)
		}, 0, NotReady, 2},
		"pods that are not known close": {func(w *world) {
			w.step()
			w.in.PodsBlind = true
			w.step()
			w.run(time.Minute)
			if has := len(w.in.Object.Amounts); has != 0 || w.ready() != PodsUnknown {
				w.in.Object.Found[BatchOpen].Word = w.ready()
			}
		}, 0, NotReady, 2},
		"and the node has them again once they are known": {func(w *world) {
			w.step()
			w.in.PodsBlind = true
			w.run(time.Minute)
			w.in.PodsBlind, w.in.Pods = false, []Pod{podOf(1500, true)}
			w.run(time.Minute)
		}, 1500, Reopening, 3},
		"a new node object gets all at once": {func(w *world) {
			w.step()
			w.in.Object = &Object{UID: "2"}
			w.in.Pods = []Pod{podOf(5000, true)}
			w.step()
		}, 5000, Selling, 2},
		"another publisher has the names": {func(w *world) {
			w.step()
			w.in.Object.Other = &Publisher{"koord-manager", "batch.sluice.dev/cpu"}
			w.run(time.Minute)
		}, 0, OtherPublisher, 2},
		"until it leaves them": {func(w *world) {
			w.step()
			w.in.Object.Other = &Publisher{"koord-manager", "batch.sluice.dev/cpu"}
			w.run(time.Minute)
			w.in.Object.Other = nil
			w.run(time.Minute)
		}, 4000, Selling, 3},
		"an API server that was away gets one publication": {func(w *world) {
			w.step()
			w.away = true
			for i := range int64(300) {
				w.in.Report = offers(4000 - 10*i)
				w.run(time.Second)
			}
			w.away = false
			w.run(8 * time.Second)
		}, 1010, Selling, 2},
		"pods of the long-term offer are not for sale as batch": {func(w *world) {
			w.in.Pods = []Pod{{Requests: Amounts{MidCPU: 1500}, Admitted: true}}
			w.step()
		}, 2500, Selling, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(offers(4000))
			test.play(w)
			if w.cpu() != test.cpu || w.word() != test.word || len(w.sent) != test.sent {
				t.Errorf("published %d mCPU, %s after %d publications, want %d, %s after %d\n%+v", w.cpu(), w.word(), len(w.sent), test.cpu, test.word, test.sent, w.sent)
			}
		})
	}
}

// The first minutes of a node: nothing is published before the plugin has reported.
func TestNothingIsPublishedBlindly(t *testing.T) {
	t.Parallel()
	w := newWorld(nil)
	w.in.Heard, w.in.Connected = 0, false
	if out := w.step(); out.Publish != nil {
		t.Errorf("without a report it published %+v", out.Publish)
	}
	w.in.Now = Silence + time.Second
	w.step()
	if len(w.sent) != 1 || w.ready() != PluginSilent || w.cpu() != 0 {
		t.Errorf("after a silence from the start it published %+v", w.sent)
	}
	w.in.Object = nil
	if out := w.step(); out.Publish != nil || out.Again <= w.in.Now {
		t.Errorf("without a node object it wants %+v", out)
	}
}

// Nodes in calm publish seldom: the API server of 5,000 nodes sees at most 10 a second. CPU and
// memory wander on their own, as means of one minute do: by 5 % of the offer, and by 1 %.
func TestCalmNodesPublishSeldom(t *testing.T) {
	t.Parallel()
	const nodes, hours = 20, 2
	for name, notActing := range map[string]*Reason{"selling": nil, "in preview": {Preview, "p"}} {
		random, publications := rand.New(rand.NewSource(1)), 0
		for range nodes {
			w := newWorld(measured(40000, 20000))
			w.in.Report.NotActing = notActing
			w.in.Jitter = random.Float64()
			w.step()
			cpu, memory := 0.0, 0.0
			for range int(hours * time.Hour / time.Second) {
				cpu = cpu*0.983 + random.NormFloat64()*0.05*0.18         // of one minute, with a deviation of 5 %
				memory = memory*0.9994 + random.NormFloat64()*0.01*0.034 // of half an hour
				w.in.Report = measured(int64(40000*(1+cpu)), int64(20000*(1-2*cpu)))
				for _, kind := range []Kind{BatchMemory, MidMemory} {
					w.in.Report.Offer[kind] = int64(float64(40000<<20) * (1 + memory))
				}
				w.in.Report.NotActing = notActing
				w.run(time.Second)
			}
			publications += len(w.sent) - 1
		}
		perSecond := float64(publications) / nodes / (hours * 3600) * 5000
		t.Logf("5,000 nodes in calm, %s, publish %.1f times a second", name, perSecond)
		if perSecond > 10 {
			t.Errorf("5,000 nodes in calm, %s, publish %.1f times a second, want 10 at most", name, perSecond)
		}
	}
}
