package selling

import (
	"math/rand"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
)

// measured is a report of a node in preview that could sell this, and uses this much CPU.
func measured(sellable, used int64) *Report {
	r := offers(sellable)
	r.Known, r.MeasuredAt, r.Used = true, time.Unix(1, 0), &nodereport.Amount{MilliCPU: used, MemoryBytes: used << 20}
	r.NotActing = &Reason{Preview, "p"}
	return r
}

// A node in preview sells nothing, and says what it could sell.
func TestReportInPreview(t *testing.T) {
	t.Parallel()
	w := newWorld(measured(4000, 1500))
	w.in.Requested = nodereport.Amount{MilliCPU: 2500, MemoryBytes: 1 << 30}
	w.in.Pods = []Pod{podOf(300, true)}
	w.run(time.Minute)
	is := w.in.Object.Report
	if w.cpu() != 300 || w.ready() != Preview || len(w.sent) != 1 {
		t.Fatalf("it has %d, %s after %d publications", w.cpu(), w.ready(), len(w.sent))
	}
	want := nodereport.Report{
		Schema: nodereport.Schema, MeasuredAt: is.MeasuredAt, Requested: w.in.Requested,
		Used:     &nodereport.Amount{MilliCPU: 1500, MemoryBytes: 1500 << 20},
		Sellable: &nodereport.Offers{ShortTerm: nodereport.Amount{MilliCPU: 4000, MemoryBytes: 4000 << 20}, LongTerm: nodereport.Amount{MilliCPU: 2000, MemoryBytes: 4000 << 19}},
		Bound:    nodereport.Offers{ShortTerm: nodereport.Amount{MilliCPU: 300, MemoryBytes: 300 << 20}},
	}
	if text, err := is.Text(); err != nil || text != must(want.Text()) {
		t.Errorf("it says %s, want %s", text, must(want.Text()))
	}
}

func must(text string, _ error) string { return text }

// What is not measured is not said.
func TestReportOfSilence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		play             func(w *world)
		used, sellable   bool
		nothing, written bool
	}{
		"all is known":          {func(*world) {}, true, true, false, true},
		"the offer is unknown":  {func(w *world) { w.in.Report.Known = false }, true, false, false, true},
		"the use is unknown":    {func(w *world) { w.in.Report.Used = nil }, false, true, false, true},
		"the pods are unknown":  {func(w *world) { w.in.PodsBlind = true }, false, false, true, true},
		"nothing was heard yet": {func(w *world) { w.in.Report, w.in.Connected, w.in.Heard, w.in.Now = nil, false, 0, time.Minute }, false, false, false, true},
		"sluice is silent":      {func(w *world) { w.in.Now += Silence }, false, false, false, true},
		"the loop has stalled": {func(w *world) {
			w.step()
			for range 30 {
				w.in.Now += time.Second
				w.in.Heard = w.in.Now
				w.step()
			}
			w.in.Object = &Object{UID: "2"}
		}, false, false, false, true},
		"sluice-kube stops":     {func(w *world) { w.in.Leaving = true }, true, true, false, true},
		"another one publishes": {func(w *world) { w.in.Object.Other = &Publisher{"x", "y"} }, true, true, false, true},
	} {
		w := newWorld(measured(4000, 1500))
		test.play(w)
		out := w.step()
		if (out.Publish != nil) != test.written {
			t.Fatalf("%s: it publishes %+v", name, out.Publish)
		}
		is := out.Publish.Report
		if (is == nil) != test.nothing || is != nil && ((is.Used != nil) != test.used || (is.Sellable != nil) != test.sellable || is.MeasuredAt.IsZero() == (test.used || test.sellable)) {
			t.Errorf("%s: it says %+v", name, is)
		}
	}
}

// The first report that says what could be sold comes as soon as that is known.
func TestFirstReport(t *testing.T) {
	t.Parallel()
	w := newWorld(measured(4000, 1500))
	w.in.Report.Known = false
	w.run(time.Second)
	if is := w.in.Object.Report; is == nil || is.Sellable != nil {
		t.Fatalf("before the measurement it says %+v", is)
	}
	w.in.Report.Known = true
	w.run(3 * Interval)
	if is := w.in.Object.Report; len(w.sent) != 2 || is.Sellable == nil {
		t.Fatalf("after the measurement: %d publications, %+v", len(w.sent), is)
	}
	for range 20 {
		w.in.Report.Known = !w.in.Report.Known
		w.run(20 * time.Second)
	}
	if len(w.sent) > 3 {
		t.Errorf("an offer that comes and goes is told %d times in 7 minutes", len(w.sent)-2)
	}
}

// A report that the node object did not get is due at the next attempt.
func TestFailedReport(t *testing.T) {
	t.Parallel()
	w := newWorld(measured(4000, 1500))
	w.in.Report.Known = false
	w.run(time.Minute)
	w.in.Report.Known = true
	for attempt := range 3 {
		w.in.Now += 2 * Interval
		w.in.Heard, w.in.Report.MeasuredAt = w.in.Now, time.Unix(1, int64(w.in.Now))
		out := w.seller.Step(&w.in)
		if out.Publish == nil || out.Publish.Report.Sellable == nil {
			t.Fatalf("attempt %d publishes %+v", attempt, out.Publish)
		}
		w.seller.Failed()
	}
}

// What somebody else has written is replaced, and not more often than the node's own numbers.
func TestReportIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(measured(4000, 1500))
	w.run(time.Minute)
	for range 3600 {
		w.in.Object.Report = nil
		w.run(time.Second)
	}
	if n := len(w.sent) - 1; n < 4 || n > 6 {
		t.Errorf("in an hour it was written %d times", n)
	}
}

// Reports alone come at most once in ReportHold, whatever the numbers do, and in the end they tell
// what is.
func TestReportRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(measured(4000, 1500))
		w.run(time.Second)
		w.sent = nil
		play := func(d time.Duration) {
			for range d / Interval {
				w.in.Now += Interval
				w.report(*w.in.Report)
				w.step()
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			w.in.Jitter = rapid.Float64Range(0, 1).Draw(t, "jitter")
			w.in.Report = measured(rapid.Int64Range(0, 9000).Draw(t, "sellable"), rapid.Int64Range(0, 9000).Draw(t, "used"))
			w.in.Requested.MilliCPU = rapid.Int64Range(0, 9000).Draw(t, "requested")
			play(time.Duration(rapid.IntRange(10, 1500).Draw(t, "seconds")) * time.Second)
		}
		play(6 * ReportHold)
		for i, s := range w.sent {
			if i > 0 && s.at-w.sent[i-1].at < ReportHold {
				t.Fatalf("reports alone came at %v and at %v", w.sent[i-1].at, s.at)
			}
		}
		says, is := w.in.Object.Report.Sellable.ShortTerm.MilliCPU, w.in.Report.Offer[BatchCPU]
		if off := max(says-is, is-says); off > max(is/8, 150) {
			t.Fatalf("it says that %d could be sold, and it is %d", says, is)
		}
	})
}

// A node whose load swings by a fifth around the same mean is not written again and again.
func TestMeanIsCalm(t *testing.T) {
	t.Parallel()
	w := newWorld(measured(4000, 1500))
	w.run(ReportHold)
	w.sent = nil
	random := rand.New(rand.NewSource(1))
	for range 3600 {
		w.in.Report = measured(4000, 1200+random.Int63n(600))
		w.run(time.Second)
	}
	if len(w.sent) > 1 {
		t.Errorf("it was written %d times in an hour", len(w.sent))
	}
	w.in.Report = measured(4000, 3000)
	w.run(3 * ReportHold)
	if used := w.in.Object.Report.Used.MilliCPU; used < 2700 {
		t.Errorf("half an hour after a rise to 3000 it says %d", used)
	}
}
