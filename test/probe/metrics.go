package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-dev/sluice/test/probe/wire"
)

// metrics serves this process' metrics in Prometheus's text format, on that port of every address.
func metrics(port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(wire.MetricsPath, promhttp.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // it serves until this process ends
	return nil
}

// newDurations registers a histogram of the requests' durations as metrics serves it. Its buckets
// are finer than the client library's own where objectives of tests are.
func newDurations() (prometheus.Histogram, error) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: wire.Durations, Help: "Time from when a request was due until it was answered.",
		ConstLabels: prometheus.Labels{"code": "200"},
		Buckets:     []float64{0.001, 0.002, 0.003, 0.005, 0.0075, 0.010, 0.015, 0.020, 0.030, 0.050, 0.075, 0.100, 0.200, 0.500},
	})
	return h, prometheus.Register(h)
}
