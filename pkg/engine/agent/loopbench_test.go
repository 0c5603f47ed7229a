package agent

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
)

const loopKnobs = usualKnobs + "control: {mode: on, memory: {mode: preview}, burst: {all: true}, batch: {by: quota, thresholdPercent: 65}}\n"

// BenchmarkTick measures ticks of the loop without changes, with 500 containers: the fast one, and
// the one in ten that steps all controllers.
func BenchmarkTick(b *testing.B) {
	for _, test := range []struct {
		name  string
		every time.Duration
	}{{"fast", 0}, {"all", time.Second}} {
		b.Run(test.name, func(b *testing.B) {
			h := newBed(b, loopKnobs, 0)
			for i := range 500 {
				h.add(i)
			}
			for i, p := range h.pods {
				p.Annotations = map[string]string{"class.sluice.dev": []string{"LS", "BE"}[i%2]}
			}
			if _, err := h.Synchronize(context.Background(), h.pods, slices.Clone(h.specs)); err != nil {
				b.Fatal(err)
			}
			now := time.Now()
			s := observe.Snapshot{CPUs: make([]observe.CPU, 2), Changes: observe.Changes{Partial: true}}
			var all, fast []int // indexes of all targets, and of those that are read at each tick
			for i, target := range h.Targets() {
				s.Containers, all = append(s.Containers, observe.Container{ID: target.ID}), append(all, i)
				if target.Fast {
					fast = append(fast, i)
				}
			}
			tick := func(by time.Duration) {
				now = now.Add(by)
				s.Now = now
				s.Node.CPU = observe.NodeCPU{At: now, Interval: by, Usage: 600}
				s.Node.Memory = observe.NodeMemory{At: now, Total: 8 << 30, Available: 4 << 30, Free: 2 << 30}
				s.Changes.Number++
				if s.Changes.Containers = all; by == 0 {
					s.Changes.Containers = fast
				}
				for _, i := range s.Changes.Containers {
					c := &s.Containers[i]
					c.CPU = observe.ContainerCPU{At: now, Interval: by, Usage: 1, StatAt: now}
					c.Memory = observe.ContainerMemory{At: now, Current: 1 << 20}
				}
				h.Tick(&s)
			}
			for range 100 {
				tick(time.Second)
			}
			h.driver.changes = nil
			b.ReportAllocs()
			for b.Loop() {
				tick(test.every)
			}
			if len(h.driver.changes) > 0 {
				b.Errorf("%d changes, of %s", len(h.driver.changes), strings.TrimSpace(h.driver.changes[0].Object.Path))
			}
		})
	}
}
