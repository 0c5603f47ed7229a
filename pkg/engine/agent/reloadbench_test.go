package agent

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
)

// BenchmarkReload500 measures reloads beside 500 LS containers with knobs: one without changes,
// and one that changes a weight of all containers and pods. All other events wait for a reload.
func BenchmarkReload500(b *testing.B) {
	const (
		full = usualKnobs
		half = `
recordUpdates: {enabled: false}
classes:
  LS: {cpu-burst: 100%, weight: 150%, memory-qos: {highPercent: 80}, io: {weight: 200}}
`
	)
	h := newBed(b, usualKnobs, 500)
	for _, test := range []struct {
		name  string
		texts [2]string
	}{{"unchanged", [2]string{full, full}}, {"changed", [2]string{full, half}}} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			turn := 0
			for b.Loop() {
				b.StopTimer()
				turn++
				c, err := config.Parse([]byte(test.texts[turn%2]))
				if err != nil {
					b.Fatal(err)
				}
				h.driver.changes = nil
				b.StartTimer()
				if _, err := h.Reconfigure(Reload{Config: c}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(h.driver.changes)), "writes")
		})
	}
}
