package daemon

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/view/metrics"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// metrics returns the status socket's route for Prometheus. If the configuration asks for it,
// metrics also serves the same over TCP until the context ends.
func (s *service) metrics(ctx context.Context, cfg *config.Metrics, source metrics.Source, log logrus.FieldLogger) statusapi.Route {
	handler := metrics.Handler(source, cfg.Containers)
	if cfg.Listen != "" {
		s.acting.running.Go(func() {
			if err := metrics.Serve(ctx, cfg.Listen, handler); err != nil {
				log.WithError(err).Error("No metrics over TCP: a Prometheus finds nothing there; the status socket has them")
			}
		})
	}
	return statusapi.Route{Pattern: "GET " + metrics.Path, Handler: handler}
}
