package control

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestOverAsk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class          workload.Class
		request, usage workload.MilliCPU
		minutes        int
		want           string
	}{
		"far more than it uses": {workload.LS, 4000, 1000, 61, "it requests 4 CPUs and used 1 at most for over an hour: a request of 1.2 would do"},
		"too early to tell":     {workload.LS, 4000, 1000, 59, ""},
		"three times":           {workload.LS, 3000, 1000, 61, ""},
		"a small pod":           {workload.LS, 400, 1, 61, ""},
		"idle":                  {workload.LSR, 2000, 0, 61, "it requests 2 CPUs and used 0 at most for over an hour: a request of 0.1 would do"},
		"BE":                    {workload.BE, 4000, 1000, 61, ""},
	} {
		s := newScene(16)
		s.run("pod", test.class, test.request, 0).CPU.Usage = test.usage
		o := NewOverAsk(time.Minute)
		var advice []Advice
		for range test.minutes {
			advice = o.Step(s.pass(time.Minute))
		}
		got := ""
		if len(advice) > 0 {
			got = advice[0].Text
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestOverAskRemembersAPeak(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	c := s.run("pod", workload.LS, 4000, 0)
	o := NewOverAsk(time.Minute)
	for i := range 240 {
		c.CPU.Usage = 500
		if i == 30 {
			c.CPU.Usage = 3000
		}
		if advice := o.Step(s.pass(time.Minute)); len(advice) > 0 != (i >= 120) {
			t.Fatalf("after %d minutes: %v", i, advice)
		}
	}
}

func TestOverAskAllocs(t *testing.T) {
	o := NewOverAsk(time.Second)
	stepsWithout(t, fiveHundred(), func(v *View) { o.Step(v) })
}

func BenchmarkOverAsk(b *testing.B) {
	o := NewOverAsk(time.Second)
	benchSteps(b, func(v *View) { o.Step(v) })
}
