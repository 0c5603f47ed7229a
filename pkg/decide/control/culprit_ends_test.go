package control

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCulpritWhenTheClockIsSetBack checks that a limit does not stay until the clock is there again.
func TestCulpritWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	for held, seconds := range map[string]int{"tried": 4, "held": 20, "easing": 72} {
		c := newCourt()
		c.waitsFor("hog", 6000)
		c.steps(seconds)
		c.Now = c.Now.Add(-24 * time.Hour)
		c.hurt = func() float64 { return 0 }
		if c.steps(180); len(c.limits) > 0 {
			t.Errorf("%s: limits %v: %v", held, c.limits, c.log)
		}
	}
}

// TestCulpritUnmeasured checks that a pod gets its CPU back if nobody knows any more how long the service waits.
func TestCulpritUnmeasured(t *testing.T) {
	t.Parallel()
	for held, seconds := range map[string]int{"held": 20, "easing": 72} {
		c := newCourt()
		c.waitsFor("hog", 6000)
		c.steps(seconds)
		c.unread = true
		c.steps(int(lostTime/time.Second) + 40)
		if last := c.decisions[len(c.decisions)-1]; len(c.limits) > 0 || last.Action != "restore" || last.Why != "nobody knows whether the limit helps: how long ns/web waits has not been measured for 5m0s" {
			t.Errorf("%s: limits %v, %+v", held, c.limits, last)
		}
	}
}

// TestCulpritAfterAll checks that a trial in vain no longer counts after the pod has hurt the service again
// on its way back: the next acquittal is for the shortest time.
func TestCulpritAfterAll(t *testing.T) {
	t.Parallel()
	c := newCourt()
	inVain := func() float64 { return 0.3 }
	c.hurt = inVain
	c.steps(25)
	c.waitsFor("hog", 10000)
	c.steps(140)
	c.hurt = inVain
	c.steps(70)
	var ends []string
	for _, d := range c.decisions {
		if d.Action == "acquit" || d.Action == "confirm" || d.Action == "ease" {
			_, spared, _ := strings.Cut(d.Why, "not suspected for ")
			ends = append(ends, strings.TrimSpace(d.Action+" "+spared))
		}
	}
	if want := []string{"acquit 1m0s", "confirm", "ease", "confirm", "acquit 1m0s"}; !slices.Equal(ends, want) {
		t.Errorf("decided %v, want %v", ends, want)
	}
}

// TestCulpritOfAnother checks that a pod is acquitted whose service is not measured closely, as another one
// is, and goes on waiting.
func TestCulpritOfAnother(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 6000)
	c.steps(20)
	c.slow, c.hurt = true, func() float64 { return 0.3 }
	c.steps(90)
	if last := c.decisions[len(c.decisions)-1]; len(c.limits) > 0 || last.Action != "acquit" {
		t.Errorf("limits %v, %+v", c.limits, last)
	}
}

// TestCulpritPreviewBegins checks that nothing is limited from the moment at which nothing may be.
func TestCulpritPreviewBegins(t *testing.T) {
	t.Parallel()
	for held, seconds := range map[string]int{"tried": 4, "held": 20, "easing": 72} {
		c := newCourt()
		c.waitsFor("hog", 6000)
		c.steps(seconds)
		c.preview = true
		if c.step(); len(c.limits) > 0 || c.c.Trying() {
			t.Errorf("%s: limits %v, trying %t", held, c.limits, c.c.Trying())
		}
	}
}
