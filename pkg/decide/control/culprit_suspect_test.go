package control

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestSuspect checks who is suspected.
func TestSuspect(t *testing.T) {
	t.Parallel()
	growing := func(c *court, name string, mib int64) {
		c.at(name).Container.Memory.Current += mib << 20
	}
	for name, one := range map[string]struct {
		change func(*court) // before each step
		want   string       // the pod that is suspected; "" for none
	}{
		"the largest user":               {func(*court) {}, "hog"},
		"no disturbance":                 {func(c *court) { c.hurt = func() float64 { return 0.09 } }, ""},
		"a third of all":                 {func(c *court) { c.wants["hog"], c.wants["job0"], c.wants["job1"] = 6000, 5900, 5800 }, ""},
		"one of two that use much, 45 %": {func(c *court) { c.wants["hog"], c.wants["job0"] = 9000, 7500 }, "hog"},
		"not twice the mean of two others": {func(c *court) {
			for i := range 7 {
				c.at(fmt.Sprintf("job%d", i)).Unseen = true
			}
			c.wants["hog"], c.wants["job7"], c.wants["job8"] = 9000, 5000, 5000
		}, ""},
		"one other alone": {func(c *court) {
			for i := range 8 {
				c.at(fmt.Sprintf("job%d", i)).Unseen = true
			}
		}, ""},
		"the largest must not be limited": {func(c *court) { c.unable["hog"] = true }, ""},
		"the next is not": {func(c *court) {
			c.unable["hog"] = true
			c.wants["hog"], c.wants["job0"] = 9000, 8800
			for i := range 8 {
				c.wants[fmt.Sprintf("job%d", i+1)] = 200
			}
		}, "job0"},
		"a window squeezes": {func(c *court) { c.Batch.Squeeze = true }, ""},
		"the largest already has little": {func(c *court) {
			c.wants["hog"] = 90
			for i := range 9 {
				c.wants[fmt.Sprintf("job%d", i)] = 1
			}
		}, ""},
		"disks": {func(c *court) {
			c.part = 2
			c.at("job3").IO.WriteBPS = 1e8
			c.at("hog").IO.ReadBPS = 1e6
		}, "job3"},
		"the use of the largest is not known": {func(c *court) { c.unmeasured["hog"] = true }, ""},
		"that of all but one other is not known": {func(c *court) {
			for i := range 8 {
				c.unmeasured[fmt.Sprintf("job%d", i)] = true
			}
		}, ""},
		"disks that nobody measures": {func(c *court) {
			c.part = 2
			c.at("job3").IO.WriteBPS = 1e8
			for i := range 9 {
				c.unmeasured[fmt.Sprintf("job%d", i)] = true
			}
		}, ""},
		"memory": {func(c *court) {
			c.part = 1
			growing(c, "job4", 100)
			growing(c, "hog", 1)
		}, "job4"},
		"memory that does not grow": {func(c *court) {
			c.part = 1
			c.at("hog").Container.Memory.Current = 10 << 30
		}, ""},
	} {
		c := newCourt()
		c.waitsFor("hog", 0)
		if one.want == "job3" || one.want == "job4" {
			c.hurt = func() float64 { return 0.3 }
		}
		if got := c.suspect(one.change); got != one.want {
			t.Errorf("%s: suspected is %q, want %q: %v", name, got, one.want, c.log)
		}
	}
}

// suspect lets 25 seconds pass in preview, with the change before each, and returns the pod that is suspected first.
func (c *court) suspect(change func(*court)) string {
	c.preview = true
	for range 25 {
		change(c)
		c.step()
	}
	if len(c.decisions) == 0 {
		return ""
	}
	return strings.TrimPrefix(c.decisions[0].Object, "ns/")
}

// TestThrottledVictim checks that nobody is suspected while the service waits because of its own
// limit.
func TestThrottledVictim(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.waitsFor("hog", 0)
	hurt := c.hurt
	c.hurt = func() float64 {
		c.latest[strains-1].value = 0.5
		return hurt()
	}
	c.steps(20)
	c.expect(t)
}

// TestCulpritRealReadings checks the controller with the measurement of interference, whose
// baseline is learned and whose victim is measured closely once it waits.
func TestCulpritRealReadings(t *testing.T) {
	t.Parallel()
	s := newCourt().scene
	f, c := NewInterference(time.Second), NewCulprit(BatchConfig{}, time.Second)
	web, hog := s.at("web"), s.at("hog")
	limit := workload.MilliCPU(math.MaxInt64)
	var log []string
	begun := time.Time{}
	for second := range 220 {
		hog.CPU.Usage = min(limit, 300)
		if second >= 100 { // after a calm time
			hog.CPU.Usage = min(limit, 16000)
			if begun.IsZero() {
				begun = s.Now
			}
		}
		web.Pressure.CPU = 0.01
		if hog.CPU.Usage > 6000 {
			web.Pressure.CPU = 0.4
		}
		v := s.second()
		if c.Closely() == "web" {
			web.Pressure.At = s.Now
		}
		disturbed, _ := f.Step(v)
		limits, decisions := c.Step(v, disturbed, true, func(int) bool { return true })
		limit = math.MaxInt64
		for _, l := range limits {
			limit = l.CPU
		}
		for _, d := range decisions {
			log = append(log, fmt.Sprintf("%v %s %s %s", s.Now.Sub(begun).Seconds(), d.Action, d.Object, d.To))
		}
	}
	if len(log) < 3 || !strings.HasSuffix(log[0], "squeeze ns/hog 8 CPUs") || !strings.HasSuffix(log[1], "squeeze ns/hog 4 CPUs") || !strings.HasSuffix(log[2], "confirm ns/hog 4 CPUs") {
		t.Errorf("decided %v", log)
	}
}
