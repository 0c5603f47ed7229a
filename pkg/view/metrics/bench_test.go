package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// BenchmarkScrape500 measures a scrape of a node with 500 containers, and one of a collector with
// a single metric. It does not include making the status, which pkg/engine/agent measures.
func BenchmarkScrape500(b *testing.B) {
	source := fixed{s: busy(500)}
	least := prometheus.NewRegistry()
	least.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "one", Help: "One."}))
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"empty", promhttp.HandlerFor(least, promhttp.HandlerOpts{EnableOpenMetrics: true})},
		{"bounded", Handler(source, false)},
		{"containers", Handler(source, true)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				answer := httptest.NewRecorder()
				c.handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, Path, nil))
				n, _ := io.Copy(io.Discard, answer.Body)
				bytes = int(n)
			}
			b.ReportMetric(float64(bytes), "body-bytes")
		})
	}
}
