package selling

import (
	"testing"
	"time"
)

// To close is worth an attempt while others wait, and nothing else is.
func TestCloses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		play func(w *world)
		want bool
	}{
		"open":                  {func(*world) {}, false},
		"another offer":         {func(w *world) { w.in.Report = offers(100) }, false},
		"closing":               {func(w *world) { w.in.Report.Closed = &Reason{CoolDown, "x"} }, true},
		"closed":                {func(w *world) { w.in.Report.Closed = &Reason{CoolDown, "x"}; w.step() }, false},
		"silence":               {func(w *world) { w.in.Now += Silence }, true},
		"another publisher":     {func(w *world) { w.in.Report.Closed = &Reason{}; w.in.Object.Other = &Publisher{} }, false},
		"no node object":        {func(w *world) { w.in.Object = nil }, false},
		"no report, for a time": {func(w *world) { w.in.Report = nil }, false},
	} {
		w := newWorld(offers(4000))
		w.step()
		test.play(w)
		if got := w.seller.Closes(&w.in); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// An admission webhook that takes each publication and keeps the amounts must not be asked again
// and again.
func TestAmountsThatDoNotFall(t *testing.T) {
	t.Parallel()
	w := newWorld(offers(4000))
	w.step()
	w.in.Report.Closed = &Reason{Window, "a window"}
	w.step()
	w.in.Object.Amounts = map[Kind]int64{BatchCPU: 4000, BatchMemory: 4000 << 20, MidCPU: 2000, MidMemory: 2000 << 20}
	const seconds = 100
	n := 0
	for range seconds * 10 {
		w.in.Now += time.Second / 10
		w.report(*w.in.Report)
		if w.seller.Step(&w.in).Publish != nil {
			n++
		}
	}
	if most := 2 + seconds*int(time.Second)/int(Interval); n < 2 || n > most {
		t.Errorf("%d publications in %d s, want 2 to %d", n, seconds, most)
	}
}

// What has just started does not know its offer yet. That is no reason to close for minutes.
func TestMeasuring(t *testing.T) {
	t.Parallel()
	measuring := func(w *world, d time.Duration) {
		w.in.Connected, w.in.Report = true, offers(0)
		w.in.Report.Closed = &Reason{OfferUnknown, "not measured yet"}
		w.run(d)
		w.in.Report = offers(4000)
		w.run(20 * time.Second)
	}
	for name, test := range map[string]struct {
		play func(w *world)
		cpu  int64
		word string
		sent int
	}{
		"a plugin that is back and measures closes nothing": {func(w *world) {
			w.in.Connected = false
			w.in.Now += 10 * time.Second
			w.step()
			measuring(w, 15*time.Second)
		}, 4000, Selling, 1},
		"one that does not measure closes": {func(w *world) { measuring(w, Silence) }, 0, Reopening, 3},
		"both programs that start again open at once": {func(w *world) {
			w.in.Leaving = true
			w.step()
			w.seller, w.in.Leaving = NewSeller(Sluice.Names()), false
			measuring(w, 20*time.Second)
		}, 4000, Selling, 4},
	} {
		w := newWorld(offers(4000))
		w.step()
		test.play(w)
		if w.cpu() != test.cpu || w.word() != test.word || len(w.sent) != test.sent {
			t.Errorf("%s: %d mCPU, %s after %d publications, want %d, %s after %d", name, w.cpu(), w.word(), len(w.sent), test.cpu, test.word, test.sent)
		}
	}
}
