package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const megabit = observe.BitRate(1e6)

// wire is a node with a link, whose pods send as much as they want and may.
type wire struct {
	scene
	egress *Egress
	others observe.BitRate // that services send
	wants  map[string]observe.BitRate
	local  map[string]int // what the pod sends to other pods of the node, in percent
	limits map[string]observe.BitRate
	told   []Decision
}

func newWire(cfg func(*EgressConfig)) *wire {
	c := DefaultConfig().Egress
	if cfg != nil {
		cfg(&c)
	}
	w := &wire{scene: *newScene(4), egress: NewEgress(c), wants: map[string]observe.BitRate{}, local: map[string]int{}}
	w.Egress = observe.Egress{Speed: 1000 * megabit, Pods: map[string]observe.PodEgress{}}
	return w
}

func (w *wire) pod(name string, tier workload.Tier, cpu workload.MilliCPU, wants observe.BitRate) *Pod {
	w.run(name, workload.BE, cpu, 0)
	p := &w.Pods[len(w.Pods)-1]
	p.Tier = tier
	w.wants[name] = wants
	w.Egress.Pods[name] = observe.PodEgress{}
	return p
}

// reading lets a quarter of a second pass, and steps the controller.
func (w *wire) reading() {
	w.Now = w.Now.Add(250 * time.Millisecond)
	in := &w.Egress
	pods := map[string]observe.PodEgress{}
	var out, inside observe.BitRate
	for uid := range in.Pods {
		sent := w.wants[uid]
		if limit := w.limits[uid]; limit > 0 {
			sent = min(sent, limit)
		}
		pods[uid] = observe.PodEgress{At: w.Now, Sent: sent, Limit: w.limits[uid]}
		inside += sent * observe.BitRate(w.local[uid]) / 100
		out += sent
	}
	out -= inside
	if sum := out + w.others; sum > in.Speed && in.Speed > 0 { // everybody gets less
		for uid, p := range pods {
			local := p.Sent * observe.BitRate(w.local[uid]) / 100
			p.Sent = local + (p.Sent-local)*in.Speed/sum
			pods[uid] = p
		}
	}
	in.Batch = 0
	for _, p := range pods {
		in.Batch += p.Sent
	}
	in.At, in.Pods, in.Sent = w.Now, pods, min(in.Speed, out+w.others)
	limits, told := w.egress.Step(&w.View)
	w.limits = limits
	w.told = append(w.told, told...)
}

func (w *wire) readings(n int) {
	for range n {
		w.reading()
	}
}

// actions lists what was told, in order.
func (w *wire) actions() string {
	var all []string
	for _, d := range w.told {
		all = append(all, d.Action)
	}
	return strings.Join(slices.Compact(all), " ")
}

func TestEgress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		with func(*wire)
		want map[string]observe.BitRate // in Mbit/s
	}{
		"alone up to the threshold": {func(w *wire) { w.pod("a", workload.TierBatch, 1000, 5000*megabit) }, map[string]observe.BitRate{"a": 850}},
		"what others leave": {func(w *wire) {
			w.pod("a", workload.TierBatch, 1000, 5000*megabit)
			w.others = 500 * megabit
		}, map[string]observe.BitRate{"a": 350}},
		"the floor": {func(w *wire) {
			w.pod("a", workload.TierBatch, 1000, 5000*megabit)
			w.others = 990 * megabit
		}, map[string]observe.BitRate{"a": 50}},
		"by grant": {func(w *wire) {
			w.pod("a", workload.TierBatch, 1000, 5000*megabit)
			w.pod("b", workload.TierBatch, 3000, 5000*megabit)
		}, map[string]observe.BitRate{"a": 212, "b": 637}},
		"by tier": {func(w *wire) {
			w.pod("a", workload.TierFree, 1000, 5000*megabit)
			w.pod("b", workload.TierMid, 1000, 5000*megabit)
		}, map[string]observe.BitRate{"a": 21, "b": 829}},
		"what one leaves": {func(w *wire) {
			w.pod("a", workload.TierBatch, 3000, 30*megabit)
			w.pod("b", workload.TierBatch, 1000, 5000*megabit)
		}, map[string]observe.BitRate{"a": 30, "b": 790}},
		"its own ceiling": {func(w *wire) {
			w.pod("a", workload.TierBatch, 1000, 5000*megabit).Egress.Percent = 20
			w.pod("b", workload.TierBatch, 1000, 5000*megabit).Egress.Bits = 100e6
		}, map[string]observe.BitRate{"a": 200, "b": 100}},
		"its own ceiling on an unknown link": {func(w *wire) {
			w.pod("a", workload.TierBatch, 1000, 400*megabit).Egress.Percent = 20
			w.pod("b", workload.TierBatch, 1000, 400*megabit).Egress.Bits = 100e6
			w.Egress.Speed, w.Egress.Problem = 0, "the kernel knows no speed of device eth0"
		}, map[string]observe.BitRate{"a": 400, "b": 100}},
		"inside of the node": {func(w *wire) {
			w.pod("a", workload.TierBatch, 1000, 1500*megabit)
			w.local["a"] = 100
		}, map[string]observe.BitRate{"a": 1500}},
		"partly inside of the node": {func(w *wire) {
			w.pod("a", workload.TierBatch, 1000, 5000*megabit)
			w.local["a"], w.others = 50, 400*megabit
		}, map[string]observe.BitRate{"a": 900}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(nil)
			c.with(w)
			w.readings(60)
			for uid, want := range c.want {
				if got := w.Egress.Pods[uid].Sent; got < want*megabit*92/100 || got > want*megabit*108/100 {
					t.Errorf("%s sends %s, want %d Mbit/s; limits %v", uid, got, want, w.limits)
				}
			}
		})
	}
}

// TestEgressYields lets a service begin to send, and counts the readings until the link has room for it.
func TestEgressYields(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	w.pod("a", workload.TierBatch, 1000, 5000*megabit)
	w.readings(20)
	w.others = 600 * megabit
	for at, most := range []observe.BitRate{590, 440, 280, 255} { // the link is full at first, so that services are seen to send less than they would
		if w.reading(); w.Egress.Pods["a"].Sent > most*megabit {
			t.Errorf("at reading %d, batch work sends %s beside 600 Mbit/s", at, w.Egress.Pods["a"].Sent)
		}
	}
	w.others = 0
	w.readings(10)
	if got := w.Egress.Pods["a"].Sent; got > 260*megabit {
		t.Errorf("a pause of 2.5 s is taken for the end: %s", got)
	}
	w.readings(12)
	if got := w.Egress.Pods["a"].Sent; got < 840*megabit {
		t.Errorf("after 5 s, batch work sends %s", got)
	}
	if got := w.actions(); got != "limit shrink grow" {
		t.Errorf("%s: %+v", got, w.told)
	}
	if why := w.told[1].Why; !strings.HasPrefix(why, "services and the system send up to ") || !strings.HasSuffix(why, "of 1 Gbit/s, and batch work may fill it to 85%") {
		t.Error(why)
	}
}

// TestEgressFullLink has services want more on a link that batch work has filled, on which they get what batch work
// leaves, as one connection does beside many. At 100 % they would never get any more.
func TestEgressFullLink(t *testing.T) {
	t.Parallel()
	for percent, readings := range map[int]int{85: 8, mostThresholdPercent: 20} {
		w := newWire(func(c *EgressConfig) { c.ThresholdPercent = percent })
		w.pod("a", workload.TierBatch, 1000, 5000*megabit)
		w.readings(20)
		for range readings {
			w.others = min(900*megabit, max(20*megabit, w.Egress.Speed-w.limits["a"]))
			w.reading()
		}
		if w.others < 900*megabit {
			t.Errorf("at %d %%, services that want 900 Mbit/s send %s after %d readings", percent, w.others, readings)
		}
	}
}

// TestEgressOutage loses the link, and a pod.
func TestEgressOutage(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	w.pod("a", workload.TierBatch, 1000, 5000*megabit)
	w.others = 300 * megabit
	w.readings(20)
	before := w.limits["a"]
	w.Egress.Problem = "eth0 is gone"
	w.others = 0
	w.readings(40)
	if w.limits["a"] != before {
		t.Errorf("without a signal, the limit went from %s to %s", before, w.limits["a"])
	}
	w.Egress.Problem = ""
	w.readings(60)
	if w.limits["a"] < 840*megabit {
		t.Errorf("with the link again, the limit is %s", w.limits["a"])
	}
	if got := w.actions(); got != "limit shrink hold grow resume" {
		t.Errorf("%s: %+v", got, w.told)
	}
	before = w.limits["a"]
	w.Now = w.Now.Add(250 * time.Millisecond)
	w.Egress.At = time.Time{} // the first reading of another device
	w.limits, w.told = w.egress.Step(&w.View)
	if w.limits["a"] != before || len(w.told) != 0 {
		t.Errorf("before the first rate, the limit went from %s to %s: %v", before, w.limits["a"], w.told)
	}
	w.Pods = nil
	w.readings(1)
	if len(w.limits) != 0 {
		t.Errorf("a pod that is gone has a limit: %v", w.limits)
	}
}

// TestEgressProperties lets pods and services send what they like.
func TestEgressProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWire(nil)
		rate := rapid.Custom(func(t *rapid.T) observe.BitRate {
			return observe.BitRate(rapid.IntRange(0, 3000).Draw(t, "mbits")) * megabit
		})
		var weights int64
		n := rapid.IntRange(1, 8).Draw(t, "pods")
		for i := range n {
			p := w.pod(string(rune('a'+i)), workload.Tier(rapid.IntRange(int(workload.TierFree), int(workload.TierMid)).Draw(t, "tier")), workload.MilliCPU(rapid.SampledFrom([]int{500, 1000, 4000}).Draw(t, "grant")), rate.Draw(t, "wants"))
			weights += p.Tier.Weight(grantOf(&w.View, p), 0)
		}
		for range 4 {
			w.others = min(rate.Draw(t, "others"), 900*megabit) // on a full link, nobody can tell who would send more
			w.wants["a"] = rate.Draw(t, "wants")
			w.readings(40)
			room := max(50*megabit, 850*megabit-w.others)
			var sum observe.BitRate
			for uid, limit := range w.limits {
				if limit < egressUnit {
					t.Fatalf("%s may send %s", uid, limit)
				}
				sum += limit
			}
			if sum > room*106/100+observe.BitRate(n)*egressUnit {
				t.Fatalf("%s together, and the room is %s: %v", sum, room, w.limits)
			}
			for i := range w.Pods {
				p := &w.Pods[i]
				part := float64(room) * float64(p.Tier.Weight(grantOf(&w.View, p), 0)) / float64(weights)
				if least := min(part, float64(w.wants[p.UID])) * 0.85; float64(w.limits[p.UID]) < least-float64(egressUnit) {
					t.Fatalf("%s may send %s, and is due %s: %v", p.UID, w.limits[p.UID], observe.BitRate(least), w.limits)
				}
			}
		}
	})
}

func TestEgressConfig(t *testing.T) {
	t.Parallel()
	c := EgressConfig{ThresholdPercent: 5, FloorPercent: 50, Interfaces: []string{"lo", "../eth0", "eth0", "a-name-that-is-too-long"}}
	var all []string
	for _, p := range c.Check() {
		all = append(all, p.Key+": "+p.Text)
	}
	want := []string{
		"thresholdPercent: 5: must be 10 to 95 (percent)", "floorPercent: 50: must be 1 to 5 (percent)",
		`interfaces[0]: "lo": must be the name of a network device that is not the loopback, such as eth0`,
		`interfaces[1]: "../eth0": must be the name of a network device that is not the loopback, such as eth0`,
		`interfaces[3]: "a-name-that-is-too-long": must be the name of a network device that is not the loopback, such as eth0`,
	}
	if !slices.Equal(all, want) {
		t.Errorf("got  %q\nwant %q", all, want)
	}
	for text, want := range map[string]string{"10G": "10 Gbit/s", "0": "0 bit/s", "64k": "64 kbit/s", "1Gi": "1.0 Gbit/s"} {
		var s LinkSpeed
		if err := s.UnmarshalText([]byte(text)); err != nil || observe.BitRate(s).String() != strings.Replace(want, "1.0", "1", 1) {
			t.Errorf("%s: %s, %v", text, observe.BitRate(s), err)
		}
	}
	for _, text := range []string{"1k", "20T", "-1", "fast"} {
		if err := new(LinkSpeed).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
