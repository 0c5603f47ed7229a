package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestCulpritUnavoidable checks that an acquittal tells how much the service waits, if all batch work has no more CPU
// than its floor by then, and if it is CPU that the service waits for.
func TestCulpritUnavoidable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		part   int
		others workload.MilliCPU // usage of each other BE pod
		bound  float64
		want   []Unavoidable
	}{
		"run delay":                 {runDelay, 500, 0, []Unavoidable{{"web", runDelay, 0.3}}},
		"CPU pressure":              {0, 500, 0, []Unavoidable{{"web", 0, 0.3}}},
		"memory pressure":           {1, 500, 0, nil},
		"others use more":           {runDelay, 900, 0, nil},
		"the service has its bound": {runDelay, 500, 0.2, nil},
	} {
		c := newCourt()
		c.c = NewCulprit(BatchConfig{FloorPercent: 20}, time.Second) // 6.4 CPUs
		c.part, c.Pods[0].SLO.RunDelay = test.part, test.bound
		c.hurt = func() float64 { return 0.3 }
		for i := range 9 {
			c.wants[fmt.Sprintf("job%d", i)] = test.others
		}
		var got []Unavoidable
		for range 60 {
			for id, wants := range c.wants {
				c.at(id).Container.Memory.Current += int64(wants)
			}
			c.step()
			got = append(got, c.c.Unavoidable()...)
		}
		if acquitted := strings.Contains(strings.Join(c.log, "\n"), "acquit"); !acquitted || !slices.Equal(got, test.want) {
			t.Errorf("%s: learned %v, want %v; decided:\n%s", name, got, test.want, strings.Join(c.log, "\n"))
		}
		why := c.decisions[len(c.decisions)-1].Why
		if says := strings.Contains(why, "so that the baseline of ns/web is at least 30 % from now on"); says != (test.want != nil) {
			t.Errorf("%s: the reason is %q", name, why)
		}
	}
}
