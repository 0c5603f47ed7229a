package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-dev/sluice/pkg/kube"
)

// metrics count what this process does. docs/kubernetes.md lists them.
type metrics struct {
	registry     *prometheus.Registry
	publications *prometheus.CounterVec
	amounts      *prometheus.GaugeVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry:     prometheus.NewRegistry(),
		publications: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_kube_publications_total", Help: "Publications that the API server has taken (ok) or not (failed)."}, []string{"result"}),
		amounts:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_kube_published", Help: "Amount that the node has of a resource: CPU in thousandths, memory in bytes."}, []string{"resource"}),
	}
	m.registry.MustRegister(m.publications, m.amounts)
	m.publications.WithLabelValues("ok")
	m.publications.WithLabelValues("failed")
	return m
}

// published counts an attempt.
func (m *metrics) published(a kube.Attempt) {
	if a.Err != nil {
		m.publications.WithLabelValues("failed").Inc()
	} else {
		m.publications.WithLabelValues("ok").Inc()
	}
	m.amounts.Reset()
	for name, amount := range a.Amounts {
		m.amounts.WithLabelValues(name).Set(float64(amount))
	}
}

// serve serves the metrics until the context ends.
func (m *metrics) serve(ctx context.Context, address string) error {
	const limit = 10 * time.Second
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	server := &http.Server{Addr: address, Handler: mux, ReadTimeout: limit, WriteTimeout: limit, MaxHeaderBytes: 16 << 10}
	defer context.AfterFunc(ctx, func() {
		server.Close() //nolint:errcheck // the process ends
	})()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
