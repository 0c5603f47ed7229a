package agent

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/nodestatus"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// BenchmarkStatus500 measures snapshots with 500 containers that all have knobs and measurements:
// after new measurements, after a change of one container's knob, after all containers have moved,
// and the first one. It also measures what is done outside of the event loop, completing the
// snapshot and encoding it as JSON, and a snapshot that is shared.
func BenchmarkStatus500(b *testing.B) {
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
	s := observe.Snapshot{Now: now, CPUs: make([]observe.CPU, 2)}
	s.Node.CPU = observe.NodeCPU{At: now, Interval: time.Second, Usage: 600}
	for _, target := range h.Targets() {
		c := observe.Container{ID: target.ID, CPU: observe.ContainerCPU{At: now, Interval: time.Second, Usage: 1, StatAt: now}}
		c.Memory = observe.ContainerMemory{At: now, Current: 1 << 20}
		s.Containers = append(s.Containers, c)
	}
	h.Tick(&s)
	shot, err := h.Status()
	if err != nil {
		b.Fatal(err)
	}
	if c := &shot.Containers[0]; len(shot.Containers) != 500 || c.Usage == nil || len(c.Settings) < 3 {
		b.Fatalf("%d containers, the first %+v", len(shot.Containers), c)
	}
	for _, test := range []struct {
		name   string
		before func()
	}{
		{"snapshot", func() {}},
		{"knob", func() { h.Reconciler.Version(true) }},
		{"first", func() { h.reporter = nodestatus.New(h.Node, h.sources()) }},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.events.Query("status", func() error {
					test.before()
					h.reporter.Draft()
					return nil
				})
			}
		})
	}
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			d := h.reporter.Draft()
			b.StartTimer()
			d.Status()
		}
	})
	b.Run("shared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := h.Status(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			data, err := json.Marshal(shot)
			if err != nil {
				b.Fatal(err)
			}
			n = len(data)
		}
		b.ReportMetric(float64(n)/1024, "KiB")
	})
}
