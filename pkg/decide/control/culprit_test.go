package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// court is a node with a service and BE pods. The service waits as hurt says.
type court struct {
	*scene
	c          *Culprit
	preview    bool
	unable     map[string]bool // pods that may not be limited
	unmeasured map[string]bool // pods whose usage is not known
	unread     bool            // how the service waits is not measured
	slow       bool            // it is measured each ten seconds only
	part       int             // what the service waits for
	hurt       func() float64
	answers    func() float64 // seconds that the service needs to answer; nil if it has no objective
	objective  *Objective     // of 20 ms, by the latest reading

	slowRequests int  // of a window in which the objective is broken
	requests     *int // of a window; nil for 1000

	wants     map[string]workload.MilliCPU
	limits    map[string]workload.MilliCPU
	latest    [signals]Reading
	began     time.Time
	decisions []Decision
	log       []string // "seconds action pod to"
}

const runDelay = 3

// newCourt returns a node with ten BE pods, of which hog uses 16 CPUs and the others half of one.
func newCourt() *court {
	s := newScene(32)
	s.run("web", workload.LS, 4000, 0)
	c := &court{scene: s, c: NewCulprit(BatchConfig{}, time.Second), unable: map[string]bool{}, unmeasured: map[string]bool{}, part: runDelay, slowRequests: 20, wants: map[string]workload.MilliCPU{}, began: s.Now}
	c.Capacity = 32000
	c.batch("hog", 16000)
	for i := range 9 {
		c.batch(fmt.Sprintf("job%d", i), 500)
	}
	c.hurt = func() float64 { return 0 }
	return c
}

func (c *court) batch(name string, wants workload.MilliCPU) {
	c.run(name, workload.BE, 0, 0)
	c.wants[name] = wants
}

// waitsFor makes the service wait while a pod uses more than that.
func (c *court) waitsFor(name string, most workload.MilliCPU) {
	c.hurt = func() float64 {
		if c.at(name).CPU.Usage > most {
			return 0.3
		}
		return 0.02
	}
}

// has returns what a pod uses now.
func (c *court) has(name string) workload.MilliCPU {
	if limit, ok := c.limits[name]; ok {
		return min(limit, c.wants[name])
	}
	return c.wants[name]
}

func (c *court) step() {
	for i := range c.Containers {
		b := &c.Containers[i]
		if _, wants := c.wants[b.ID]; wants {
			b.CPU.Usage = c.has(b.ID)
		}
	}
	c.second()
	for name := range c.unmeasured {
		b := c.at(name)
		b.CPU.At, b.IO.At, b.Container.Memory.At = time.Time{}, time.Time{}, time.Time{}
	}
	if at := c.Now.Truncate(10 * time.Second); !c.unread && (!c.slow || c.latest[c.part].at.Before(at)) {
		if !c.slow {
			at = c.Now
		}
		for k := range c.latest {
			c.latest[k] = Reading{from: c.latest[k].at, at: at}
		}
		c.latest[c.part].above = c.hurt()
		c.latest[c.part].value = c.latest[c.part].above
	}
	c.answer()
	var disturbed []Disturbance
	for i := range c.Pods {
		if c.Pods[i].UID == "web" && c.Pods[i].Class == workload.LS {
			disturbed = append(disturbed, Disturbance{Pod: i, Ref: c.Pods[i].Ref, Latest: c.latest, Objective: c.objective})
		}
	}
	limits, decisions := c.c.Step(&c.View, disturbed, !c.preview, func(pod int) bool { return !c.unable[c.Pods[pod].UID] })
	c.limits = map[string]workload.MilliCPU{}
	for _, l := range limits {
		c.limits[c.Pods[l.Pod].UID] = l.CPU
	}
	for _, d := range decisions {
		c.log = append(c.log, fmt.Sprintf("%v %s %s %s", c.Now.Sub(c.began).Seconds(), d.Action, d.Object, d.To))
	}
	c.decisions = append(c.decisions, decisions...)
}

func (c *court) steps(seconds int) {
	for range seconds {
		c.step()
	}
}

func (c *court) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(c.log, want) {
		t.Errorf("decided:\n%s\nwant:\n%s", strings.Join(c.log, "\n"), strings.Join(want, "\n"))
	}
}

// TestCulprit checks the way of a culprit among ten: it is limited until the service waits no
// more, keeps the limit for a minute, and then gets its CPU back step by step, while it no longer
// hurts. Nothing happens to the nine others.
func TestCulprit(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 6000)
	c.steps(60)
	if c.c.Closely() != "web" {
		t.Errorf("closely watched is %q", c.c.Closely())
	}
	c.hurt = func() float64 { return 0 }
	c.steps(80)
	c.expect(t,
		"3 squeeze ns/hog 8 CPUs", // the first second shows whom to suspect, and two more confirm it
		"5 squeeze ns/hog 4 CPUs",
		"10 confirm ns/hog 4 CPUs",
		"70 ease ns/hog 6 CPUs", "80 ease ns/hog 9 CPUs", "90 ease ns/hog 13.5 CPUs", "100 ease ns/hog 20.3 CPUs",
		"110 restore ns/hog no limit")
	why := c.decisions[0].Why
	if want := "it uses 78 % of batch work's CPU while ns/web waits: the run delay of ns/web is 30 % above its calm baseline; its CPU limit is 8"; why != want {
		t.Errorf("the reason is %q, want %q", why, want)
	}
	if len(c.limits) > 0 || c.c.Closely() != "" {
		t.Errorf("in the end, limited are %v, watched is %q", c.limits, c.c.Closely())
	}
}

// TestCulpritAgain checks that a pod which still hurts goes back to the highest limit that does
// not hurt, and keeps it twice as long each time.
func TestCulpritAgain(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 10000)
	c.steps(500)
	c.expect(t,
		"3 squeeze ns/hog 8 CPUs", "8 confirm ns/hog 8 CPUs",
		"68 ease ns/hog 12 CPUs",
		"70 squeeze ns/hog 8 CPUs", "75 confirm ns/hog 8 CPUs",
		"195 ease ns/hog 12 CPUs",
		"197 squeeze ns/hog 8 CPUs", "202 confirm ns/hog 8 CPUs",
		"442 ease ns/hog 12 CPUs",
		"444 squeeze ns/hog 8 CPUs", "449 confirm ns/hog 8 CPUs")
}

// TestCulpritAgainAfterwards checks that a pod which hurts again soon after it got all CPU back
// begins with a limit that has helped, and keeps it longer.
func TestCulpritAgainAfterwards(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 8000)
	c.steps(30)
	c.wants["hog"] = 500
	c.steps(170)
	c.log, c.wants["hog"] = nil, 16000
	c.steps(140)
	c.expect(t, "203 squeeze ns/hog 12 CPUs", "205 squeeze ns/hog 6 CPUs", "210 confirm ns/hog 6 CPUs", "330 ease ns/hog 9 CPUs", "332 squeeze ns/hog 6 CPUs", "337 confirm ns/hog 6 CPUs")
}

// TestCulpritAcquitted checks that a pod whose limit does not help gets all CPU back, and is tried
// again after 1, 2, 4, 8 and 16 minutes.
func TestCulpritAcquitted(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.hurt = func() float64 { return 0.3 }
	var acquitted []time.Time
	var waits []int // minutes until the next trial
	tried := false
	for range 3500 {
		c.step()
		for _, d := range c.decisions {
			switch d.Action {
			case "acquit":
				acquitted, tried = append(acquitted, c.Now), false
			case "squeeze":
				if !tried && len(acquitted) > 0 {
					waits = append(waits, int(c.Now.Sub(acquitted[len(acquitted)-1]).Minutes()))
				}
				tried = true
			}
		}
		c.decisions = nil
	}
	if want := []int{1, 2, 4, 8, 16, 16}; !slices.Equal(waits, want) {
		t.Errorf("the trials begin %v minutes after the one before, want %v", waits, want)
	}
	want := []string{
		"3 squeeze ns/hog 8 CPUs", "5 squeeze ns/hog 4 CPUs", "7 squeeze ns/hog 2 CPUs", "9 squeeze ns/hog 1 CPUs", "11 squeeze ns/hog 0.5 CPUs",
		"13 squeeze ns/hog 0.25 CPUs", "15 squeeze ns/hog 0.13 CPUs", "17 squeeze ns/hog 0.1 CPUs", "22 acquit ns/hog no limit",
	}
	if !slices.Equal(c.log[:len(want)], want) {
		t.Errorf("the first trial is %v, want %v", c.log[:len(want)], want)
	}
}

// TestCulpritHeldInVain checks that a pod is let go if the service waits again for a minute,
// although the pod is limited.
func TestCulpritHeldInVain(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 10000)
	c.steps(20)
	c.log, c.hurt = nil, func() float64 { return 0.3 }
	c.steps(65)
	c.expect(t, "80 acquit ns/hog no limit")
	if len(c.c.Unavoidable()) > 0 {
		t.Errorf("learned %v while batch work has more than its floor", c.c.Unavoidable())
	}
}

// TestCulpritUnknown checks that nothing is concluded from what is not measured.
func TestCulpritUnknown(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 6000)
	c.steps(3)
	c.unread = true
	c.steps(20)
	c.expect(t, "3 squeeze ns/hog 8 CPUs", "18 restore ns/hog no limit")
	c.log, c.unread = nil, false
	c.steps(30)
	c.expect(t) // it is not suspected again at once
	c.steps(40)
	if len(c.log) == 0 || c.log[0] != "80 squeeze ns/hog 8 CPUs" {
		t.Errorf("decided %v, want another trial a minute later: the first one has shown nothing", c.log)
	}

	c = newCourt()
	c.hurt, c.slow = func() float64 { return 0.3 }, true
	c.steps(120)
	c.expect(t) // measured seldom: what has changed within seconds can't be seen
	if c.c.Closely() != "web" {
		t.Errorf("closely watched is %q", c.c.Closely())
	}
}

// TestCulpritPreview checks that in preview the controller says whom it would limit, limits
// nobody, and concludes nothing.
func TestCulpritPreview(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.preview = true
	c.waitsFor("hog", 6000)
	for range 100 {
		if c.step(); len(c.limits) > 0 {
			t.Fatalf("limited are %v", c.limits)
		}
	}
	c.expect(t, "3 squeeze ns/hog 8 CPUs", "65 squeeze ns/hog 8 CPUs")
}

// TestCulpritEnds checks what ends a limit besides its success: the service or the pod is gone, or
// the pod must not be changed.
func TestCulpritEnds(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		change func(*court)
		want   string
	}{
		"the service is gone":  {func(c *court) { c.Pods[0].Class = workload.System }, "8 restore ns/hog no limit"},
		"another has its name": {func(c *court) { c.Pods[0].UID = "new" }, "8 restore ns/hog no limit"},
		"the pod is gone":      {func(c *court) { c.Pods[1].UID = "new" }, ""},
	} {
		c := newCourt()
		c.waitsFor("hog", 1000)
		c.steps(7)
		c.log = nil
		one.change(c)
		c.step()
		if got := strings.Join(c.log, ", "); got != one.want || len(c.limits) > 0 {
			t.Errorf("%s: %v, limits %v", name, c.log, c.limits)
		}
	}
}

// TestCulpritPaused checks that a pod that can't be limited for a moment has no limit meanwhile,
// has it again afterwards, and that nothing is concluded from the time between.
func TestCulpritPaused(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 10000)
	c.steps(5)
	c.unable["hog"] = true
	for range 8 {
		if c.step(); len(c.limits) > 0 {
			t.Fatalf("limited is %v", c.limits)
		}
	}
	c.unable["hog"] = false
	if c.step(); c.limits["hog"] != 8000 {
		t.Errorf("then limited is %v", c.limits)
	}
	c.steps(5)
	c.expect(t, "3 squeeze ns/hog 8 CPUs", "19 confirm ns/hog 8 CPUs")
	c.unable["hog"] = true
	c.steps(15)
	c.expect(t, "3 squeeze ns/hog 8 CPUs", "19 confirm ns/hog 8 CPUs", "34 restore ns/hog no limit")
}

// From the first suspicion on, nothing else acts, but not for longer than a suspicion that never becomes
// a trial deserves.
func TestSuspicionComesFirst(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 8000)
	for second := range 4 {
		if c.step(); !c.c.Trying() {
			t.Errorf("after %d s nobody is tried or will be", second+1)
		}
	}
	c = newCourt()
	c.hurt = func() float64 { return 0.3 }
	held := 0
	for second := range 60 { // each second, another pod is the largest
		c.wants["hog"], c.wants["job0"] = workload.MilliCPU(16000*(second%2)+1), workload.MilliCPU(16000*((second+1)%2)+1)
		if c.step(); c.c.Trying() {
			held++
		}
	}
	if len(c.log) > 0 || held > 6 {
		t.Errorf("held for %d of 60 s: %v", held, c.log)
	}
}

// A culprit whose service is not measured keeps its limit.
func TestCulpritUnseen(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 8000)
	c.steps(20)
	limit := c.limits["hog"]
	c.unread = true
	c.steps(300)
	if got := c.limits["hog"]; limit == 0 || got != limit {
		t.Errorf("its limit was %d and is %d: %v", limit, got, c.log)
	}
	c.unread, c.slow, c.hurt = false, true, func() float64 { return 0.02 }
	if c.steps(300); len(c.limits) > 0 {
		t.Errorf("it still has %d: %v", c.limits["hog"], c.log)
	}
}

// TestOneTrialAtATime checks that of two pods which hurt only one is tried, and the other after
// it.
func TestOneTrialAtATime(t *testing.T) {
	t.Parallel()
	c := newCourt()
	for i := range 9 {
		c.wants[fmt.Sprintf("job%d", i)] = 200
	}
	c.wants["hog"], c.wants["job0"] = 9000, 8800
	c.waitsFor("job0", 5000)
	for range 200 {
		c.step()
		tried := 0
		for i := range c.Pods {
			if a := c.c.pods.find(c.Pods[i].UID); a != nil && a.phase == culpritTried {
				tried++
			}
		}
		if tried > 1 {
			t.Fatalf("%d pods are tried: %v", tried, c.log)
		}
	}
	if !slices.Contains(c.log, "20 acquit ns/hog no limit") || !slices.Contains(c.log, "28 confirm ns/job0 4.4 CPUs") {
		t.Errorf("decided %v", c.log)
	}
}

// TestCulpritProperties checks that no limit is below the floor or concerns a service, that one
// pod is tried at a time, and that everything is given back once the services are quiet.
func TestCulpritProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCourt()
		floor := rapid.SampledFrom([]int{0, 5, 20}).Draw(t, "floor percent")
		c.c = NewCulprit(BatchConfig{FloorPercent: floor}, time.Second)
		c.Shared = 32000
		least := max(c.c.batch.Floor(&c.View)/10, leastQuota)
		waits, answers := 0.0, 0.008
		c.hurt = func() float64 { return waits }
		if rapid.Bool().Draw(t, "objective") {
			c.answers = func() float64 { return answers }
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			waits = rapid.SampledFrom([]float64{0, 0.05, 0.12, 0.3, 0.9}).Draw(t, "waits")
			answers = rapid.SampledFrom([]float64{0.008, 0.019, 0.05}).Draw(t, "answers")
			if c.objective != nil && rapid.IntRange(0, 5).Draw(t, "lost") == 0 {
				c.objective.Measured, c.objective.lost = false, rapid.Bool().Draw(t, "lately")
			}
			c.unread = rapid.IntRange(0, 9).Draw(t, "unread") == 0
			c.unable["hog"] = rapid.IntRange(0, 19).Draw(t, "unable") == 0
			c.wants[rapid.SampledFrom([]string{"hog", "job0", "job1"}).Draw(t, "who")] = workload.MilliCPU(rapid.IntRange(0, 20000).Draw(t, "wants"))
			c.Now = c.Now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 0, 0, -30, 30}).Draw(t, "jump")) * time.Second)
			for range rapid.IntRange(1, 20).Draw(t, "seconds") {
				c.step()
				tried := 0
				for i := range c.Pods {
					if a := c.c.pods.find(c.Pods[i].UID); a != nil && a.phase == culpritTried {
						tried++
					}
				}
				for uid, limit := range c.limits {
					if limit < least || uid == "web" {
						t.Fatalf("%s has a limit of %d, the floor is %d: %v", uid, limit, least, c.log)
					}
				}
				if tried > 1 {
					t.Fatalf("%d pods are tried: %v", tried, c.log)
				}
			}
		}
		waits, answers, c.unread, c.unable = 0, 0.008, false, map[string]bool{}
		c.steps(int((holdTime << mostDoubled).Seconds()) + 20*int(easeTime.Seconds()))
		if len(c.limits) > 0 {
			t.Fatalf("with quiet services, limited are %v: %v", c.limits, c.log)
		}
	})
}

func TestCulpritAllocs(t *testing.T) {
	s := crowd()
	c := NewCulprit(BatchConfig{}, time.Second)
	noAllocs(t, s, func(v *View) []Decision {
		_, d := c.Step(v, nil, true, func(int) bool { return true })
		return d
	})
}
