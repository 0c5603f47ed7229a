// Package metrics shows the plugin's state to Prometheus. It has no state of its own:
// each scrape reads one status and makes all numbers from it.
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
)

// Source is where the numbers come from; the agent is one.
type Source interface {
	Status() (*status.Status, error)
}

// Collector makes metrics of a status at each scrape. Its labels are bounded by the
// configuration and by this program, unless it names containers and pods.
type Collector struct {
	source  Source
	metrics []metric
	descs   []*prometheus.Desc
	names   bool
}

// New is the collector of a source; with names it also has metrics of single
// containers and pods, so that there are as many series as these, times a dozen.
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

// Describe sends what there may be.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect sends what there is. Where the plugin doesn't answer, the scrape fails: old
// numbers would look like a calm node.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s, err := c.source.Status()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.descs[0], fmt.Errorf("no status of the plugin: %w", err))
		return
	}
	seen := look(s, c.names)
	to := sink{out: out}
	for i := range c.metrics {
		to.desc, to.kind = c.descs[i], c.metrics[i].kind
		c.metrics[i].samples(seen, &to)
	}
}

// most is how many scrapes are answered at once; more are refused.
const most = 4

// Handler answers scrapes in Prometheus' text format, or in OpenMetrics where the
// scraper prefers it, with what the process itself uses besides.
func Handler(source Source, names bool) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New(source, names), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: most})
}

// Path is where the metrics are, on the status socket and over TCP.
const Path = "/metrics"

// Serve answers scrapes at an address until the context ends.
func Serve(ctx context.Context, address string, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, handler)
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	defer context.AfterFunc(ctx, func() {
		server.Close() //nolint:errcheck // the process ends
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	return nil
}
