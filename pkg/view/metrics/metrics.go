// Package metrics exports the plugin's state to Prometheus. It is stateless: each scrape reads
// one status and computes all metrics from it.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// Source provides the status; the agent implements it.
type Source interface {
	Status() (*status.Status, error)
}

// Collector computes metrics from a status at each scrape. The configuration and this program
// bound its labels, unless it exports metrics of single containers and pods.
type Collector struct {
	source  Source
	metrics []metric
	descs   []*prometheus.Desc
	names   bool
}

// New returns the collector of a source. With names, it also exports metrics of single
// containers and pods, about a dozen series for each.
func New(source Source, names bool) *Collector {
	c := &Collector{source: source, names: names}
	for _, s := range sections() {
		if s.names && !names {
			continue
		}
		for _, m := range s.metrics {
			c.metrics = append(c.metrics, m)
			c.descs = append(c.descs, prometheus.NewDesc(m.name, m.help, m.labels, nil))
		}
	}
	return c
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect sends the metrics. If the plugin doesn't answer, the scrape fails: old numbers would
// look like a node without problems.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s, err := c.source.Status()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.descs[0], fmt.Errorf("no status of the plugin: %w", err))
		return
	}
	input := newScrape(s, c.names)
	to := sink{out: out}
	for i := range c.metrics {
		to.desc, to.kind = c.descs[i], c.metrics[i].kind
		c.metrics[i].samples(input, &to)
	}
}

// most is the maximum number of concurrent scrapes; further ones are rejected.
const most = 4

// Handler answers scrapes in Prometheus' text format, or in OpenMetrics if the scraper prefers
// it. It adds the metrics of the process itself.
func Handler(source Source, names bool) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New(source, names), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: most})
}

// Path is the path of the metrics on the status socket and over TCP.
const Path = "/metrics"

// These constants bound what clients of the address can hold open: everybody who reaches it may
// connect. A connection without a request ends soon, so that it is in no scraper's way.
const (
	maxConnections = 64
	idleTime       = 5 * time.Second
)

// Serve answers scrapes on an address until the context ends.
func Serve(ctx context.Context, address string, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, handler)
	server := &http.Server{
		Handler: mux, ConnState: statusapi.LimitConnections(maxConnections),
		ReadTimeout: idleTime, WriteTimeout: 10 * time.Second, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10,
	}
	defer context.AfterFunc(ctx, func() {
		server.Close() //nolint:errcheck // the process ends
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	return nil
}
