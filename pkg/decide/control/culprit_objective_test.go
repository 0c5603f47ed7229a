package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// answer reads each five seconds how the service has answered since the reading before.
func (c *court) answer() {
	const bound = 0.02
	if c.answers == nil || c.Now.Second()%5 != 0 {
		return
	}
	now := Objective{Metric: "seconds", QuantileFraction: 0.99, BoundSeconds: bound, tolerated: bound, ample: bound, Measured: true, Requests: 1000, Seconds: c.answers(), from: c.Now.Add(-5 * time.Second)}
	if c.requests != nil {
		now.Requests = *c.requests
	}
	if now.Seconds > bound {
		now.Slow = c.slowRequests
		if now.BrokenAt = c.Now; c.objective != nil && !c.objective.BrokenAt.IsZero() {
			now.BrokenAt = c.objective.BrokenAt
		}
	}
	c.objective = &now
}

// late makes the service break its objective, and wait for 3 % of its time, while a pod uses more than that.
func (c *court) late(name string, most workload.MilliCPU) {
	c.hurt = func() float64 {
		if c.at(name).CPU.Usage > most {
			return 0.03
		}
		return 0.002
	}
	c.answers = func() float64 {
		if c.at(name).CPU.Usage > most {
			return 0.05
		}
		return 0.008
	}
}

// TestCulpritOfObjective checks the way of a pod that makes a service break its objective, whose waiting
// alone nobody would mind.
func TestCulpritOfObjective(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.late("hog", 6000)
	c.steps(75)
	c.hurt, c.answers = func() float64 { return 0 }, func() float64 { return 0.008 }
	c.steps(80)
	c.expect(t,
		"7 squeeze ns/hog 8 CPUs", // the first reading is made in second 5
		"9 squeeze ns/hog 4 CPUs",
		"15 confirm ns/hog 4 CPUs", // the first window that began after the last cut
		"75 ease ns/hog 6 CPUs", "85 ease ns/hog 9 CPUs", "95 ease ns/hog 13.5 CPUs", "105 ease ns/hog 20.3 CPUs",
		"115 restore ns/hog no limit")
	for i, want := range map[int]string{
		0: "it uses 78 % of batch work's CPU while ns/web waits: the run delay of ns/web is 3 % above its calm baseline, and it answers 99 % of its requests within 50 ms, with an objective of 20 ms; its CPU limit is 8",
		2: "ns/web answered too late while this pod had more: the run delay of ns/web was 3 % above its calm baseline before, and is 0 % now; it answers 99 % of its requests within 8 ms now, and its objective is 20 ms; the limit holds for 1m0s",
	} {
		if why := c.decisions[i].Why; why != want {
			t.Errorf("reason %d is %q, want %q", i, why, want)
		}
	}
}

// TestObjectiveAgain checks that a service that answers too late again brings the last limit that helped back.
func TestObjectiveAgain(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.late("hog", 10000)
	c.steps(110)
	c.expect(t, "7 squeeze ns/hog 8 CPUs", "15 confirm ns/hog 8 CPUs", "75 ease ns/hog 12 CPUs", "81 squeeze ns/hog 8 CPUs", "90 confirm ns/hog 8 CPUs")
	if want := "ns/web answers too late again (99 % of its requests within 50 ms) since this pod has more than 8 CPUs"; !strings.HasPrefix(c.decisions[3].Why, want) {
		t.Errorf("the reason is %q, want %q", c.decisions[3].Why, want)
	}
}

// TestObjectiveStartsASearch checks what starts a search while an objective is broken, and what ends a trial.
func TestObjectiveStartsASearch(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		change func(*court)
		want   []string
	}{
		"kept": {func(c *court) { c.answers = func() float64 { return 0.015 } }, nil},
		"few slow requests": {func(c *court) {
			c.slowRequests = leastSlow - 1
		}, nil},
		"memory": {func(c *court) {
			c.part = 1
			c.hurt = func() float64 { c.at("job4").Container.Memory.Current += 100 << 20; return 0.03 }
		}, []string{"squeeze ns/job4"}},
		"disks": {func(c *court) {
			c.part = 2
			c.at("job3").IO.WriteBPS = 1e8
		}, []string{"squeeze ns/job3"}},
		"nothing tells what is short": {func(c *court) { c.hurt = func() float64 { return 0.009 } }, []string{"unclear ns/web"}},
		"nothing is measured":         {func(c *court) { c.unread = true }, []string{"unclear ns/web"}},
		"its own limit throttles it": {func(c *court) {
			hurt := c.hurt
			c.hurt = func() float64 { c.latest[throttling].value = 0.5; return hurt() }
		}, []string{"unclear ns/web"}},
		"it waits less, and answers too late": {func(c *court) { c.answers = func() float64 { return 0.05 } }, []string{"squeeze ns/hog", "squeeze ns/hog", "acquit ns/hog"}},
		"it is on time, and waits as long":    {func(c *court) { c.hurt = func() float64 { return 0.03 } }, append(slices.Repeat([]string{"squeeze ns/hog"}, 8), "confirm ns/hog")},
	} {
		c := newCourt()
		c.late("hog", 6000)
		one.change(c)
		var got []string
		for range 30 {
			c.step()
		}
		for _, d := range c.decisions {
			got = append(got, d.Action+" "+d.Object)
		}
		if len(one.want) == 1 && len(got) > 1 && strings.HasPrefix(one.want[0], "squeeze") {
			got = got[:1]
		}
		if !slices.Equal(got, one.want) {
			t.Errorf("%s: decided %v, want %v: %v", name, got, one.want, c.log)
		}
	}
}

// TestObjectiveUnread checks that a trial whose objective is not read any more is judged by the waiting.
func TestObjectiveUnread(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.late("hog", 6000)
	c.steps(8)
	c.answers = nil
	c.objective.Measured, c.objective.lost = false, true
	c.steps(20)
	c.expect(t, "7 squeeze ns/hog 8 CPUs", "9 squeeze ns/hog 4 CPUs", "24 confirm ns/hog 4 CPUs")
}

// TestUnclear checks the reasons that nobody is suspected, that each is said once while the objective is
// broken, and that batch work gives way after a moment.
func TestUnclear(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*court){
		"none of what is measured of its waiting for CPU, memory and disks is 1 % above its calm baseline": func(*court) {},
		"its waiting for CPU, memory and disks is not measured":                                            func(c *court) { c.unread = true },
		"its own CPU limit throttles it": func(c *court) {
			c.hurt = func() float64 { c.latest[throttling].value = 0.5; return 0 }
		},
	} {
		c := newCourt()
		c.answers = func() float64 { return 0.05 }
		change(c)
		held := 0
		for range 300 {
			if c.step(); c.c.Trying() {
				held++
			}
		}
		if len(c.decisions) != 1 || !strings.HasSuffix(c.decisions[0].Why, "nobody is suspected, because nothing tells what it lacks: "+want) || held > 2 {
			t.Errorf("held for %d s, decided %+v, want %q", held, c.decisions, want)
		}
		if c.c.Closely() != "" {
			t.Errorf("still measured closely: %q", c.c.Closely())
		}
	}
}

// TestObjectiveFindsTheCulprit checks with real readings of the histogram and of the waiting that one pod is
// squeezed where it alone makes the service late, and all of batch work otherwise.
func TestObjectiveFindsTheCulprit(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		waits func(batch workload.MilliCPU) float64
		want  bool
	}{
		"the run delay tells": {func(batch workload.MilliCPU) float64 { return 0.02 + float64(batch)/400000 }, true},
		"nothing tells":       {func(workload.MilliCPU) float64 { return 0.02 }, false},
	} {
		n := newAnswering(slowedDown)
		n.waits = one.waits
		n.accuse()
		n.runs(60, 16000)
		if limited := n.limit > 0; limited != one.want || (n.share.Percent == 100) != one.want {
			t.Errorf("%s: the culprit has a limit of %d, batch work a share of %+v: %+v", name, n.limit, n.share, n.decisions)
		}
	}
}

// TestObjectiveOfTooFewRequests checks that a pod is not held for a service that answers nothing any more, or
// too few requests to say that it keeps its objective, while it waits as long as before.
func TestObjectiveOfTooFewRequests(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]struct {
		seconds        float64
		requests, slow int
	}{"none": {}, "two slow ones": {0.05, 2, 2}} {
		c := newCourt()
		c.late("hog", 0) // whatever the hog uses
		c.hurt = func() float64 { return 0.03 }
		c.steps(7)
		c.answers = func() float64 { return answers.seconds }
		c.requests, c.slowRequests = &answers.requests, answers.slow
		c.steps(60)
		if i := slices.IndexFunc(c.decisions, func(d Decision) bool { return d.Action == "confirm" }); i >= 0 {
			t.Errorf("%s: %s", name, c.decisions[i].Why)
		}
	}
}
