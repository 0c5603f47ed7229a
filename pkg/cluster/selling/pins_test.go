package selling

import (
	"testing"
	"time"
)

// withPins are the names of all kinds.
func withPins() map[Kind]string {
	names := Sluice.Names()
	names[Pins] = PinnableCPU
	return names
}

// pin is a pod that requests CPUs for itself.
func pin(uid string, cpus int64) Pod {
	return Pod{UID: uid, Admitted: true, Requests: Amounts{Pins: cpus}}
}

func TestPins(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		play func(w *world)
		cpus int64
		sent int
	}{
		"what is free": {func(*world) {}, 3, 1},
		"a pod that has its pin adds to what is free": {func(w *world) {
			w.in.Pods = []Pod{pin("a", 2)}
			w.in.Report.Pinnable, w.in.Report.Held = 1, map[string]int64{"a": 2}
			w.run(20 * time.Second)
		}, 3, 1},
		"a pod without its pin yet does not": {func(w *world) {
			w.in.Pods = []Pod{pin("a", 2)}
			w.run(20 * time.Second)
		}, 3, 1},
		"nor does a pin of a pod that does not request it": {func(w *world) {
			w.in.Report.Pinnable, w.in.Report.Held = 1, map[string]int64{"a": 2}
			w.run(20 * time.Second)
		}, 1, 2},
		"a pin that is larger than requested counts as requested": {func(w *world) {
			w.in.Pods = []Pod{pin("a", 1)}
			w.in.Report.Pinnable, w.in.Report.Held = 1, map[string]int64{"a": 2}
			w.run(20 * time.Second)
		}, 2, 2},
		"a closed node has them": {func(w *world) {
			w.in.Report.Closed = &Reason{Switch, "off"}
			w.in.Report.Pinnable = 4
			w.run(20 * time.Second)
		}, 4, 2},
		"a node without a control loop, too": {func(w *world) {
			w.in.Report.NotActing = &Reason{LoopOff, "off"}
			w.in.Report.Pinnable = 4
			w.run(20 * time.Second)
		}, 4, 2},
		"a rise comes within 15 s": {func(w *world) {
			for range 3 {
				w.in.Report.Pinnable++
				w.run(time.Second)
			}
			w.run(Interval + Interval/2 - 3*time.Second)
		}, 6, 2},
		"without the plugin nothing more than is bound": {func(w *world) {
			w.in.Pods = []Pod{pin("a", 2)}
			w.in.Connected = false
			w.in.Now += Silence
			w.step()
		}, 2, 2},
		"without the container runtime, too": {func(w *world) {
			w.in.Report.Connected = false
			w.run(Silence + time.Second)
		}, 0, 2},
		"at the end, too": {func(w *world) {
			w.in.Leaving = true
			w.step()
		}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(offers(4000))
			w.seller = NewSeller(withPins())
			w.in.Report.Pinnable = 3
			w.step()
			test.play(w)
			if got := w.in.Object.Amounts[Pins]; got != test.cpus || len(w.sent) != test.sent {
				t.Errorf("%d CPUs after %d publications, want %d after %d: %+v", got, len(w.sent), test.cpus, test.sent, w.sent)
			}
		})
	}
}
