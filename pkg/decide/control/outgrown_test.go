package control

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// loads sets the usage of the scene's pools, measured now.
func (s *scene) loads(usage ...workload.MilliCPU) *View {
	v := s.pass(time.Minute)
	for i := range v.Pools {
		v.Pools[i].Usage, v.Pools[i].At = usage[i], v.Now
	}
	return v
}

func TestOutgrown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		usage   []workload.MilliCPU
		minutes int
		want    string
	}{
		"a fifth":           {[]workload.MilliCPU{1000, 4000, 9000}, 20, ""},
		"more":              {[]workload.MilliCPU{4000, 4000, 9000}, 20, "it uses 4 of the 8 CPUs of online work, 50 %: above a fifth there is too little below it to take from when it needs more; keep it for the few pods that need it, and move the others to pool online"},
		"too early to tell": {[]workload.MilliCPU{4000, 4000, 0}, 4, ""},
		"little load":       {[]workload.MilliCPU{300, 100, 0}, 20, ""},
		"nothing":           {[]workload.MilliCPU{0, 0, 0}, 20, ""},
	} {
		s, o := newScene(16), NewOutgrown(time.Minute)
		var advice []Advice
		for range test.minutes {
			advice = o.Step(s.loads(test.usage...))
		}
		got := ""
		if len(advice) > 0 {
			got = advice[0].Text
			if advice[0].Object != "pool critical" {
				t.Errorf("%s: of %s", name, advice[0].Object)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestOutgrownHolds(t *testing.T) {
	t.Parallel()
	s, o := newScene(16), NewOutgrown(time.Minute)
	for i := range 120 { // 21 % for half an hour, then 19 %, then 10 %
		use := []workload.MilliCPU{2100, 1900, 1900, 1000}[i/30]
		advice := o.Step(s.loads(use, 10000-use, 5000))
		if at := i % 30; i < 90 && at > 5 && len(advice) != 1 || i == 119 && len(advice) > 0 {
			t.Fatalf("minute %d: %v", i, advice)
		}
	}
	for range 10 { // pools without a recent measurement change nothing
		if advice := o.Step(s.pass(time.Hour)); len(advice) > 0 {
			t.Errorf("stale: %v", advice)
		}
	}
	s.Pools = s.Pools[1:]
	if advice := o.Step(s.pass(time.Minute)); advice != nil {
		t.Errorf("two pools: %v", advice)
	}
}

func TestOutgrownAllocs(t *testing.T) {
	o := NewOutgrown(time.Second)
	stepsWithout(t, fiveHundred(), func(v *View) { o.Step(v) })
}
