package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// hall is a node with a noisy LS pod that requests 2 CPUs, and others beside it. The pod web waits as hurt says.
type hall struct {
	*scene
	noisy   *Noisy
	s       *Separation
	preview bool
	busy    bool // another controller observes what one of its changes brings
	unread  bool // how web waits is not measured
	unknown bool // how much work the noisy pod has is not measured
	learned bool // its baseline follows all waiting, as it does without batch work
	full    error
	hurt    func() float64

	apart     []string
	latest    [signals]Reading
	began     time.Time
	decisions []Decision
	log       []string // "seconds action pod to", from the time on at which the pod is noisy
}

func newHall() *hall {
	s := newScene(32)
	h := &hall{scene: s, noisy: NewNoisy(time.Second), s: NewSeparation(time.Second)}
	s.run("web", workload.LS, 4000, 0)
	s.run("loud", workload.LS, 2000, 0)
	h.hurt = func() float64 { return 0 }
	h.loud(20)
	for range 40 {
		h.step()
	}
	h.began = h.Now
	return h
}

// loud gives the noisy pod work for that many CPUs.
func (h *hall) loud(cpus float64) { h.at("loud").RunDelay.Waiting = cpus - 2 }

// waitsForLoud makes web wait while the noisy pod is beside it.
func (h *hall) waitsForLoud() {
	h.hurt = func() float64 {
		if len(h.apart) == 0 {
			return 0.4
		}
		return 0.01
	}
}

func (h *hall) step() {
	h.second()
	if h.unknown {
		h.at("loud").RunDelay.At = time.Time{}
	}
	if !h.unread {
		for k := range h.latest {
			h.latest[k] = Reading{from: h.latest[k].at, at: h.Now}
		}
		h.latest[runDelay].value = h.hurt() + 0.05
		if h.latest[runDelay].above = h.hurt(); h.learned {
			h.latest[runDelay].above = 0
		}
	}
	var disturbed []Disturbance
	for i := range h.Pods {
		if p := &h.Pods[i]; p.UID == "web" {
			disturbed = append(disturbed, Disturbance{Pod: i, Ref: p.Ref, Latest: h.latest})
		}
		h.Pods[i].Separated = slices.Contains(h.apart, h.Pods[i].UID)
	}
	h.noisy.Step(&h.View)
	pods, decisions := h.s.Step(&h.View, disturbed, h.noisy, !h.preview, h.busy, func(string) (int, error) { return 2, h.full })
	h.apart = slices.Clone(pods)
	for _, d := range decisions {
		h.log = append(h.log, fmt.Sprintf("%v %s %s %s", h.Now.Sub(h.began).Seconds(), d.Action, d.Object, d.To))
	}
	h.decisions = append(h.decisions, decisions...)
}

func (h *hall) steps(seconds int) {
	for range seconds {
		h.step()
	}
}

func (h *hall) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(h.log, want) {
		t.Errorf("decided:\n%s\nwant:\n%s", strings.Join(h.log, "\n"), strings.Join(want, "\n"))
	}
}

// TestSeparation checks the way of a noisy pod beside which another one waits: it is kept apart while it is noisy, and goes
// back once it has not been for two minutes.
func TestSeparation(t *testing.T) {
	t.Parallel()
	h := newHall()
	h.expect(t)
	h.waitsForLoud()
	h.step()
	if h.s.Closely() != "web" || h.s.Trying() {
		t.Errorf("suspected: watched is %q, tried %v", h.s.Closely(), h.s.Trying())
	}
	if advice, _ := h.noisy.Step(&h.View); len(advice) != 1 || !strings.Contains(advice[0].Text, "pods beside it wait for it") {
		t.Errorf("before it is apart, the advice is %v", advice)
	}
	h.steps(4)
	if h.s.Closely() != "web" || !h.s.Trying() || !slices.Equal(h.apart, []string{"loud"}) {
		t.Errorf("tried: watched is %q, tried %v, apart %v", h.s.Closely(), h.s.Trying(), h.apart)
	}
	h.steps(300)
	if advice, _ := h.noisy.Step(&h.View); len(advice) != 1 || strings.Contains(advice[0].Text, "beside it") {
		t.Errorf("while it is apart, the advice is %v", advice)
	}
	if h.s.Closely() != "" || h.s.Trying() || !slices.Equal(h.apart, []string{"loud"}) {
		t.Errorf("held: watched is %q, tried %v, apart %v", h.s.Closely(), h.s.Trying(), h.apart)
	}
	h.loud(2)
	h.steps(130)
	h.expect(t, "3 separate ns/loud 2 CPUs of its own", "8 confirm ns/loud 2 CPUs of its own", "425 restore ns/loud all CPUs of its pool")
	for i, want := range []string{
		"it has work for 18 CPUs more than it asked for, while ns/web waits: the run delay of ns/web is 40 % above the usual; it gets 2 CPUs of pool online for itself, which covers its request, and the others have the rest; it can use no more than these",
		"ns/web waited while this pod was beside it: the run delay of ns/web was 40 % above the usual before, and is 1 % now; they stay apart until the tasks of this pod have fitted into what it asked for, for 2m0s",
		"its tasks have fitted into the CPUs that it asked for, for 2m0s",
	} {
		if why := h.decisions[i].Why; why != want {
			t.Errorf("the reason is %q, want %q", why, want)
		}
	}
}

// TestSeparationWithoutBatchWork checks that waiting which the baseline follows, as it does without batch work, counts if it
// began with the noise, and does not if the pod has always waited so long.
func TestSeparationWithoutBatchWork(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]float64{"": 0, "it has always waited": 0.4} {
		h := newHall()
		h.learned = true
		h.loud(1)
		h.hurt = func() float64 { return before }
		h.steps(180)
		h.waitsForLoud()
		h.loud(20)
		h.began = h.Now
		h.steps(60)
		if apart := len(h.apart) > 0; apart != (before == 0) {
			t.Errorf("%s: apart %v, decided %v", name, h.apart, h.log)
		}
	}
}

// TestSeparationAcquitted checks that a pod goes back whose separation does not help, and is not tried again for 1,
// 2, 4, 8 and 16 minutes.
func TestSeparationAcquitted(t *testing.T) {
	t.Parallel()
	h := newHall()
	h.hurt = func() float64 { return 0.4 }
	h.steps(500)
	h.expect(t,
		"3 separate ns/loud 2 CPUs of its own", "13 acquit ns/loud all CPUs of its pool",
		"75 separate ns/loud 2 CPUs of its own", "85 acquit ns/loud all CPUs of its pool",
		"207 separate ns/loud 2 CPUs of its own", "217 acquit ns/loud all CPUs of its pool",
		"459 separate ns/loud 2 CPUs of its own", "469 acquit ns/loud all CPUs of its pool")
	if want := "keeping it apart does not help: the run delay of ns/web was 40 % above the usual before, and is 40 % now; it stays in its pool for 1m0s"; h.decisions[1].Why != want {
		t.Errorf("the reason is %q, want %q", h.decisions[1].Why, want)
	}
}

// TestSeparationPreview checks that in preview a pod is named more and more seldom, and is not kept apart.
func TestSeparationPreview(t *testing.T) {
	t.Parallel()
	h := newHall()
	h.preview = true
	h.waitsForLoud()
	h.steps(300)
	h.expect(t, "3 separate ns/loud 2 CPUs of its own", "65 separate ns/loud 2 CPUs of its own", "187 separate ns/loud 2 CPUs of its own")
	if len(h.apart) > 0 {
		t.Errorf("apart are %v", h.apart)
	}
	h.preview = false
	h.steps(300)
	if !slices.Equal(h.apart, []string{"loud"}) {
		t.Errorf("later, apart are %v: %v", h.apart, h.log)
	}
	h.preview = true
	h.step()
	if len(h.apart) > 0 || h.s.Trying() {
		t.Errorf("in preview again, apart are %v", h.apart)
	}
}

// TestSeparationWhom checks which pods are kept apart, and for whom.
func TestSeparationWhom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*hall)
		want   string // the first decision; "" for none
	}{
		"beside one that waits":   {func(*hall) {}, "separate ns/loud"},
		"nobody waits":            {func(h *hall) { h.hurt = func() float64 { return 0.09 } }, ""},
		"it waits for disks":      {func(h *hall) { h.hurt = func() float64 { return 0 }; h.latest[2].above = 0.5 }, ""},
		"its pool is full":        {func(h *hall) { h.full = errors.New("full") }, ""},
		"a culprit":               {func(h *hall) { h.Pods[1].Squeezed = true }, ""},
		"in another pool":         {func(h *hall) { h.at("loud").Pool, h.ExclusivePools = 0, true }, ""},
		"in a pool that shares":   {func(h *hall) { h.at("loud").Pool = 0 }, "separate ns/loud"},
		"in a pool with a size":   {func(h *hall) { h.at("loud").Pool, h.Pools[0].Disjoint, h.Pools[1].Disjoint = 0, 1<<1, 1<<0 }, ""},
		"another change is tried": {func(h *hall) { h.busy = true }, ""},
		"it is not measured":      {func(h *hall) { h.unread = true }, ""},
		"it is not noisy now":     {func(h *hall) { h.loud(1.5) }, ""},
		"the other one is, too": {func(h *hall) {
			h.at("web").RunDelay.Waiting = 20
			hurt := h.hurt
			h.hurt = func() float64 { return 0 }
			h.steps(40)
			h.hurt = hurt
		}, ""},
		"the noisiest": {func(h *hall) {
			h.run("louder", workload.Unclassified, 1000, 0).RunDelay.Waiting = 40
			h.at("louder").Pool = 1
			hurt := h.hurt
			h.hurt = func() float64 { return 0 }
			h.steps(40)
			h.hurt = hurt
		}, "separate ns/louder"},
		"with a limit":          {func(h *hall) { h.at("loud").Limit = 8000 }, "separate ns/loud"},
		"with its request only": {func(h *hall) { h.at("loud").Limit = 2000 }, "separate ns/loud"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHall()
			h.waitsForLoud()
			c.change(h)
			h.steps(12)
			got := ""
			if len(h.decisions) > 0 {
				got = h.decisions[0].Action + " " + h.decisions[0].Object
				confined := strings.HasSuffix(h.decisions[0].Why, "it can use no more than these")
				if confined != (name != "with its request only") {
					t.Errorf("the reason is %q", h.decisions[0].Why)
				}
			}
			if got != c.want {
				t.Errorf("decided %q: %v, want %q", got, h.log, c.want)
			}
		})
	}
}

// TestSeparationEnds checks what ends a separation besides calm.
func TestSeparationEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*hall)
		after  int // seconds since the beginning
		want   string
	}{
		"its pool is full":            {func(h *hall) { h.full = errors.New("no room") }, 20, "it can't be kept apart any more: no room"},
		"the other one is gone":       {func(h *hall) { h.Pods[0].UID = "api" }, 5, "ns/web is gone"},
		"nobody else is there":        {func(h *hall) { h.at("web").Pool = -1 }, 20, "there is no other LS pod in its pool"},
		"nothing is measured":         {func(h *hall) { h.unread = true }, 3, "nobody knows whether keeping it apart helps: how long ns/web waits was not measured"},
		"the other one is gone later": {func(h *hall) { h.Pods[0].UID = "api" }, 20, ""},
		"the clock is set back":       {func(h *hall) { h.Now = h.Now.Add(-time.Hour); h.latest = [signals]Reading{} }, 5, ""},
		"nothing":                     {func(*hall) {}, 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHall()
			h.waitsForLoud()
			h.steps(c.after)
			c.change(h)
			h.steps(20)
			last := h.decisions[len(h.decisions)-1]
			switch {
			case c.want == "" && (last.Action != "confirm" || len(h.apart) != 1):
				t.Errorf("apart %v, decided %v", h.apart, h.log)
			case c.want != "" && (last.Why != c.want || last.Action != "restore"):
				t.Errorf("decided %v, last %q, want %q", h.log, last.Why, c.want)
			}
		})
	}
}

// TestSeparationOfAnUnmeasuredPod checks that a pod goes back if nobody knows any more whether it is noisy.
func TestSeparationOfAnUnmeasuredPod(t *testing.T) {
	t.Parallel()
	h := newHall()
	h.waitsForLoud()
	h.steps(20)
	h.unknown = true
	h.steps(290)
	if len(h.apart) != 1 {
		t.Fatalf("not measured for less than five minutes: apart %v, decided %v", h.apart, h.log)
	}
	h.steps(30)
	const want = "how much work it has beyond what it asked for has not been known for 5m0s"
	if last := h.decisions[len(h.decisions)-1]; len(h.apart) != 0 || last.Action != "restore" || last.Why != want {
		t.Errorf("apart %v, decided %v, last %q, want %q", h.apart, h.log, last.Why, want)
	}
	if advice, _ := h.noisy.Step(&h.View); len(advice) != 0 {
		t.Errorf("advice %v", advice)
	}
}

// TestSeparationAtMost checks that two pods are kept apart at most, and that one that is gone makes room for another.
func TestSeparationAtMost(t *testing.T) {
	t.Parallel()
	h := newHall()
	for i := range 3 {
		h.run(fmt.Sprintf("louder%d", i), workload.LS, 1000, 0).RunDelay.Waiting = 30
	}
	h.steps(40)
	h.hurt = func() float64 { // half of it for each that is not apart
		return 0.8 / float64(int(1)<<(2*len(h.apart)))
	}
	h.steps(60)
	if want := []string{"louder0", "louder1"}; !slices.Equal(h.apart, want) {
		t.Errorf("apart are %v, want %v: %v", h.apart, want, h.log)
	}
}

func TestSeparationAllocs(t *testing.T) {
	n, s := NewNoisy(time.Second), NewSeparation(time.Second)
	none := func(string) (int, error) { return 0, errors.New("none") }
	var disturbed []Disturbance
	stepsWithout(t, fiveHundred(), func(v *View) {
		disturbed = disturbed[:0]
		for i := range v.Pods {
			d := Disturbance{Pod: i}
			d.Latest[runDelay] = Reading{at: v.Now, value: 0.5, above: 0.5}
			disturbed = append(disturbed, d)
		}
		n.Step(v)
		s.Step(v, disturbed, n, true, false, none)
	})
}

func BenchmarkSeparation(b *testing.B) {
	n, s := NewNoisy(time.Second), NewSeparation(time.Second)
	none := func(string) (int, error) { return 0, errors.New("none") }
	benchSteps(b, func(v *View) { s.Step(v, nil, n, true, false, none) })
}
